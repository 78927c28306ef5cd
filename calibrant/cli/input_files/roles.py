"""Roles of columns: which hold scores, labels, ratings, units, by the option that names them or by their usual name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.tables import FileTable
from calibrant.cli.input_files.text_format import DEFAULT_FORMAT, TextFormat
from calibrant.input.class_texts import names_of_numbers, numbers_of


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


LABELS = ("label", "labels", "y", "y_true", "target", "targets", "class", "gt")
SCORES = (
    *("probabilities", "probability", "probs", "prob", "p", "scores", "softmax", "y_prob"),
    *("score", "proba", "y_proba", "y_score", "y_pred_proba", "predicted_probability"),
)
LOGITS = ("logits", "logit")
IDS = ("id", "ids")
OTHERS = (
    *(
        *IDS,
        "unit",
        "units",
        "patient",
        "case",
        "cases",
        "weight",
        "weights",
        "label_counts",
    ),
    # Classes that a model chose, by a threshold on the score.
    *("y_pred", "y_hat", "pred", "preds", "prediction", "predictions", "predicted", "threshold"),
    # pandas writes its index under an empty name.
    *("event_time", "timestamp", "index", "", "unnamed: 0"),
)
_NUMBERED = re.compile(r"(?:p|prob|probability|probs|score|logit|logits|class)?[_-]?(\d+)", re.I)
_LOGIT = re.compile(r"(?:^|[^a-z])logits?(?:[^a-z]|$)", re.I)
_RATER = re.compile(r"(?:rater|reader|annotator|expert|radiologist)s?[_-]?\w*", re.I)


def names_logits(name: str) -> bool:
    """Return whether a name of a file, array or column says that it holds logits.

    >>> [names_logits(name) for name in ("test_logits", "logits-v2", "logit_3", "analogits", "probabilities")]
    [True, True, True, False, False]
    """
    return _LOGIT.search(name) is not None


def named(table: FileTable, texts: str, option: str) -> list[str]:
    """Return the columns that an option names: names or patterns with `*`, separated by commas.

    Raises
    ------
    InputFileError
        A name or pattern fits no column.
    """
    found: list[str] = []
    for text in filter(None, (each.strip() for each in texts.split(","))):
        fitting = [name for name in table.names if name == text or fnmatchcase(name, text)]
        if not fitting:
            detail = f"Received {option} {text!r}; the columns are {listed(table.names)}."
            raise InputFileError(table.path, detail, "unknown_column")
        found += [name for name in fitting if name not in found]
    return found


def scores_of(table: FileTable, taken: Sequence[str]) -> list[str]:
    """Return the columns of scores by their names; those in `taken` have another role.

    Raises
    ------
    InputFileError
        No column, or columns of two kinds, could hold the scores.
    """
    free = [name for name in table.names if name not in taken]
    if len(free) == 1 and free[0].lower() not in (*LABELS, *OTHERS):
        return free
    for usual in (SCORES, LOGITS):
        fitting = [name for name in free if name.lower() in usual]
        if len(fitting) > 1:
            detail = f"Received the columns {listed(fitting)}, each of which could hold the scores. Name one: --scores."
            raise InputFileError(table.path, detail, "ambiguous_column")
        if fitting:
            return fitting
    numbered = [(int(found[1]), name) for name in free if (found := _NUMBERED.fullmatch(name))]
    if numbered:
        kinds = {re.sub(r"\d+$", "", name.lower()) for _, name in numbered}
        if len(kinds) > 1:
            detail = (
                f"Received numbered columns of several kinds: {listed([n for _, n in numbered])}."
            )
            raise InputFileError(table.path, f"{detail} Name them: --scores.", "ambiguous_column")
        return [name for _, name in sorted(numbered)]
    rest = [name for name in free if name.lower() not in (*LABELS, *OTHERS) and not is_rater(name)]
    if not rest:
        detail = (
            f"No column holds scores; the columns are {listed(table.names)}. Name them: --scores."
        )
        raise InputFileError(table.path, detail, "no_scores")
    return rest


def classes_of(names: Sequence[str]) -> list[str] | None:
    """Return the names of the classes that columns of scores have, None where labels are indices.

    Numbers are the classes themselves: they are never counted again from 0.

    >>> classes_of(["cat", "dog"]), classes_of(["p1", "p2"]), classes_of(["p0", "p1"])
    (['cat', 'dog'], ['1', '2'], None)
    """
    numbers = numbers_of(names)
    return list(names) if numbers is None else names_of_numbers(numbers)


def number_in(name: str) -> int | None:
    """Return the number of a column with a usual numbered name, None for another name.

    >>> number_in("prob_3"), number_in("model_v2")
    (3, None)
    """
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])


def label_of(table: FileTable) -> str | None:
    """Return the column of labels: the only column, or the one with a usual name; None if there is none."""
    usual = [name for name in table.names if name.lower() in LABELS]
    if len(usual) == 1:
        return usual[0]
    others = [name for name in table.names if name.lower() not in OTHERS]
    return others[0] if len(others) == 1 and not usual else None


def is_rater(name: str) -> bool:
    """Return whether a name is usual for a column of one reader's labels."""
    return _RATER.fullmatch(name) is not None


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return names for a message, at most `most`.

    >>> listed(["a", "b", "c"], 2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(name[:60]) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
