"""`calibrant fill`: the rows of a table as packed panes by time and slice."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.input_files.errors import InputFileError
from calibrant.cli.input_files.formats import read_table
from calibrant.cli.input_files.roles import named
from calibrant.cli.input_files.tables import ColumnTable
from calibrant.cli.pseudonyms import Salt, pseudonyms_of
from calibrant.cli.terminal import fail, output
from calibrant.core.errors import CalibrationInputError
from calibrant.core.panes_by_key import SplitUnitsWarning, fill_by
from calibrant.core.spec import PaneSpec

INDEX = ("file", "start", "slice", "n_predictions", "n_labelled", "n_ratings", "digest")
Text = str | None


def fill(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=".parquet, .arrow, .json or .npz")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="new or empty folder of panes")],
    scores: Annotated[
        str, typer.Option(help="columns of the scores: one per class, or of class 1")
    ],
    labels: Annotated[str, typer.Option(help="column of the labels, or one per reader")] = "label",
    time: Annotated[Text, typer.Option(help="column of event times")] = None,
    every: Annotated[str, typer.Option(help="length of a pane: 15m, 1h, 1d")] = "1h",
    slices: Annotated[Text, typer.Option(help="columns of slices, separated by commas")] = None,
    unit: Annotated[Text, typer.Option(help="column of what is independent of the rest")] = None,
    logits: Annotated[bool, typer.Option("--logits", help="the scores are logits")] = False,
    classes: Annotated[Text, typer.Option(help="names of the classes: cat,dog")] = None,
    salt: Salt = None,
) -> None:
    """Fill a table into panes: packed sums, which can be added and sent to a service instead of rows."""
    try:
        if folder.exists() and any(folder.iterdir()):
            raise InputFileError(folder, "The folder is not empty. Name a new one.", "folder")
        table = read_table(file)
        if not isinstance(table, ColumnTable):
            detail = "Expected a format with types: .parquet, .arrow, .json or .npz."
            raise InputFileError(file, detail, "format")
        score_columns = named(table, scores, "--scores")
        label_columns = named(table, labels, "--labels")
        n_classes = table.numbers(score_columns[:1]).shape[1]
        n_classes = len(score_columns) if len(score_columns) > 1 else n_classes
        spec = PaneSpec("binary", 2) if n_classes == 1 else PaneSpec("multiclass", n_classes)
        found = score_columns if len(score_columns) > 1 else score_columns[0]
        pseudonyms, columns = pseudonyms_of(salt), dict(table.columns)
        if pseudonyms is not None and unit is not None and unit in columns:
            columns[unit] = [each and pseudonyms.of(each) for each in table.texts(unit)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SplitUnitsWarning)
            panes = fill_by(
                columns, spec, time=time, every=every, unit=unit,
                slices=() if slices is None else slices.split(","),
                labels=label_columns if len(label_columns) > 1 else label_columns[0],
                class_names=None if classes is None else classes.split(","),
                logits=found if logits else None,
                confidences=score_columns[0] if n_classes == 1 and not logits else None,
                probabilities=found if n_classes > 1 and not logits else None,
            )  # fmt: skip
    except (InputFileError, CalibrationInputError) as error:
        fail(str(error))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "index.csv").open("w", newline="", encoding="utf-8") as index:
        rows = csv.writer(index)
        rows.writerow(INDEX)
        for place, (key, pane) in enumerate(sorted(panes.items())):
            name = f"{place:06d}.pane"
            (folder / name).write_bytes(pane.to_bytes())
            start = "" if key.start is None else key.start.isoformat()
            counts = [pane.counts[each] for each in INDEX[3:6]]
            rows.writerow([name, start, key.slice, *counts, pane.digest()])
    for each in caught:
        output().print(f"Note: {each.message}", markup=False, highlight=False)
    output().print(f"Wrote {len(panes):,} panes to {folder}", markup=False, highlight=False)
