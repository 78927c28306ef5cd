"""`calibrant models`, `watch`, `drift` and `set`: the models of a service, their status and settings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any
from urllib.parse import unquote

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from calibrant.cli.connection import DEFAULT_URL, Key, Service, Url, pages, service
from calibrant.cli.terminal import fail, new_table, output
from calibrant.client.operations import model_path
from calibrant.core.statuses import (
    NOT_COMPUTED,
    RANKS,
    STATUS_TEXTS,
    UNKNOWN,
    is_without_data,
    shown_status,
)
from calibrant.figures.numbers import MISSING, is_beyond_range, percent, plain_number, to_the_minute

COLOURS = {"ok": "green", "watch": "yellow", "alarm": "bold red"}
PATCH = {"Content-Type": "application/merge-patch+json", "If-Match": "*"}

Row = Mapping[str, Any]
Tag = Annotated[str | None, typer.Option(help="only models with this tag: owner:ann")]

# Sort keys of a model; one whose value is not known comes last.
ORDERS: dict[str, Callable[[Row], Any]] = {
    "status": lambda row: (RANKS[row.get("status") or UNKNOWN], not is_without_data(row)),
    "error": lambda row: -((row.get("error") or {}).get("value") or 0.0),
    "labels": lambda row: _known(row.get("label_coverage"), 2.0),
    "seen": lambda row: row.get("last_seen") or "~",
    "name": lambda row: row["model"],
}


def models(
    url: Url = DEFAULT_URL,
    key: Key = None,
    sort: Annotated[str, typer.Option(help=", ".join(ORDERS))] = "status",
    status: Annotated[str | None, typer.Option(help=f"only: {', '.join(RANKS)}")] = None,
    tag: Tag = None,
) -> None:
    """List the models of a service with their status and words. Error, temperature and labelled share are of the last 7 days."""
    if sort not in ORDERS:
        fail(f"Received --sort {sort}; expected one of {', '.join(ORDERS)}.")
    if status is not None and status not in RANKS:
        fail(f"Received --status {status}; expected one of {', '.join(RANKS)}.")
    with service(url, key) as connected:
        found = [each for each in statuses(connected, tag) if status in (None, each.get("status"))]
    output().print(status_table(sorted(found, key=ORDERS[sort])))


def watch(
    url: Url = DEFAULT_URL,
    key: Key = None,
    interval: Annotated[float, typer.Option(min=1, help="seconds between two reads")] = 10.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="number of reads; default: until interrupted")
    ] = None,
) -> None:
    """Show the models of a service in a table that is read again and again. Ctrl-C ends it."""
    with service(url, key) as connected:
        n = 0
        with Live(status_table(statuses(connected)), console=output(), auto_refresh=False) as live:
            while count is None or (n := n + 1) < count:
                try:
                    time.sleep(interval)
                except KeyboardInterrupt:
                    return
                live.update(status_table(statuses(connected)), refresh=True)


def drift(
    model: Annotated[str, typer.Argument(help="its id")],
    url: Url = DEFAULT_URL,
    key: Key = None,
    slice_: Annotated[str | None, typer.Option("--slice", help="such as site:A")] = None,
) -> None:
    """Write the words of a model, each with its sentence, and what to do."""
    query = {} if slice_ is None else {"slice": slice_}
    with service(url, key) as connected:
        found = connected.get(model_path(model, "/drift"), **query)
        events = pages(connected, model_path(model, "/events"), "events")
    for name in ("calibration", "change", "scores"):
        write(f"{name}: {_word(found[name])}. {found[name]['sentence']}")
    advice = found["recommendation"]
    write(f"what to do: {advice['reason']}")
    for each in events:
        if each["kind"] == "setting":
            write(f"{to_the_minute(each['at'])}: {each['name']}")
    for line in next_steps(model, found, slice_):
        write(line)


def next_steps(model: str, found: Row, slice_: str | None = None) -> list[str]:
    """Return the commands that carry out the advice of a model's drift.

    >>> advice = {"next": {"method": "POST", "path": "/v1/models/ct/maps", "body": {}}}
    >>> for line in next_steps("ct", {"status": "alarm", "recommendation": advice}):
    ...     print(line)
    to fit this map: calibrant maps fit ct --recommended
    if the change was expected: calibrant alarms acknowledge ct
    >>> advice = {"next": {"method": "GET", "path": "/v1/models/ct/drift?slice=site:B", "body": None}}
    >>> next_steps("ct", {"status": "watch", "recommendation": advice})
    ['for site:B alone: calibrant drift ct --slice site:B']
    """
    step = found["recommendation"].get("next")
    is_map, lines = step is not None and step["path"].endswith("/maps"), []
    if is_map:
        named = "" if slice_ is None else f" --slice {slice_}"
        lines.append(f"to fit this map: calibrant maps fit {model} --recommended{named}")
    elif step is not None and "/drift?slice=" in step["path"]:
        of = unquote(step["path"].partition("slice=")[2])
        lines.append(f"for {of} alone: calibrant drift {model} --slice {of}")
    if found.get("status") == "alarm":
        lines.append(f"if the change was expected: calibrant alarms acknowledge {model}")
    return lines


def set_(
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] NAME=VALUE…",
            help="a model's id and settings: label_horizon=P7D alarm.tolerance=0.05 tags.owner=ann; null resets",
        ),
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    all_: Annotated[bool, typer.Option("--all", help="of every model, instead of MODEL")] = False,
    tag: Tag = None,
    reason: Annotated[
        str | None,
        typer.Option(help="stored with changes of tolerance and label_horizon, and in reports"),
    ] = None,
) -> None:
    """Change settings of a model; with --all of every model, or of those with a tag."""
    named, pairs = ([], values) if all_ else (values[:1], values[1:])
    if tag is not None and not all_:
        fail("Received --tag without --all; expected both: --all --tag owner:ann NAME=VALUE.")
    if not pairs or any("=" in each for each in named):
        fail("Received no model or no setting; expected MODEL NAME=VALUE, or --all NAME=VALUE.")
    why = {} if reason is None else {"reason": reason}
    body = json.dumps(patch_of(pairs) | why).encode()
    with service(url, key) as connected:
        if all_:
            found = pages(connected, "/v1/models", "models", **tag_query(tag))
            named = [each["model"] for each in found]
        if not named:
            fail("There is no model." if tag is None else f"No model has the tag {tag}.")
        for model in named:
            connected.send("PATCH", model_path(model), body, PATCH)
            write(f"{model}: set {', '.join(pairs)}.")


def patch_of(pairs: Iterable[str]) -> dict[str, Any]:
    """Return the merge patch of `name=value` texts: a dot names a member, a value is JSON or a text.

    >>> patch_of(["label_horizon=P7D", "alarm.tolerance=0.05", "alarm.raters=null"])
    {'label_horizon': 'P7D', 'alarm': {'tolerance': 0.05, 'raters': None}}
    """
    found: dict[str, Any] = {}
    for each in pairs:
        name, equals, text = each.partition("=")
        if not equals:
            fail(f"Received {each!r}; expected NAME=VALUE, such as label_horizon=P7D.")
        parent, _, member = name.partition(".")
        if member:
            found.setdefault(parent, {})[member] = _value(text)
        else:
            found[parent] = _value(text)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def statuses(connected: Service, tag: str | None = None) -> list[Row]:
    """Return the models with their first settings and their statuses."""
    query = {"view": "status", "include": "details"} | tag_query(tag)
    return pages(connected, "/v1/models", "models", **query)


def tag_query(tag: str | None) -> dict[str, str]:
    """Return the query of the models with a tag."""
    if tag is not None and ":" not in tag:
        fail(f"Received --tag {tag}; expected KEY:VALUE, such as owner:ann.")
    return {} if tag is None else {"tag": tag}


def status_table(found: Iterable[Row]) -> Table:
    """Return the models as a table."""
    rows = list(found)
    table = new_table(())
    add_names(table, "Model", [str(each["model"]) for each in rows])
    for name in ("Status", "Calibration", "Change"):
        table.add_column(name)
    for name in ("ECE", "Temperature", "Map", "Labelled"):
        table.add_column(name, justify="right")
    for each in rows:
        is_watched = each.get("label_horizon") is not None
        error, status = each.get("error") or {}, shown_status(each, is_watched) or NOT_COMPUTED
        version, colour = each.get("map_version"), COLOURS.get(status, "")
        table.add_row(
            Text(str(each["model"])),
            Text(STATUS_TEXTS.get(status, status), style=colour),
            *(Text(_word(each.get(name)), style=colour) for name in ("calibration", "change")),
            plain_number(error.get("value")),
            _temperature(each.get("temperature")),
            MISSING if version is None else str(version),
            percent(each.get("label_coverage")),
        )
    return table


def add_names(table: Table, title: str, names: Iterable[str]) -> None:
    """Add a column of names that are never cut or broken: the other columns give way."""
    width = max(map(len, names), default=0)
    table.add_column(title, no_wrap=True, min_width=width, overflow="ignore")


def _word(found: Row | None) -> str:
    """Return a word, `MISSING` before it is computed; `good` of a selection of the predictions names it."""
    if found is None:
        return MISSING
    word = str(found["word"]).replace("_", " ")
    return "good among the labelled" if word == "good" and found.get("bounds") else word


def _temperature(value: float | None) -> str:
    """Return a temperature; beyond the range in which one is looked for, no number fits."""
    return "beyond range" if is_beyond_range(value) else plain_number(value)


def _known(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def write(text: str) -> None:
    output().print(text, markup=False, highlight=False)
