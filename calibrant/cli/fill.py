"""`calibrant fill`: the rows of a table as packed panes by time and slice."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.formats import read_table
from calibrant.cli.input_files.roles import named
from calibrant.cli.input_files.row_columns import RowColumns
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
from calibrant.core.panes_by_key import SplitUnitsWarning, fill_by
from calibrant.core.spec import PaneSpec

INDEX = ("file", "start", "slice", "n_predictions", "n_labelled", "n_ratings", "digest")
Text = str | None


def fill(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="rows, as for `score`")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="new or empty folder of panes")],
    scores: Annotated[
        str, typer.Option(help="columns of the scores: one per class, or of class 1")
    ],
    labels: Annotated[str, typer.Option(help="column of the labels, or one per reader")] = "label",
    time: Annotated[Text, typer.Option(help="column of event times")] = None,
    timezone: Annotated[
        Text, typer.Option(help="zone of event times without an offset: Europe/Berlin")
    ] = None,
    time_unit: Annotated[
        Text, typer.Option(help="s or ms: event times are numbers that count from 1970 UTC")
    ] = None,
    every: Annotated[str, typer.Option(help="length of a pane: 15m, 1h, 1d")] = "1h",
    slices: Annotated[Text, typer.Option(help="columns of slices, separated by commas")] = None,
    unit: Annotated[Text, typer.Option(help="column of what is independent of the rest")] = None,
    logits: Annotated[bool, typer.Option("--logits", help="the scores are logits")] = False,
    classes: Annotated[Text, typer.Option(help="names of the classes: cat,dog")] = None,
    na: Na = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    ignore_label: IgnoreLabel = None,
    salt: Salt = None,
) -> None:
    """Fill a table into panes: packed sums, which can be added and sent to a service instead of rows."""
    try:
        if folder.exists() and any(folder.iterdir()):
            raise InputFileError(folder, "The folder is not empty. Name a new one.", "folder")
        table = read_table(file, text_format(na, delimiter, decimal))
        score_columns = named(table, scores, "--scores")
        label_columns = named(table, labels, "--labels")
        n_classes = table.numbers(score_columns[:1]).shape[1]
        n_classes = len(score_columns) if len(score_columns) > 1 else n_classes
        spec = PaneSpec("binary", 2) if n_classes == 1 else PaneSpec("multiclass", n_classes)
        found = score_columns if len(score_columns) > 1 else score_columns[0]
        slice_columns = () if slices is None else slices.split(",")
        names = None if classes is None else classes.split(",")
        rows = RowColumns(table, names, ignored_labels(ignore_label))
        columns = rows.plain(score_columns, label_columns)
        columns |= rows.times(time, timezone, time_unit)
        columns |= rows.names(slice_columns)
        columns |= rows.names([] if unit is None else [unit], pseudonyms_of(salt))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SplitUnitsWarning)
            panes = fill_by(
                columns, spec, time=time, time_unit=time_unit, every=every, unit=unit, slices=slice_columns,
                labels=label_columns if len(label_columns) > 1 else label_columns[0],
                class_names=rows.classes,
                logits=found if logits else None,
                confidences=score_columns[0] if n_classes == 1 and not logits else None,
                probabilities=found if n_classes > 1 and not logits else None,
            )  # fmt: skip
    except (InputFileError, CalibrationInputError, ValueError) as error:
        fail(str(error))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "index.csv").open("w", newline="", encoding="utf-8") as index:
        written = csv.writer(index)
        written.writerow(INDEX)
        for place, (key, pane) in enumerate(sorted(panes.items())):
            name = f"{place:06d}.pane"
            (folder / name).write_bytes(pane.to_bytes())
            start = "" if key.start is None else key.start.isoformat()
            counts = [pane.counts[each] for each in INDEX[3:6]]
            written.writerow([name, start, key.slice, *counts, pane.digest()])
    if rows.n_repeated:
        text = f"Note: {rows.n_repeated:,} event times are of an hour that {timezone} had twice; each was taken as the first."
        output().print(text, markup=False, highlight=False)
    for each in caught:
        output().print(f"Note: {each.message}", markup=False, highlight=False)
    output().print(f"Wrote {len(panes):,} panes to {folder}", markup=False, highlight=False)
