"""`calibrant export`, `import` and `restore`: a complete model or store from one place to another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.connection import DEFAULT_URL, Key, Url, service
from calibrant.cli.missing_packages import needed_by
from calibrant.cli.terminal import fail, output
from calibrant.client.operations import model_path

NDJSON = {"Content-Type": "application/x-ndjson"}
TIMEOUT_S = 120.0
Model = Annotated[str, typer.Argument(help="id of the model")]


def export(
    model: Model,
    file: Annotated[Path, typer.Argument(help="file to write: lines of JSON")],
    url: Url = DEFAULT_URL,
    key: Key = None,
    records: Annotated[
        bool, typer.Option("--records", help="also the records by id, which later labels need")
    ] = False,
    reports: Annotated[bool, typer.Option("--reports", help="also the archived reports")] = False,
) -> None:
    """Write a complete model to a file. An export that is interrupted leaves no file."""
    with needed_by("This command", "client"):
        import httpx

    draft = file.with_name(f"{file.name}.part")
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    query = {"records": str(records).lower(), "reports": str(reports).lower()}
    try:
        with (
            httpx.stream(
                "GET", f"{url.rstrip('/')}{model_path(model, '/export')}", params=query, headers=headers,
                timeout=TIMEOUT_S,
            ) as response,
            draft.open("wb") as written,
        ):  # fmt: skip
            if response.status_code != 200:
                fail(
                    f"The service returned status {response.status_code}: {response.read()!r:.500}"
                )
            last = b""
            for part in response.iter_bytes():
                written.write(part)
                last = (last + part)[-4096:]
        if b'"type":"end"' not in last.rstrip().rpartition(b"\n")[2]:
            fail("The export ended early: its last line is missing. Run the command again.")
        os.replace(draft, file)
        n_reports = _archived_reports(last)
    except httpx.TransportError as error:
        fail(f"The service did not respond: {error}")
    finally:
        draft.unlink(missing_ok=True)
    output().print(f"Wrote {file} ({file.stat().st_size:,} bytes)", markup=False, highlight=False)
    if n_reports:
        text = f"Left out: {n_reports} archived reports. Add --reports to export them"
        output().print(text, markup=False, highlight=False)


def _archived_reports(last: bytes) -> int:
    """Return the number of archived reports that the last line reports as left out; services of earlier versions do not report it."""
    left_out = json.loads(last.rstrip().rpartition(b"\n")[2]).get("left_out", {})
    return int(left_out.get("reports", 0))


def import_(
    model: Model,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="an export")],
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Make a model from an export. A command that was interrupted can be run again."""
    with service(url, key) as connected:
        found = connected.send("POST", model_path(model, "/import"), file.read_bytes(), NDJSON)
    text = f"Imported {found['model']}: {found['panes']:,} panes, {found['records']:,} records"
    output().print(text, markup=False, highlight=False)


def restore(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="dump.rdb of a backup")],
) -> None:
    """Make the embedded store from a snapshot (extra `server`). An existing store is never replaced."""
    command = [sys.executable, "-m", "calibrant_server.workers.restore", str(file)]
    raise typer.Exit(subprocess.run(command, check=False).returncode)
