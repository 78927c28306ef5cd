"""Archived reports: a page with the panes that it was computed from, stored once, beyond the retention of the model."""

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from calibrant.quality_report import page
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
from calibrant_server.service.reads.report_pages import PreparedReport, prepared
from calibrant_server.service.reads.report_work import ReportWork, work_of_the_rest
from calibrant_server.service.reads.reports import SUBGROUP, ReportParameters
from calibrant_server.service.reads.response_models import WindowShown
from calibrant_server.service.reads.service import ReadQuery
from calibrant_server.service.version import CODE_VERSION
from calibrant_server.workers.queries.ask import QueryResult, ResultTimeoutError
from calibrant_server.workers.queries.kinds.slice_report import SliceReportQuery
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
from calibrant_server.workers.store.unfinished_reports import UnfinishedReport
from calibrant_server.workers.store.windows import rfc3339

# Of all panes of a report with their results, as the workers send them: a report holds them in memory about five times.
MAX_PANES_BYTES = 17 << 20
MAX_NUMBER = 1_000_000
# The query of a report that reads panes itself: it needs the last days of the window apart.
DRIFT = "drift"
CONTINUES = (
    "The report takes more work than one request may do. What was computed is kept for five minutes; send the same request again, and it "
    "continues with the rest."
)
CHANGED = "The model's settings changed, or one of its predictions was deleted, while its report was computed. Send the same request again."
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


@dataclass(frozen=True)
class MadeReport:
    """A report to archive.

    Attributes
    ----------
    config : the model that it describes
    name : under which what is computed of it is kept until it is archived
    """

    config: ModelConfig
    report: NewReport
    name: str


async def new_report(read: ReadAccess, wanted: ArchivedParameters, by: str) -> MadeReport:
    """Return a report, with the pane that the results of each slice are computed from.

    Parameters
    ----------
    by : who archives it

    Raises
    ------
    AnswerLate
        A further request has to continue, or the model was changed meanwhile.
    BodyTooLarge
        A pane takes too many bytes.
    """
    report = await prepared(read, wanted)
    name, unfinished = _name(report, wanted, by), read.connection.inbox.unfinished_reports
    with engine_errors():
        window = await read.reads.window(report.queries["metrics"])
        earlier = await unfinished.read(report.config, name, window)
    slices = _Slices(report, wanted, earlier)
    try:
        await slices.fill(read)
        with engine_errors():
            drift = await read.reads.result(report.queries[DRIFT], window)
            deleted = await unfinished.n_erased(report.config) != earlier.n_erased
    finally:
        with engine_errors():
            await unfinished.leave(name, slices.left, continues=bool(earlier.versions))
    if deleted or not slices.are_of(await read.config()):
        raise AnswerLate(CHANGED, retry_after_s=ResultTimeoutError.retry_after_s)
    made = await run_in_threadpool(_archived, report, wanted, slices.found, drift, by)
    return MadeReport(report.config, made, name)


class _Slices:
    """What is computed of the slices of a report: the window and its subgroups.

    Attributes
    ----------
    found : the result of each slice, parsed
    left : their states, and those of earlier requests
    """

    def __init__(
        self, report: PreparedReport, wanted: ArchivedParameters, earlier: UnfinishedReport
    ):
        self._report, self._wanted = report, wanted
        self.found: dict[str, Any] = {}
        self._versions = dict(earlier.versions)
        self.left = replace(earlier, versions=self._versions)

    async def fill(self, read: ReadAccess) -> None:
        """Compute each slice, unless it has a cached result of an earlier state; errors as `new_report`."""
        late = AnswerLate(CONTINUES, retry_after_s=ResultTimeoutError.retry_after_s)
        work, n_panes, n_bytes = ReportWork(), self._report.n_panes, 0
        for name, query in _slice_queries(self._report, self._wanted).items():
            is_subgroup = bool(self.found)
            if is_subgroup and not work.has_room_for_a_subgroup(n_panes.get(name, 0)):
                raise late
            with engine_errors():
                result = await read.reads.result(query, self.left.window, self._versions.get(name))
            n_bytes += len(result.body)
            if n_bytes > MAX_PANES_BYTES:
                # One pane never exceeds the bound: those of the window and of some subgroups fit.
                raise BodyTooLarge(
                    _too_many_bytes(len(self.found) - 1, len(self._report.subgroups))
                )
            found = self.found[name] = await run_in_threadpool(orjson.loads, result.body)
            if found["packed"] is None:
                raise BodyTooLarge(_too_large(name, found["n_bytes"]))
            self._versions[name] = result.state_version
            if result.is_new:
                work.add(found["work_ms"], is_subgroup)
        if not work.has_room(work_of_the_rest(n_panes.get(self._wanted.slice or "", 0))):
            raise late

    def are_of(self, config: ModelConfig) -> bool:
        """Whether all of them are of a model with these settings, and so is the report."""
        of = [config.generation, config.revision]
        own = self._report.config
        return of == [own.generation, own.revision] and all(each["of"] == of for each in self.found.values())  # fmt: skip


