"""Archived reports: a page with the panes that it was computed from, stored once, beyond the retention of the model."""

import base64
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from calibrant.quality_report import ReportContents
from calibrant_server.service.engine import engine_errors
from calibrant_server.service.http.errors import (
    AnswerLate,
    ArchiveFull,
    BodyTooLarge,
    ModelUnknown,
    ReportsArchived,
    ReportUnknown,
)
from calibrant_server.service.http.lists import ListPage
from calibrant_server.service.reads.dependencies import ReadAccess
from calibrant_server.service.reads.estimates import WindowShown
from calibrant_server.service.reads.report_pages import PreparedReport, prepared
from calibrant_server.service.reads.report_work import (
    ReportWork,
    UnfinishedReports,
    work_of_drift,
    work_of_panes,
)
from calibrant_server.service.reads.reports import SUBGROUP, ReportParameters
from calibrant_server.service.reads.service import ReadQuery
from calibrant_server.workers.queries.ask import QueryResult, ResultUnfinishedError
from calibrant_server.workers.queries.kinds.window_pane import WindowPaneQuery
from calibrant_server.workers.store.frozen_maps import NoSuchModel
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import HasReports
from calibrant_server.workers.store.report_archive import (
    MAX_REPORTS,
    ArchiveIsFull,
    NewReport,
    NoSuchReport,
    PaneSummary,
    ReportSummary,
)
from calibrant_server.workers.store.windows import rfc3339

