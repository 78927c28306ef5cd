"""`calibrant push`: send the predictions of files to a service."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from calibrant.cli.connection import DEFAULT_URL, Key, Url, service
from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.roles import ColumnRoles, listed
from calibrant.cli.input_files.scored_data import ScoredData, read_scored
from calibrant.cli.progress import Progress
from calibrant.cli.table_options import (
    Decimal,
    Delimiter,
    IgnoreLabel,
    Na,
    Salt,
    ignored_labels,
    pseudonyms_of,
    text_format,
)
from calibrant.cli.terminal import fail, output
from calibrant.core.errors import CalibrationInputError
from calibrant.input.class_texts import has_numbers

ROWS = 5000
Text = str | None


def push(
    model: Annotated[str, typer.Argument(help="id of the model")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="predictions, as for `score`")],
    labels: Annotated[
        Path | None, typer.Argument(metavar="LABELS", help="labels; default: columns of FILE")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    raters: Annotated[Text, typer.Option(help="columns with one reader each, or all")] = None,
    logits: Annotated[
        bool | None, typer.Option("--logits/--probabilities", help="what FILE holds")
    ] = None,
    unit: Annotated[Text, typer.Option(help="column of what is independent of the rest")] = None,
    case: Annotated[Text, typer.Option(help="column of images or studies")] = None,
    id_: Annotated[Text, typer.Option("--id", help="column of ids")] = None,
    weight: Annotated[Text, typer.Option(help="column of weights")] = None,
    slice_: Annotated[Text, typer.Option("--slice", help="column of subgroups")] = None,
    scores: Annotated[Text, typer.Option(help="columns of FILE with the scores")] = None,
    label: Annotated[Text, typer.Option(help="column of the labels")] = None,
    classes: Annotated[Text, typer.Option(help="names of the classes: cat,dog")] = None,
    na: Na = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    ignore_label: IgnoreLabel = None,
    salt: Salt = None,
) -> None:
    """Send predictions with their labels to a service. The same files sent again count once."""
    roles = ColumnRoles(
        scores, label, raters, unit, case, id_, weight, slice_, logits,
        None if classes is None else tuple(classes.split(",")), text_format(na, delimiter, decimal),
        ignored_labels(ignore_label),
    )  # fmt: skip
    try:
        data = read_scored(file, labels, roles, pseudonyms=pseudonyms_of(salt))
    except (InputFileError, CalibrationInputError) as error:
        fail(str(error))
    starts = range(0, data.batch.n, ROWS)
    accepted = repeated = 0
    with service(url, key) as connected, Progress() as progress:
        target = connected.client.model(model)
        are_names = _are_names(data, connected.classes(model))
        progress.begin(f"sending to {model}", len(starts))
        for start in starts:
            receipt = target.send(
                batch_id=batch_id(data, model, start),
                **columns(data, slice_, start, start + ROWS, are_names),
            )
            accepted += 0 if receipt.duplicate else receipt.accepted
            repeated += receipt.accepted if receipt.duplicate else 0
            progress.step(f"{accepted:,} rows")
    output().print(_outcome(model, accepted, repeated), markup=False, highlight=False)


def _outcome(model: str, accepted: int, repeated: int) -> str:
    """Return how many rows count now, and how many counted before.

    >>> _outcome("ct", 0, 3), _outcome("ct", 5000, 0)
    ('0 rows accepted by ct; 3 were already counted', '5,000 rows accepted by ct')
    """
    again = f"; {repeated:,} were already counted" if repeated else ""
    return f"{accepted:,} rows accepted by {model}{again}"


def _are_names(data: ScoredData, declared: Sequence[str] | None) -> bool:
    """Return whether labels are sent as names of the model's classes; end the command if the file has others, or another order.

    Parameters
    ----------
    declared : names of the model's classes; None if it has none, or if they are not known
    """
    if declared is None or (data.classes is None and not has_numbers(declared)):
        return False
    own = data.classes or list(map(str, range(data.batch.n_classes)))
    if own != list(declared):
        fail(
            f"Received scores of the classes {listed(own)}; expected those of the model, in its order: {listed(declared)}. "
            "Name the columns in this order: --scores, or the classes: --classes."
        )
    return True


def batch_id(data: ScoredData, model: str, start: int) -> str:
    """Return an id that the same rows of the same files always get, so that a repeat counts once."""
    parts = [model, *(digest for _, digest in data.files), f"{start}.{ROWS}"]
    return f"push.{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:32]}"


def columns(
    data: ScoredData, slice_: str | None, first: int, last: int, are_names: bool
) -> dict[str, Any]:
    """Return rows as the columns that a client sends; `are_names`: labels are names."""
    places = range(data.batch.n_classes)
    labels: Sequence[Any] = (data.classes or list(map(str, places))) if are_names else places
    batch = data.batch.take(np.arange(first, min(last, data.batch.n)))
    found: dict[str, Any] = {"logits" if batch.is_logits else "probabilities": batch.scores}
    if batch.task == "binary":
        found = {"probabilities": batch.probabilities[:, 1]}
    found["labels"] = [
        [label for label, n in zip(labels, row, strict=True) for _ in range(n)] or None
        for row in batch.label_counts.tolist()
    ]
    for name in ("units", "cases", "ids", "weights"):
        if getattr(batch, name) is not None:
            found[name] = getattr(batch, name)
    if data.slices is not None and slice_ is not None:
        values = data.slices[first:last]
        if None in values:
            row = first + values.index(None)
            fail(f"Received no value in row {row} of --slice {slice_}; expected one per row.")
        found["slices"] = {slice_: values}
    return found
