"""`calibrant validate`: checks of installation, operation and performance on site, and a signed page with their results."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from calibrant.cli.connection import Key
from calibrant.cli.extras import needed_by
from calibrant.cli.progress import Progress
from calibrant.cli.site_validation import operation
from calibrant.cli.site_validation.installation import (
    installation_results,
    record_digest,
    versions,
)
from calibrant.cli.site_validation.page import PageError, document, html, read
from calibrant.cli.site_validation.performance import performance_results
from calibrant.cli.site_validation.results import FAIL, INFORMATION, PASS, Result
from calibrant.cli.site_validation.signature import KeyFileError, faults, read_key, signed
from calibrant.cli.terminal import fail, output

COLOURS = {PASS: "green", FAIL: "bold red", INFORMATION: "dim"}
FORMAT = 1
Text_ = str | None


def validate(
    url: Annotated[
        Text_,
        typer.Option(
            envvar="CALIBRANT_URL", help="also check this service, with a temporary model"
        ),
    ] = None,
    key: Key = None,
    page: Annotated[
        Path, typer.Option("--output", "-o", help="page to write; its JSON is written next to it")
    ] = Path("validation.html"),
    signer: Annotated[Text_, typer.Option(help="name of the person who signs")] = None,
    role: Annotated[Text_, typer.Option(help="role of the person who signs")] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="secret of at least 32 bytes that signs the page")
    ] = None,
    data_dir: Annotated[
        Path, typer.Option(envvar="CALIBRANT_DATA_DIR", help="folder of the state")
    ] = Path("data"),
    verify: Annotated[
        Path | None,
        typer.Option(help="verify this page instead; with --key-file its signature too"),
    ] = None,
) -> None:
    """Check installation, operation and performance, and write a signed page. The exit code is 1 after a failed check."""
    try:
        secret = None if key_file is None else read_key(key_file)
        if verify is not None:
            _verify(verify, secret)
            return
        content = _content(url, key, data_dir, {"name": signer, "role": role})
    except (KeyFileError, PageError) as error:
        fail(str(error))
    signature = signed(content, secret)
    page.write_text(html(content, signature), "utf-8")
    page.with_suffix(".json").write_text(document(content, signature), "utf-8")
    _print(content["results"])
    text = (
        f"Wrote {page} and {page.with_suffix('.json')}; SHA-256 of the contents: {signature.sha256}"
    )
    output().print(text, markup=False, highlight=False)
    if content["verdict"] == FAIL:
        raise typer.Exit(1)


def _content(
    url: str | None, key: str | None, folder: Path, signer: dict[str, Any]
) -> dict[str, Any]:
    results = list(_results(url, key, folder))
    return {
        "format": FORMAT,
        "generated_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "signer": signer,
        "software": versions(),
        "machine": f"{platform.system()} {platform.release()}, {platform.machine()}, {platform.node()}",
        "service": None if url is None else _without_credentials(url),
        "files_sha256": record_digest(),
        "results": [asdict(each) for each in results],
        "verdict": FAIL if any(each.verdict == FAIL for each in results) else PASS,
    }


def _without_credentials(url: str) -> str:
    from calibrant.cli.site_validation.service_checks import without_credentials

    return without_credentials(url)


def _results(url: str | None, key: str | None, folder: Path) -> Iterator[Result]:
    with Progress() as progress:
        progress.begin("installation", None)
        yield from installation_results(folder)
        progress.begin("operation", operation.n_steps())
        yield from operation.operation_results(progress.step)
        progress.begin("performance", None)
        yield from performance_results()
        if url is not None:
            progress.begin("service", None)
            with needed_by("Checking a service", "client"):
                import httpx  # noqa: F401
            from calibrant.cli.site_validation.service_checks import service_results

            yield from service_results(url, key)


def _print(results: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("Verdict", "Check", "Expected", "Measured"):
        table.add_column(name)
    for each in results:
        verdict = Text(each["verdict"], style=COLOURS[each["verdict"]])
        table.add_row(verdict, *(Text(each[name]) for name in ("check", "expected", "measured")))
    output().print(table)


def _verify(path: Path, secret: bytes | None) -> None:
    content, signature, page = read(path)
    found = faults(content, signature, secret)
    if page is not None and page != html(content, signature):
        theirs, mine = content.get("software", {}).get("calibrant"), versions()["calibrant"]
        found.append(
            f"The page does not show its contents as calibrant {mine} writes them; it was written by {theirs}."
        )
    if found:
        fail(" ".join(found))
    sentence = "The digest is that of the contents"
    if page is not None:
        sentence += ", and the page shows them"
    sentence += ("." if secret is None else ". They were signed with this key.") + (
        "" if secret is not None else " The signature was not checked: pass --key-file."
    )
    output().print(sentence, markup=False, highlight=False)
