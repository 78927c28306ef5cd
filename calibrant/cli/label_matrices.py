"""`calibrant score --task multilabel`: rows of independent events, a metric and a temperature for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calibrant.cli.evaluation import EvaluationSettings, keys_of
from calibrant.cli.input_files.columns import Files
from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.formats import read_table
from calibrant.cli.input_files.labels import event_labels
from calibrant.cli.input_files.roles import ColumnRoles
from calibrant.cli.terminal import new_table
from calibrant.client import Pseudonyms
from calibrant.core.errors import CalibrationInputError
from calibrant.figures.numbers import MISSING, counted, interval_text, plain_number
from calibrant.metrics import title_of
from calibrant.multilabel import multilabel_report
from calibrant.results import MultilabelReport
from calibrant.results.report import MULTILABEL

TEMPERATURE = "Temperature"
NO_PAGE = "Received an output of .html with --task multilabel; expected .json. For the page of one label: --scores COLUMN --label COLUMN."


def evaluated_labels(
    file: Path,
    labels: Path | None,
    roles: ColumnRoles,
    settings: EvaluationSettings,
    pseudonyms: Pseudonyms | None = None,
) -> MultilabelReport:
    """Return the report of files of scores and of labels.

    Raises
    ------
    InputFileError
        A file, column or value is not allowed.
    """
    table = read_table(file, roles.form)
    other = table if labels is None else read_table(labels, roles.form)
    files = Files(table, other, roles, None if pseudonyms is None else pseudonyms.of)
    scores, score_names, is_logits, _ = files.scores()
    order = files.order(len(scores))
    given, names = event_labels(files, order, score_names)
    arguments: dict[str, Any] = {
        "logits" if is_logits else "probabilities": scores,
        "labels": given,
        "classes": names,
        "weights": files.weights(order),
        "ignore_label": list(roles.ignored) or None,
        "normalize": roles.normalize,
    }
    for argument, option in (("units", "unit"), ("cases", "case"), ("ids", "id")):
        arguments[argument] = files.names(option, order)
    try:
        return multilabel_report(arguments, settings.query(), keys_of(settings))
    except CalibrationInputError as error:
        raise files.located(error, is_logits, score_names, None) from error


def show_labels(report: MultilabelReport, console: Console) -> None:
    """Print the means over labels, and the metrics and the temperature of each."""
    about = report.about
    counts = [(about["n_labels"], "label"), (about["n_labelled"], "labelled prediction"), (about["n_ratings"], "rating")]  # fmt: skip
    console.print(Text(f"{', '.join(counted(n, what) for n, what in counts)}."))
    columns = {"Mean of labels": {slug: plain_number(each.value) for slug, each in report.items()}}
    for name, each in report.labels.items():
        temperature = report.temperatures[name].to_dict().get("temperature")
        columns[name] = {slug: _cell(estimate.to_dict()) for slug, estimate in each.items()}
        columns[name][TEMPERATURE] = plain_number(temperature)
    # A value with its interval takes up to 26 characters, the title of a metric up to 43.
    width, names = max(1, (console.width - 43) // 28), list(columns)
    for start in range(0, len(names), width):
        some = {name: columns[name] for name in names[start : start + width]}
        console.print(_table([*report, TEMPERATURE], some))


def _table(slugs: list[str], columns: dict[str, dict[str, str]]) -> Table:
    """Return a table of some labels: a row per metric, a column per label."""
    names = [Text(name) for name in columns]
    table = new_table(["Metric", *names], numbers=names)
    for slug in slugs:
        title = slug if slug == TEMPERATURE else title_of(slug)
        table.add_row(title, *(cells.get(slug, MISSING) for cells in columns.values()))
    return table


def _cell(estimate: dict[str, Any]) -> str:
    interval = estimate.get("interval")
    value = plain_number(estimate.get("value"))
    return value if interval is None else f"{value} ({interval_text(interval)})"


def write_labels(report: MultilabelReport, path: Path | None, console: Console) -> None:
    """Write the numbers."""
    if path is not None:
        path.write_text(json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n", "utf-8")
        console.print(f"Wrote {path}", markup=False, highlight=False)


def reject_with_task(task: str | None, output: Path | None, given: dict[str, Any]) -> None:
    """Reject another task than `multilabel`, and what its rows do not have.

    Parameters
    ----------
    given : values of the other options by their names, None or False where they are not given

    Raises
    ------
    CalibrationInputError, InputFileError
        As described.
    """
    if task not in (None, MULTILABEL):
        detail = f"Received --task {task!r:.60}; expected {MULTILABEL}, or none: the columns of scores say whether a model is binary."
        raise CalibrationInputError.at("/task", "task", detail)
    if task is None:
        return
    for name, value in given.items():
        if value not in (None, False):
            detail = f"Received --{name} with --task {MULTILABEL}, which returns metrics and a temperature per label. Remove --{name}."
            raise CalibrationInputError.at(f"/{name}", "not_taken", detail)
    if output is not None and output.suffix.lower() != ".json":
        raise InputFileError(output, NO_PAGE, "format")
