"""Errors of the engine as problems: each class once, with the problem that a client receives.

They are raised where they happen and pass through routes as they are; handlers of the app turn them into documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from redis.exceptions import RedisError

from calibrant.core.errors import Violation
from calibrant_server.service.http import problems
from calibrant_server.service.http.problems import Problem, StoreUnavailable
from calibrant_server.workers.ingest import inbox_errors as ingest
from calibrant_server.workers.queries import ask
from calibrant_server.workers.store import event_halves, frozen_maps, registry, report_archive
from calibrant_server.workers.store.file_store import FilesUnavailable

STORE_FULL = (
    "The store's memory is full, so it accepts no batch. Nothing of the request was written. Reads and deletions are served, "
    "and waiting batches are merged."
)
OTHER_VERSION = "The workers are of another version, which does not compute this result. Send the request again when the upgrade is complete."
SAME_CONTENT = "Received other content under a batch id that was used before. Use another id."
SETTINGS = {"n_classes": "classes", "label_names": "classes", "pane_s": "pane"}


def _offsets(error: ingest.OffsetMismatchError) -> Problem:
    rule = "offset_gap" if error.is_gap else "offset_overlap"
    detail = f"R{str(error)[1:]}."
    found = [Violation("/offsets", rule, detail)]
    return problems.OffsetConflict(detail, errors=found, watermark=error.watermark)


def _unavailable(error: Exception) -> Problem:
    """Return the problem of a store that cannot be reached, or that rejected the request."""
    found = error if isinstance(error, ingest.StoreUnavailableError) else ingest.unavailable(error)
    if isinstance(found, ingest.StoreFullError):
        return StoreUnavailable(STORE_FULL, retry_after_s=found.retry_after_s)
    detail = f"T{str(found)[1:]}." if isinstance(found, ingest.StoreRejectedError) else None
    return StoreUnavailable(detail, retry_after_s=found.retry_after_s)


def _damage(pane: dict[str, str]) -> Violation:
    """Name a damaged pane by its slice and window."""
    name = f" of slice {pane['slice']}" if pane["slice"] else ""
    detail = f"The pane from {pane['from']} to {pane['to']}{name} cannot be read: {pane['error']}."
    return Violation("/window", "damaged_pane", detail)


def _fixed(error: registry.FixedProperty) -> Problem:
    """Return the conflict of a change that would make panes that cannot be added up."""
    names = [SETTINGS.get(name, name) for name in error.names]
    text = "Received another value; expected the present one."
    detail = f"Received other values of {', '.join(names)}, which cannot change once a model exists. Delete the model, or use another id."
    return problems.ModelConflict(
        detail, errors=[Violation(f"/{name}", "fixed", text) for name in names]
    )


# A class stands for those that derive from it, unless they are listed too.
PROBLEM_OF: Mapping[type[Exception], Callable[[Any], Problem]] = {
    ingest.BatchConflictError: lambda error: problems.BatchConflict(
        errors=[Violation("/batch_id", "same_content", SAME_CONTENT)]
    ),
    ingest.OffsetMismatchError: _offsets,
    ingest.SourcesFullError: lambda error: problems.QuotaFull(
        f"There is no room: {error}.", retry_after_s=error.retry_after_s
    ),
    ingest.ModelMismatchError: lambda error: problems.ModelConflict(
        f"The request was not carried out: {error}."
    ),
    ingest.ModelGoneError: lambda error: problems.ModelDeleted(),
    ingest.UnknownBatchError: lambda error: problems.BatchUnknown(),
    ingest.BacklogFullError: lambda error: problems.BacklogFull(retry_after_s=error.retry_after_s),
    ingest.IdsFullError: lambda error: problems.IdsFull(retry_after_s=error.retry_after_s),
    ingest.RecordsFullError: lambda error: problems.RecordsFull(
        f"There is no room: {error}", retry_after_s=error.retry_after_s
    ),
    ingest.StoreUnavailableError: _unavailable,
    RedisError: _unavailable,
    FilesUnavailable: lambda error: StoreUnavailable(
        f"A part of the window cannot be read now: {error}.", retry_after_s=error.retry_after_s
    ),
    ask.SubjectGone: lambda error: problems.ModelUnknown(f"The query has no result: {error}."),
    ask.WindowDamaged: lambda error: problems.PaneDamaged(errors=map(_damage, error.panes)),
    ask.ResultTimeoutError: lambda error: problems.AnswerLate(),
    ask.UnknownQueryError: lambda error: problems.AnswerLate(OTHER_VERSION),
    event_halves.HalfTooLarge: lambda error: problems.BodyTooLarge(
        f"Received to join with the other event {error}. Name units and slices by headers instead of inputs."
    ),
    event_halves.HalvesFull: lambda error: problems.BacklogFull(
        "Too many events wait for their request or response. Send this event again later.",
        retry_after_s=error.retry_after_s,
    ),
    frozen_maps.NoSuchMap: lambda error: problems.MapUnknown(
        f"The model has no map version {error.args[0]}."
    ),
    frozen_maps.NoSuchModel: lambda error: problems.ModelUnknown(),
    frozen_maps.NoRoom: lambda error: problems.MapsFull(),
    frozen_maps.PromotionConflict: lambda error: problems.PreconditionFailed(
        "Another map was promoted meanwhile. Read the current map again, and send its ETag in If-Match."
    ),
    report_archive.NoSuchReport: lambda error: problems.ReportUnknown(
        f"The model has no archived report {error.args[0]}."
    ),
    registry.HalfImported: lambda error: problems.ImportUnfinished(),
    registry.HasReports: lambda error: problems.ReportsArchived(
        f"The model has {error.n_reports} archived reports, which its deletion would remove. Download them, then delete it with "
        "reports=delete."
    ),
    registry.RevisionConflict: lambda error: (
        problems.ModelUnknown() if error.current is None else problems.PreconditionFailed()
    ),
    registry.FixedProperty: _fixed,
}
ENGINE_ERRORS = tuple(PROBLEM_OF)


def problem_of_engine(error: BaseException | None) -> Problem | None:
    """Return the problem of an error of the engine; None for another error."""
    kinds = (each for each in type(error).__mro__ if each in PROBLEM_OF)
    found = next(kinds, None)
    return None if found is None else PROBLEM_OF[found](error)


class engine_errors:
    """Translate errors of the engine into problems, in a `with` block whose surroundings handle problems."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        problem = problem_of_engine(error)
        if problem is not None:
            raise problem from error