Write = Callable[[ReportContents], tuple[bytes, bytes]]
# State that changes between results and panes is read again, with the model's settings: it may be another model by then.
ATTEMPTS = 5
# Of all panes of a report, as the workers send them: a report holds them in memory about five times.
MAX_PANES_BYTES = 16 << 20
MAX_NUMBER = 1_000_000
# The query of a report that reads panes of its own: it needs the last days of the window apart.
DRIFT = "drift"
CONTINUES = (
    "The report reads more panes than one request may. What was computed is stored for some minutes; send the same request again, and it "
    "continues with the rest."
)
CHANGED = (
    "The model's state changed while its results and panes were read, which are of one state. Send the same request again, or end the window "
    "before now (`to`), so that only late labels change it."
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


class ArchivedPane(BaseModel):
    """A pane of a report: the merge of its window."""

    slice: str = Field(description="Name of the slice; empty for all predictions.")
    digest: str = Field(description="Digest of the content of the pane: `Pane.digest()`.")
    sha256: str = Field(description="SHA-256 of the packed pane.")
    bytes: int


class ArchivedReport(BaseModel):
    """An archived report, without its page and its panes."""

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
    pdf_sha256: str | None = Field(
        description="SHA-256 of the PDF; null if the service wrote none then."
    )
    panes: list[ArchivedPane]
    stored_bytes: int


class ReportsResponse(ListPage):
    """A page of archived reports, oldest first."""

    model: str
    reports: list[ArchivedReport]


@contextmanager
def report_errors() -> Iterator[None]:
    """Translate the errors of the archive."""
    try:
        yield
    except NoSuchReport as error:
        raise ReportUnknown(f"The model has no archived report {error.args[0]}.") from error
    except NoSuchModel as error:
        raise ModelUnknown() from error
    except ArchiveIsFull as error:
        raise ArchiveFull(
            f"The archive of the model has {error.args[0]} bytes; at most {MAX_REPORTS} reports and CALIBRANT_ARCHIVE_BYTES fit. "
            "Reports are never removed: ask the operator to raise the limit."
        ) from error


@contextmanager
def reports_kept(config: ModelConfig) -> Iterator[None]:
    """Translate the rejection of a deletion that would remove archived reports."""
    try:
        yield
    except HasReports as error:
        raise ReportsArchived(
            f"The model {config.model!r} has {error.n_reports} archived reports, which its deletion would remove. Download them, then "
            "delete it with reports=delete."
        ) from error


async def new_report(
    read: ReadAccess, wanted: ArchivedParameters, by: str, write: Write
) -> tuple[ModelConfig, NewReport]:
    """Return the report of the current state, with the panes of that state, and the model that it describes.

    Parameters
    ----------
    by : who archives it
    write : returns the page and the PDF of contents

    Raises
    ------
    AnswerLate
        The state changes too often, or a further request has to continue.
    BodyTooLarge
        A pane takes too many bytes.
    """
    work = ReportWork()
    for _ in range(ATTEMPTS):
        done = work.done
        report = await prepared(read, wanted)
        results, panes = await _results_and_panes(read, report, wanted, work)
        if _states(results, report) == _states(panes, report):
            made = await run_in_threadpool(
                _archived, report, wanted, _parsed(results), _parsed(panes), by, write
            )
            return report.config, made
        if not work.has_room_again(work.done - done):
            break
    raise AnswerLate(CHANGED, retry_after_s=ResultUnfinishedError.retry_after_s)


async def _results_and_panes(
    read: ReadAccess, report: PreparedReport, wanted: ArchivedParameters, work: ReportWork
) -> tuple[dict[str, QueryResult], dict[str, QueryResult]]:
    """Return the results of a report by query, and its panes by slice.

    The pane of a slice comes first: the worker keeps it for the results of this slice, and no longer.

    Raises
    ------
    BodyTooLarge
        The panes together take too many bytes.
    """
    unfinished = read.reads.unfinished_reports
    name = _name(report, wanted)
    results: dict[str, QueryResult] = {}
    panes: dict[str, QueryResult] = {}
    for slice_, query in _pane_queries(report, wanted).items():
        units = work_of_panes(report.n_panes.get(slice_, 0))
        if not work.has_room(units):
            raise _left(unfinished, name, panes)
        panes |= await _results(read, {slice_: query})
        if sum(len(each.body) for each in panes.values()) > MAX_PANES_BYTES:
            # One pane never exceeds the bound: those of the window and of some subgroups fit.
            raise BodyTooLarge(_too_many_bytes(len(panes) - 2, len(report.subgroups)))
        if len(panes) == 1:
            work.is_bounded = unfinished.continues(name, panes[slice_].state_version)
        work.charge(panes[slice_], units)
        results |= await _results(read, _queries_of(report, slice_))
    if not work.has_room(work_of_drift(report.n_panes.get(wanted.slice or "", 0))):
        raise _left(unfinished, name, panes)
    return results | await _results(read, {DRIFT: report.queries[DRIFT]}), panes


def _left(unfinished: UnfinishedReports, name: bytes, panes: dict[str, QueryResult]) -> AnswerLate:
    """Remember that a further request has to continue, and return the error that says so."""
    unfinished.leave(name, next(iter(panes.values())).state_version)
    return AnswerLate(CONTINUES, retry_after_s=ResultUnfinishedError.retry_after_s)


def _name(report: PreparedReport, wanted: ArchivedParameters) -> bytes:
    """Return the name of a report: its model and what is requested."""
    config = report.config
    sent = wanted.model_dump(mode="json", exclude={"note"})
    return orjson.dumps([config.key, config.generation, sent], option=orjson.OPT_SORT_KEYS)


def _too_many_bytes(n_fit: int, n_subgroups: int) -> str:
    return (
        f"The panes of the window and of {n_subgroups} subgroups take more than 12 MiB together, those of the window and {n_fit} do not. "
        "Name fewer in subgroups, or archive a shorter window."
    )


def _queries_of(report: PreparedReport, slice_: str) -> dict[str, ReadQuery]:
    """Return the queries of a subgroup, or of the window those that the pane answers."""
    name = f"{SUBGROUP}{slice_}"
    if name in report.queries:
        return {name: report.queries[name]}
    others = report.queries.items()
    return {name: each for name, each in others if name != DRIFT and not name.startswith(SUBGROUP)}


async def _results(read: ReadAccess, queries: dict[str, ReadQuery]) -> dict[str, QueryResult]:
    with engine_errors():
        return {name: await read.reads.result(each) for name, each in queries.items()}


def _parsed(results: dict[str, QueryResult]) -> dict[str, Any]:
    return {name: orjson.loads(each.body) for name, each in results.items()}


def _pane_queries(report: PreparedReport, wanted: ArchivedParameters) -> dict[str, ReadQuery]:
    """Return a query of the pane of the window, and of that of each subgroup, by slice."""
    plain = replace(report.queries["metrics"], query=WindowPaneQuery(), shown=())
    return {wanted.slice or "": plain} | {name: replace(plain, slice=name) for name in report.subgroups}  # fmt: skip


def _states(results: dict[str, QueryResult], report: PreparedReport) -> list[str]:
    """Return the state versions of the window and of each subgroup."""
    first = results.get("metrics") or next(iter(results.values()))
    named = [results.get(f"{SUBGROUP}{name}") or results[name] for name in report.subgroups]
    return [each.state_version for each in (first, *named)]


def _archived(
    report: PreparedReport,
    wanted: ArchivedParameters,
    results: dict[str, Any],
    panes: dict[str, Any],
    by: str,
    write: Write,
) -> NewReport:
    listed = [_pane(name, each) for name, each in panes.items()]
    contents = report.contents(results)
    digests = [(f"Pane of {each.slice or 'all predictions'}", each.digest) for each in listed]
    contents = replace(contents, versions=[*contents.versions, *digests])
    page, document = write(contents)
    parameters = wanted.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"note"})
    made_of = [results, parameters, wanted.note, report.map_etag, [each.digest for each in listed]]
    identity = hashlib.blake2b(orjson.dumps(made_of, option=orjson.OPT_SORT_KEYS), digest_size=16)
    summary: ReportSummary = {
        "model": report.config.model,
        "created_at": rfc3339(datetime.now(UTC)),
        "created_by": by,
        "note": wanted.note,
        "window": results["metrics"]["window"],
        "slice": wanted.slice,
        "parameters": parameters,
        "state_version": results["metrics"]["state_version"],
        "sha256": hashlib.sha256(page).hexdigest(),
        "pdf_sha256": hashlib.sha256(document).hexdigest(),
        "panes": [_summary(each) for each in listed],
    }
    packed = [{**_summary(each), "pane": panes[each.slice]["packed"]} for each in listed]
    return NewReport(identity.hexdigest(), summary, page, orjson.dumps({"panes": packed}), document)


def _summary(pane: ArchivedPane) -> PaneSummary:
    return {
        "slice": pane.slice,
        "digest": pane.digest,
        "sha256": pane.sha256,
        "bytes": pane.bytes,
    }


def _pane(name: str, found: dict[str, Any]) -> ArchivedPane:
    if found["packed"] is None:
        raise BodyTooLarge(
            f"The pane of {name or 'all predictions'} takes {found['n_bytes']} bytes; a report has panes of at most 8 MiB. Archive "
            "a shorter window, or one slice."
        )
    packed = base64.b64decode(found["packed"])
    digest = hashlib.sha256(packed).hexdigest()
    return ArchivedPane(slice=name, digest=found["digest"], sha256=digest, bytes=len(packed))
