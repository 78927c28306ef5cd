"""What the options of a command say about the columns of its files."""

from __future__ import annotations

from dataclasses import dataclass

from calibrant.cli.input_files.text_format import DEFAULT_FORMAT, TextFormat


@dataclass(frozen=True)
class ColumnRoles:
    """What the options say about the columns; None for what the files say themselves.

    Attributes
    ----------
    scores, label, raters, unit, case, id, weight, slice : names of columns; `scores` and `raters` several, separated by commas
    logits : whether the scores are logits; None to go by names
    classes : names of the classes
    form : of the cells
    ignored : labels that mean no label
    normalize : divide each row of probabilities by its sum
    long : the labels are a long table, and `raters` is one of its columns
    shares, n_ratings : columns with the shares of the classes, separated by commas, and of the number of ratings
    """

    scores: str | None = None
    label: str | None = None
    raters: str | None = None
    unit: str | None = None
    case: str | None = None
    id: str | None = None
    weight: str | None = None
    slice: str | None = None
    logits: bool | None = None
    classes: tuple[str, ...] | None = None
    form: TextFormat = DEFAULT_FORMAT
    ignored: tuple[int, ...] = ()
    normalize: bool = False
    long: bool = False
    shares: str | None = None
    n_ratings: str | None = None