def _name(report: PreparedReport, wanted: ArchivedParameters, by: str) -> str:
    """Return the name of a report: its model, with its settings, who requests it, and what is requested."""
    config = report.config
    return _digest([config.key, config.generation, config.revision, CODE_VERSION, by, wanted.model_dump(mode="json")])  # fmt: skip


def _digest(made_of: list[Any]) -> str:
    """Return a digest of JSON values."""
    text = orjson.dumps(made_of, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _too_many_bytes(n_fit: int, n_subgroups: int) -> str:
    return (
        f"The panes of the window and of {n_subgroups} subgroups take more than 12 MiB together, those of the window and {n_fit} do not. "
        "Name fewer in subgroups, or archive a shorter window."
    )


def _too_large(name: str, n_bytes: int) -> str:
    return (
        f"The pane of {name or 'all predictions'} takes {n_bytes} bytes; a report has panes of at most 8 MiB. Archive "
        "a shorter window, or one slice."
    )


def _slice_queries(report: PreparedReport, wanted: ArchivedParameters) -> dict[str, ReadQuery]:
    """Return the query of the window, and that of each subgroup, by slice."""
    asked = {name: each.query for name, each in report.queries.items()}
    several = {name: asked[name] for name in ("metrics", "reliability", "temperature")}
    window = replace(report.queries["metrics"], query=SliceReportQuery(**several), shown=())
    return {wanted.slice or "": window} | {
        name: replace(
            window, query=SliceReportQuery(metrics=asked[f"{SUBGROUP}{name}"]), slice=name
        )
        for name in report.subgroups
    }


def _archived(
    report: PreparedReport,
    wanted: ArchivedParameters,
    found: dict[str, Any],
    drift: QueryResult,
    by: str,
) -> NewReport:
    panes = [_pane(name, each) for name, each in found.items()]
    results = {
        **found[wanted.slice or ""]["results"],
        DRIFT: orjson.loads(drift.body),
        **{f"{SUBGROUP}{name}": found[name]["results"]["metrics"] for name in report.subgroups},
    }
    contents = report.contents(results)
    digests = [
        (f"Pane of {each.slice or 'all predictions'}, {found[each.slice]['at']}", each.digest)
        for each in panes
    ]
    contents = replace(contents, versions=[*contents.versions, *digests])
    written = page(contents).encode()
    parameters = wanted.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"note"})
    made_of = [results, parameters, wanted.note, report.map_etag, [each.digest for each in panes]]
    identity = _digest(made_of)
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
        "panes": [_summary(each) for each in panes],
    }
    packed = [{**_summary(each), "pane": found[each.slice]["packed"]} for each in panes]
    return NewReport(identity, summary, written, orjson.dumps({"panes": packed}))


def _summary(pane: ArchivedPane) -> PaneSummary:
    return {
        "slice": pane.slice,
        "digest": pane.digest,
        "sha256": pane.sha256,
        "bytes": pane.bytes,
    }


def _pane(name: str, found: dict[str, Any]) -> ArchivedPane:
    packed = base64.b64decode(found["packed"])
    digest = hashlib.sha256(packed).hexdigest()
    return ArchivedPane(slice=name, digest=found["digest"], sha256=digest, bytes=len(packed))
