"""`calibrant models` and `calibrant watch`: the models of a service, and their status."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from calibrant.cli.connection import DEFAULT_URL, Key, Service, Url, service
from calibrant.cli.terminal import output
from calibrant.figures.numbers import MISSING, percent, plain_number

COLOURS = {"ok": "green", "watch": "yellow", "alarm": "bold red"}
PAGE_SIZE = "100"


def models(url: Url = DEFAULT_URL, key: Key = None) -> None:
    """List the models of a service with their status of the last 7 days."""
    with service(url, key) as connected:
        output().print(status_table(_statuses(connected)))


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
        with Live(status_table(_statuses(connected)), console=output(), auto_refresh=False) as live:
            while count is None or (n := n + 1) < count:
                try:
                    time.sleep(interval)
                except KeyboardInterrupt:
                    return
                live.update(status_table(_statuses(connected)), refresh=True)


def _statuses(connected: Service) -> list[Mapping[str, Any]]:
    """Return the models of all pages."""
    found: list[Mapping[str, Any]] = []
    query = {"view": "status", "limit": PAGE_SIZE}
    while True:
        page = connected.get("/v1/models", **query)
        found += page["models"]
        if not page["next"]:
            return found
        query["cursor"] = page["next"]


def status_table(found: Iterable[Mapping[str, Any]]) -> Table:
    """Return the models as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Model", overflow="fold")
    for name in ("Calibration", "Change"):
        table.add_column(name)
    for name in ("ECE, 7 days", "Temperature", "Map", "Labelled", "Last data"):
        table.add_column(name, justify="left" if name == "Last data" else "right")
    for each in found:
        error, status = each.get("error") or {}, str(each.get("status") or "unknown")
        version, colour = each.get("map_version"), COLOURS.get(status, "")
        table.add_row(
            Text(str(each["model"])),
            *(Text(_word(each.get(name)), style=colour) for name in ("calibration", "change")),
            plain_number(error.get("value")),
            plain_number(each.get("temperature")),
            MISSING if version is None else str(version),
            percent(each.get("label_coverage")),
            Text(str(each.get("last_seen") or MISSING)),
        )
    return table


def _word(found: Mapping[str, Any] | None) -> str:
    return str((found or {}).get("word", "unknown")).replace("_", " ")
