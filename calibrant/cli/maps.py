"""`calibrant maps list`, `fit`, `get`, `apply` and `promote`: the calibration map that a model uses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from calibrant.cli.connection import (
    DEFAULT_URL,
    JSON,
    Key,
    Url,
    pages,
    registered,
    service,
)
from calibrant.cli.input_files.columns import Files
from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.formats import read_table
from calibrant.cli.input_files.roles import ColumnRoles, listed
from calibrant.cli.input_files.tables import FileTable
from calibrant.cli.model_commands import write
from calibrant.cli.table_options import Decimal, Delimiter, text_format
from calibrant.cli.terminal import fail, new_table, output
from calibrant.client.operations import model_path
from calibrant.core.arrays import Floats
from calibrant.core.errors import CalibrationInputError
from calibrant.figures.numbers import counted, plain_number, to_the_minute
from calibrant.input.class_texts import names_of_numbers, numbers_of
from calibrant.input.table_names import matched
from calibrant.results import CalibrationMap

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The calibration maps of a model."
)

Model = Annotated[str, typer.Argument(help="id of the model")]
Version = Annotated[int | None, typer.Option(min=1, help="default: the promoted one")]


def list_(model: Model, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """List the frozen maps of a model, the current one marked."""
    with service(url, key) as connected:
        found = pages(connected, model_path(model, "/maps"), "versions")
        current = connected.current_map(model)[1]
    names = ("Version", "Method", "Labels", "Log loss before", "after", "Created", "Use")
    table = new_table(names, numbers=("Version", "Labels", "Log loss before", "after"))
    for each in found:
        losses = ((each.get(name) or {}).get("nll") for name in ("before", "after"))
        is_current = current is not None and current["version"] == each["version"]
        table.add_row(
            str(each["version"]),
            ", ".join(filter(None, (each["method"].replace("_", " "), each.get("slice")))),
            f"{each['n']:,}",
            *map(plain_number, losses),
            to_the_minute(each["created_at"]),
            "current" if is_current else "",
        )
    output().print(table if found else f"No map of {model} was frozen yet.")


def fit(
    model: Model,
    url: Url = DEFAULT_URL,
    key: Key = None,
    recommended: Annotated[
        bool, typer.Option("--recommended", help="the map that `calibrant drift` recommends")
    ] = False,
    method: Annotated[str | None, typer.Option(help="default: temperature")] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", help="start of the labels, such as 2026-11-21T00:00:00Z; default: all"
        ),
    ] = None,
    slice_: Annotated[
        str | None, typer.Option("--slice", help="fit to this slice only, such as site:A")
    ] = None,
) -> None:
    """Fit a map and store it as the next version. It is not used until it is promoted."""
    asked = {"method": method, "from": from_, "slice": slice_}
    view = {} if slice_ is None else {"slice": slice_}
    with service(url, key) as connected:
        body = (
            _recommended(connected.get(model_path(model, "/drift"), **view)["recommendation"])
            if recommended
            else {}
        )
        body |= {name: text for name, text in asked.items() if text is not None}
        found = connected.send("POST", model_path(model, "/maps"), json.dumps(body).encode(), JSON)
    number, part = found["version"], "" if slice_ is None else f" of {slice_}"
    write(
        f"Version {number} ({found['method'].replace('_', ' ')}, {found['n']:,} labels{part}) is stored. {_use(model, number, slice_)}"
    )


def _use(model: str, version: int, slice_: str | None) -> str:
    """Return the command that puts a version to use; one of a slice is applied to that slice, not promoted.

    >>> _use("ct", 2, "site:B")
    'To use it for site:B only: calibrant maps get ct --version 2 --output map.json, then calibrant maps apply map.json FILE'
    """
    if slice_ is None:
        return f"To use it: calibrant maps promote {model} {version} --reason TEXT"
    return (
        f"To use it for {slice_} only: calibrant maps get {model} --version {version} --output map.json, "
        "then calibrant maps apply map.json FILE"
    )


def _recommended(advice: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the request that fits the recommended map."""
    step = advice.get("next")
    if step is None or not step["path"].endswith("/maps"):
        fail(f"No map is recommended. {advice['reason']}")
    return dict(step["body"])


