"""Archived reports: a page with its results, stored once, beyond the retention of the model."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from calibrant.quality_report import page
from calibrant_server.service.http.lists import ListPage
from calibrant_server.service.http.problems import (
    AnswerLate,
    ArchiveFull,
)
from calibrant_server.service.reads.operations import Access
from calibrant_server.service.reads.report_pages import PreparedReport, prepared
from calibrant_server.service.reads.reports import SERIES, ReportParameters
from calibrant_server.service.reads.representations import WindowShown
from calibrant_server.workers.queries.ask import ResultTimeoutError
from calibrant_server.workers.store.frozen_maps import NoRoom
from calibrant_server.workers.store.report_archive import (
    MAX_REPORTS,
    NewReport,
    ReportSummary,
    StoredReport,
)
from calibrant_server.workers.store.windows import rfc3339

MAX_NUMBER = 1_000_000
CHANGED = (
    "The settings of the model changed while its report was computed. Send the same request again."
)
ReportNumber = Annotated[int, Path(ge=1, le=MAX_NUMBER, description="Number of the report.")]


class DeletionQuery(BaseModel):
    """What is deleted with a model."""

    model_config = ConfigDict(extra="forbid")

    reports: Literal["delete"] | None = Field(
        None, description="`delete`: also the archived reports. Default: a model with some is kept."
    )


class ArchivedParameters(ReportParameters):
    """The report to archive: parameters of `GET report`, and a note."""

    note: str | None = Field(None, max_length=2000, description="Why the report is archived.")


class ArchivedReport(BaseModel):
    """An archived report, without its page and its results."""

    report: int
    model: str
    created_at: str
    created_by: str
    note: str | None
    window: WindowShown
    slice: str | None
    parameters: dict[str, Any]
    state_version: str
    sha256: str = Field(description="SHA-256 of the page.")
    results_sha256: str | None = Field(
        None,
        description="SHA-256 of the results; null if an earlier version archived it without them.",
    )
    stored_bytes: int


class ReportsResponse(ListPage):
    """A page of archived reports, oldest first."""

    model: str
    reports: list[ArchivedReport]


async def archived(read: Access, wanted: ArchivedParameters, by: str) -> tuple[StoredReport, bool]:
    """Archive the report of a model; return what lists show of it, and whether it is new.

    Parameters
    ----------
    by : who requests it

    Raises
    ------
    AnswerLate
        The settings of the model changed while its report was computed.
    ArchiveFull
    """
    report = await prepared(read, wanted)
    results = await _results(read, report)
    if await read.config() != report.config:
        raise AnswerLate(CHANGED, retry_after_s=ResultTimeoutError.retry_after_s)
    made = await run_in_threadpool(_made, report, wanted, results, by)
    archive, max_bytes = (
        read.connection.inbox.reports,
        read.request.app.state.settings.archive_bytes,
    )
    try:
        number, is_new = await archive.add(report.config, made, max_bytes)
    except NoRoom as error:
        raise ArchiveFull(
            f"The archive of the model has {error.args[0]} bytes; at most {MAX_REPORTS} reports and CALIBRANT_ARCHIVE_BYTES fit. "
            "Reports are never removed: ask the operator to raise the limit."
        ) from error
    return await archive.summary(report.config, number), is_new


async def _results(read: Access, report: PreparedReport) -> dict[str, Any]:
    """Return the results of a report, all of one window; the metrics over time have one with a start."""
    results: dict[str, Any] = {}
    window = await read.reads.window(report.queries["metrics"])
    for name, query in report.queries.items():
        own = None if name == SERIES else window
        results[name] = orjson.loads((await read.reads.result(query, own)).body)
    return results


def _made(
    report: PreparedReport, wanted: ArchivedParameters, results: dict[str, Any], by: str
) -> NewReport:
    """Return the report as it is stored: its page, its results, their digests, and the summary."""
    stored = orjson.dumps(results, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(stored).hexdigest()
    contents = report.contents(results)
    contents = replace(contents, versions=[*contents.versions, ("SHA-256 of the results", digest)])
    written = page(contents).encode()
    parameters = wanted.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"note"})
    summary: ReportSummary = {
        "model": report.config.model,
        "created_at": rfc3339(datetime.now(UTC)),
        "created_by": by,
        "note": wanted.note,
        "window": results["metrics"]["window"],
        "slice": wanted.slice,
        "parameters": parameters,
        "state_version": results["metrics"]["state_version"],
        "sha256": hashlib.sha256(written).hexdigest(),
        "results_sha256": digest,
    }
    identity = _digest([digest, parameters, wanted.note, report.map_etag])
    return NewReport(identity, summary, written, stored)


def _digest(made_of: list[Any]) -> str:
    """Return a digest of JSON values."""
    text = orjson.dumps(made_of, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=16).hexdigest()
