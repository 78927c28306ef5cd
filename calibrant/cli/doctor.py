"""`calibrant doctor`: what is wrong with an installation or a service, and what to do."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from calibrant.cli.connection import DEFAULT_URL, Key, Url
from calibrant.cli.terminal import new_table, output
from calibrant.core.extras import pip_install
from calibrant.kernel import status

OK, WARNING, ERROR = "ok", "warning", "error"
COLOURS = {OK: "green", WARNING: "yellow", ERROR: "bold red"}
MIN_FREE_BYTES, FEW_FREE_BYTES = 1 << 30, 5 << 30
MIN_MEMORY_BYTES = 1 << 30
# The service rejects event times more than 5 minutes ahead of its clock.
MAX_SKEW_S, LARGE_SKEW_S = 300.0, 5.0
TIMEOUT_S = 5.0
# What waits for an operator, with the page that says what to do.
WAITING = {
    "parked_entries": "batches are parked: python -m workers.ingest.parked lists and replays them",
    "dead_letters": "batches were not merged: GET /v1/models/{model}/dead-letters",
    "unsealed_models": "a damaged pane keeps a cohort from being sealed: see the log",
    "stalled_partitions": "parts of the queue do not advance: check that workers run",
}


@dataclass(frozen=True)
class Check:
    """One line: what was checked, its state, what was found, and what to do."""

    name: str
    state: str
    found: str
    advice: str = ""


def doctor(
    url: Url = DEFAULT_URL,
    key: Key = None,
    data_dir: Annotated[
        Path, typer.Option(envvar="CALIBRANT_DATA_DIR", help="folder of the state")
    ] = Path("data"),
    local: Annotated[bool, typer.Option("--local", help="do not check a service")] = False,
) -> None:
    """Check versions, kernel, disk, memory, and the service with its store and clock. The exit code is 1 after an error."""
    checks = [*installation(), disk(data_dir), memory(), *keys_file()]
    if not local:
        checks += list(service_checks(url))
    table = new_table(("Check", "State", "Found", "What to do"))
    for each in checks:
        state = Text(each.state, style=COLOURS[each.state])
        table.add_row(each.name, state, Text(each.found), Text(each.advice))
    output().print(table)
    if any(each.state == ERROR for each in checks):
        raise typer.Exit(1)


def installation() -> Iterator[Check]:
    """Check the versions and what fills panes."""
    names = ("numpy", "scipy", "zstandard")
    found = ", ".join(f"{name} {version(name)}" for name in names)
    yield Check(
        "versions",
        OK,
        f"calibrant {version('calibrant')}, Python {platform.python_version()}, {found}",
    )
    yield Check("kernel", OK, f"compiled ({status().variant})")


def disk(folder: Path) -> Check:
    """Check the free space where the state is, or will be."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{free / 1e9:.1f} GB free at {place}"
    if not os.access(place, os.W_OK):
        return Check(
            "disk", ERROR, f"{place} is not writable", "Change its owner, or CALIBRANT_DATA_DIR."
        )
    if free < MIN_FREE_BYTES:
        return Check("disk", ERROR, found, "Free at least 1 GB: a full disk stops the store.")
    if free < FEW_FREE_BYTES:
        return Check(
            "disk", WARNING, found, "Below 5 GB: rewriting the store needs twice its size."
        )
    return Check("disk", OK, found)


def memory() -> Check:
    """Check the memory of the machine."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return Check("memory", WARNING, "not known on this system")
    found = f"{total / 1e9:.1f} GB in this machine"
    if total < MIN_MEMORY_BYTES:
        return Check("memory", WARNING, found, "Below 1 GB, large batches may be rejected.")
    return Check("memory", OK, found)


def keys_file() -> Iterator[Check]:
    """Check that others on this machine cannot read or replace the keys file, if one is set here."""
    path = os.environ.get("CALIBRANT_KEYS_FILE")
    if not path:
        return
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        yield Check("keys file", ERROR, f"{path}: {error.strerror}", "Check CALIBRANT_KEYS_FILE.")
        return
    if mode & 0o077:
        found = f"other users have access to {path} (mode {mode & 0o777:o})"
        yield Check("keys file", WARNING, found, f"chmod 600 {path}")
    else:
        yield Check("keys file", OK, f"{path} is its owner's only")


def service_checks(url: str) -> Iterator[Check]:
    """Check a service: reachable, version, clock, store, and what waits for an operator."""
    if importlib.util.find_spec("httpx") is None:
        advice = f"Install the extra `client`: {pip_install('client')}"
        yield Check("service", WARNING, "not checked: httpx is not installed", advice)
        return
    import httpx

    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as http:
        try:
            began = time.time()
            running = http.get("/version")
            found: dict[str, Any] = running.json()
            theirs = str(found["version"])
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
            advice = "Start it with calibrant serve, or name its address: --url."
            yield Check(
                "service", ERROR, f"{url} does not respond: {error or type(error).__name__}", advice
            )
            return
        yield _same_version(url, theirs)
        yield _clock(running.headers.get("date"), (began + time.time()) / 2)
        yield _access(http.get("/v1/models", params={"limit": 1}).status_code)
        try:
            ready = http.get("/readyz")
            body = ready.json()
        except (httpx.HTTPError, ValueError) as error:
            yield Check(
                "store", ERROR, f"/readyz does not respond: {error}", "See the service's log."
            )
            return
    yield _store(ready.status_code, body)
    for name, advice in WAITING.items():
        if body.get(name):
            yield Check(name.replace("_", " "), WARNING, str(body[name]), advice)


def _same_version(url: str, theirs: str) -> Check:
    found = f"{url}: version {theirs}"
    if theirs == version("calibrant"):
        return Check("service", OK, found)
    return Check(
        "service",
        WARNING,
        found,
        f"This command is {version('calibrant')}: install the same version.",
    )


def _access(status: int) -> Check:
    if status != 200:
        return Check("access", OK, "requests need a key")
    advice = "On a shared machine, set CALIBRANT_KEYS_FILE and CALIBRANT_CREATE_KEY=true."
    found = "no keys: every user of the service's machine may read and change everything"
    return Check("access", WARNING, found, advice)


def _clock(header: str | None, now: float) -> Check:
    """Compare the clocks; the header Date has whole seconds."""
    if header is None:
        return Check("clock", WARNING, "the service sends no Date")
    skew = parsedate_to_datetime(header).timestamp() + 0.5 - now
    found = f"the service's clock differs by {abs(skew):.0f} s from this one"
    if abs(skew) > MAX_SKEW_S:
        return Check(
            "clock",
            ERROR,
            found,
            "Event times ahead by more than 5 minutes are rejected. Synchronise both clocks.",
        )
    return Check("clock", OK if abs(skew) <= LARGE_SKEW_S else WARNING, found)


def _store(code: int, body: dict[str, Any]) -> Check:
    if code != 200:
        found = str(body.get("detail") or f"status {code}")
        return Check(
            "store",
            ERROR,
            found,
            "Check that the store runs: CALIBRANT_REDIS_URL or CALIBRANT_DATA_DIR.",
        )
    if body.get("store_full"):
        return Check(
            "store",
            ERROR,
            "its memory is full: batches are rejected",
            "Raise maxmemory, or shorten retention.",
        )
    return Check("store", OK, "takes writes")