def get(
    model: Model,
    number: Annotated[
        int | None, typer.Argument(metavar="VERSION", min=1, help="default: the promoted map")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    version: Version = None,
    output_file: Annotated[
        Path | None, typer.Option("--output", "-o", help="file; default: standard output")
    ] = None,
) -> None:
    """Write a frozen map as JSON, with the names of the model's classes: the promoted one, or the one of a version."""
    with service(url, key) as connected:
        found = connected.get(model_path(model, f"/maps/{number or version or 'current'}"))
        classes = connected.classes(model)
    text = json.dumps(found if classes is None else found | {"classes": classes}, indent=1)
    if output_file is None:
        typer.echo(text)
    else:
        output_file.write_text(f"{text}\n", "utf-8")


def apply(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help="JSON of `calibrant maps get`")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="scores, as for `calibrant score`")],
    result: Annotated[
        Path, typer.Option("--output", "-o", help="recalibrated probabilities: .npy")
    ],
    logits: Annotated[
        bool | None, typer.Option("--logits/--probabilities", help="what FILE holds")
    ] = None,
    scores: Annotated[str | None, typer.Option(help="columns of FILE with the scores")] = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
) -> None:
    """Recalibrate the scores of a file with a map. No server is needed."""
    try:
        document = _read_json(map_file)
        table = read_table(file, text_format(None, delimiter, decimal))
        values, names, is_logits, why = Files(
            table, table, ColumnRoles(scores, logits=logits)
        ).scores()
        values = _in_order(values, table, names, document.get("classes"))
        found = CalibrationMap.from_dict(document)(probabilities(values, is_logits))
    except (InputFileError, CalibrationInputError, ValueError, KeyError) as error:
        fail(str(error))
    np.save(result, found)
    kind = "logits" if is_logits else "probabilities"
    output().print(f"Read {file} as {kind} ({why}). Wrote {result}", markup=False, highlight=False)


def _in_order(
    values: Floats, table: FileTable, names: Sequence[str], classes: Sequence[str] | None
) -> Floats:
    """Return columns in the order of the map's classes; as they are without names, or numbered from 0."""
    numbers = numbers_of(names)
    is_plain = classes is None or len(names) == 1 or not table.is_named
    if is_plain or (numbers is not None and names_of_numbers(numbers) is None):
        return values
    ordered = matched(names, classes or ())
    if ordered is None:
        detail = f"Received the columns {listed(names)}; expected those of the map's classes: {listed(classes or ())}. Rename them."
        raise InputFileError(table.path, detail, "classes")
    return values[:, [list(names).index(each) for each in ordered]]


def probabilities(values: Any, is_logits: bool) -> Any:
    """Return scores as probabilities in the form that a map takes: one column is the probability of class 1."""
    if is_logits:
        values = (
            np.column_stack([np.zeros(len(values)), values]) if values.shape[1] == 1 else values
        )
        raised = np.exp(values - values.max(axis=1, keepdims=True))
        return raised / raised.sum(axis=1, keepdims=True)
    return values[:, 0] if values.shape[1] == 1 else values


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputFileError(path, f"Expected the JSON of a map: {error}", "format") from error
    return found


def promote(
    model: Model,
    version: Annotated[int, typer.Argument(min=1, help="version of the map")],
    reason: Annotated[str, typer.Option(help="recorded with the promotion")],
    url: Url = DEFAULT_URL,
    key: Key = None,
    override: Annotated[
        bool, typer.Option("--override", help="promote it even if it was not shown to be better")
    ] = False,
) -> None:
    """Make a version the current map. The service rejects it if another promotion came between."""
    with service(url, key) as connected:
        headers, _ = connected.current_map(model)
        condition = {"If-None-Match": "*"} if headers is None else {"If-Match": headers["etag"]}
        body = json.dumps({"version": version, "reason": reason, "override": override}).encode()
        found = connected.send("PUT", model_path(model, "/maps/current"), body, JSON | condition)
    write(f"Version {found['version']} is the current map of {model}. {_evidence(found)}")
    for each in found["promotion"].get("warnings") or ():
        write(f"warning: {each['detail']}")
    write("Monitoring restarts: only later days count for the words of the model.")


def _evidence(found: Mapping[str, Any]) -> str:
    """Return on which labels the map was shown to be better.

    >>> _evidence({"promotion": {"evidence": {"beats": True, "n": 240}}})
    'It was shown to be better on 240 labels that came after those of its fit.'
    >>> _evidence({"promotion": {"evidence": {"beats": True, "n": 5760, "later_labels": "no_labels"}}})
    'It was shown to be better by cross-validation on the 5,760 labels of its fit; no later labels are complete.'
    """
    evidence = (found.get("promotion") or {}).get("evidence") or {}
    if not evidence.get("beats"):
        return "It was not shown to be better."
    n = counted(evidence.get("n"), "label")
    if evidence.get("later_labels") is None:
        return f"It was shown to be better on {n} that came after those of its fit."
    return f"It was shown to be better by cross-validation on the {n} of its fit; no later labels are complete."


registered(app, list_, fit, get, apply, promote)
