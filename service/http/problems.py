"""Every error that a client can receive: one class per problem, status on the class, docstring as message; and their bases.

The slug is the class name in kebab case; `type` is the page `/v1/problems/{slug}`. Problems are raised
where they are detected. `service/http/problem_responses.py` is the one place that turns them into
`application/problem+json` (RFC 9457).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from calibrant.core.errors import Violation

# The same request, sent again, may succeed without a change by the client.
RETRYABLE = frozenset({429, 503})
PROBLEMS: dict[str, type[Problem]] = {}


def escaped(part: object) -> str:
    """Return a part of a JSON Pointer (RFC 6901)."""
    return str(part).replace("~", "~0").replace("/", "~1")


def _words(name: str) -> list[str]:
    return re.findall(r"[A-Z][a-z]*", name)


class Problem(Exception):
    """Base of all problems."""

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "problem"
    title: ClassVar[str] = "Problem"

    def __init_subclass__(cls, *, status: int | None = None, family: bool = False) -> None:
        cls.status = cls.status if status is None else status
        if family:
            return
        words = _words(cls.__name__)
        cls.slug = "-".join(words).lower()
        cls.title = " ".join(words).capitalize()
        PROBLEMS[cls.slug] = cls

    def __init__(
        self,
        detail: str | None = None,
        *,
        errors: Iterable[Violation] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.detail = detail or self.message()
        self.errors = list(errors)
        self.headers = dict(headers or {})
        super().__init__(self.detail)

    @classmethod
    def message(cls) -> str:
        """Return the docstring on one line: what the problem means and what to do."""
        return " ".join((cls.__doc__ or "").split())

    def body(self, instance: str, request_id: str | None = None) -> dict[str, Any]:
        """Return the members of the problem document for the request at `instance`."""
        return {
            "type": f"/v1/problems/{self.slug}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "request_id": request_id,
            "retryable": self.status in RETRYABLE,
            "errors": [
                {"pointer": e.pointer, "rule": e.rule, "detail": e.detail} for e in self.errors
            ],
        }


class ProblemError(BaseModel):
    """One violated rule."""

    pointer: str = Field(
        description="JSON Pointer of the value; in NDJSON it begins with the line."
    )
    rule: str = Field(description="A stable code of the rule.")
    detail: str = Field(description="What was received, what was expected and what to do.")


class ProblemDocument(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="Path of the page that explains the problem.")
    title: str
    status: int
    detail: str
    instance: str = Field(description="Path of the request.")
    request_id: str | None = Field(
        description="Id of the request in the log, also in the header X-Request-Id."
    )
    retryable: bool = Field(
        description="Whether the same request may succeed later; Retry-After states when to repeat it."
    )
    errors: list[ProblemError] = Field([], description="The violations, where there are any.")


class KeyProblem(Problem, status=401, family=True):
    """The request has no valid key; the header WWW-Authenticate asks for one."""

    challenge: ClassVar[str] = 'Bearer realm="calibrant"'

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": self.challenge})


class RetryLater(Problem, status=503, family=True):
    """The request was not handled; the header Retry-After gives the time to wait before sending it again."""

    def __init__(self, detail: str | None = None, *, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = max(1, int(-(-retry_after_s // 1)))
        super().__init__(detail, headers={"Retry-After": str(self.retry_after_s)})


class MalformedBody(Problem, status=400):
    """The request body is not well-formed in the format that its Content-Type names."""


class MalformedRequest(Problem, status=400):
    """A header of the request is invalid."""


class KeyRequired(KeyProblem):
    """This service requires a key: send the header `Authorization: Bearer <key>`."""


class KeyUnknown(KeyProblem):
    """The key in the header Authorization is unknown: send a key that this service has configured."""

    challenge = 'Bearer realm="calibrant", error="invalid_token"'


class ScopeMissing(Problem, status=403):
    """The key has none of the scopes that this operation requires: use a key with one of them."""


class KeysNotConfigured(Problem, status=403):
    """No keys are configured, so the service accepts requests from this machine only: configure keys first."""


class KeyLimitedToModels(Problem, status=403):
    """The key is limited to some models, and this operation concerns all of them: use a key without this limit."""


class PathRemoved(Problem, status=410):
    """An earlier version served this path. The detail says what to use instead."""


class PathUnknown(Problem, status=404):
    """No operation exists at this path; the API document lists all paths."""


class ModelUnknown(Problem, status=404):
    """There is no model with this id, or your key does not have it."""


class BatchUnknown(Problem, status=404):
    """There is no batch with this id: it was never sent, or its record has expired."""


class BaselineUnknown(Problem, status=404):
    """The model has no baseline with this name."""


class EventUnknown(Problem, status=404):
    """The model has no event with this id."""


class DeadLetterUnknown(Problem, status=404):
    """The model has no dead letter or parked entry of this id: it was replayed or discarded before, or never existed."""


class AlarmUnknown(Problem, status=404):
    """There is no alarm with this id, or your key does not have its model."""


class KeyIdUnknown(Problem, status=404):
    """There is no key with this id among the keys of your tenant."""


class MapUnknown(Problem, status=404):
    """The model has no calibration map with this version, or no version was promoted yet."""


class MethodNotAllowed(Problem, status=405):
    """This path does not support this method; the header Allow lists the supported ones."""


class NotAcceptable(Problem, status=406):
    """This operation cannot produce any of the media types in the header Accept."""


class BatchConflict(Problem, status=409):
    """This batch id was used before with different content; send new content under a new id."""


class OffsetConflict(Problem, status=409):
    """The batch does not follow the messages of its source that were accepted before; `watermark` is where to continue."""

    def __init__(self, detail: str, *, errors: Iterable[Violation], watermark: int) -> None:
        super().__init__(detail, errors=errors)
        self.watermark = watermark

    def body(self, instance: str, request_id: str | None = None) -> dict[str, Any]:
        """Return the members of the problem document."""
        return super().body(instance, request_id) | {"watermark": self.watermark}


class ModelConflict(Problem, status=409):
    """The request contradicts the definition of the model."""


class ImportUnfinished(Problem, status=409):
    """An import of this model is unfinished: send the same import again to continue, or delete the model."""


class ModelDeleted(Problem, status=409):
    """The model was deleted while the request waited; no data of the request are stored."""


class BaselineConflict(Problem, status=409):
    """Baselines cannot be changed: this name has another window, or the maximum number of baselines is reached."""


class AlarmClosed(Problem, status=409):
    """The alarm is closed: another map, other settings or a later alarm replaced it."""


class MapNotBetter(Problem, status=409):
    """This version was not shown to be better than the current one; send `override: true` to promote it anyway."""


class ObserveOnly(Problem, status=409):
    """The model or the service is in observe mode: maps are advice, and none is promoted or applied."""


class KeyConfigured(Problem, status=409):
    """The key is in the keys file or in CALIBRANT_KEYS: remove it there; the service rereads the file."""


class WebhooksMissing(Problem, status=409):
    """The model's alarm has no webhooks: declare them in its settings first."""


class MapsFull(Problem, status=409):
    """The model has the maximum number of map versions; the service never deletes versions."""


class ReportUnknown(Problem, status=404):
    """The model has no archived report with this number: list its reports."""


class ArchiveFull(Problem, status=409):
    """The archive of the model is full: download its reports, or ask the operator to raise CALIBRANT_ARCHIVE_BYTES."""


class ReportsArchived(Problem, status=409):
    """The model has archived reports, which its deletion would remove: download them, then delete it with `reports=delete`."""


class PreconditionFailed(Problem, status=412):
    """The model is not in the state that If-Match or If-None-Match requires; read it again first."""


class BodyTooLarge(Problem, status=413):
    """The request body is larger than the limit; send it in several batches."""


class MediaTypeUnsupported(Problem, status=415):
    """This operation does not support the Content-Type of the request body."""


class CodingUnsupported(Problem, status=415):
    """The service does not support the Content-Encoding of the request body."""


class InvalidInput(Problem, status=422):
    """The request body is well-formed, but its content violates a rule; nothing was stored."""


class InvalidQuery(Problem, status=422):
    """A query parameter is unknown or has an invalid value."""


class InvalidName(Problem, status=422):
    """An id violates the rule for ids: 1 to 128 of the characters A-Za-z0-9._:@-, and neither . nor .."""


class PreconditionRequired(Problem, status=428):
    """A change of an existing model requires If-Match with the ETag of the version that it changes, or `*` for any version."""


class BacklogFull(RetryLater, status=429):
    """Batches arrive faster than they are merged; the backlog of this model's partition is full."""


class IdsFull(RetryLater, status=429):
    """The service stores the maximum number of batch ids; ids are never removed before they expire."""


class RateExceeded(RetryLater, status=429):
    """Your tenant or key sends more requests per second than its limit; the header RateLimit-Policy states it."""


class QuotaFull(RetryLater, status=429):
    """Your tenant has reached a limit of this service: remove what is not needed, or ask the operator for a larger limit."""


class RecordsFull(RetryLater, status=429):
    """The service retains the maximum number of predictions by id; none is removed before its retention ends."""


class PaneDamaged(Problem, status=500):
    """Stored panes of the window are damaged, so it has no result: `errors` names each pane. Request windows before and after
    them, restore them from a copy, or wait until retention drops them.
    """


class InternalError(Problem, status=500):
    """The service failed unexpectedly; the request is not the cause."""


class Saturated(RetryLater, status=503):
    """The service holds the maximum amount of request bodies in memory."""


class StoreUnavailable(RetryLater):
    """The store is unavailable; a batch can be sent again safely under the same id."""


class AnswerLate(RetryLater):
    """The workers did not respond in time; the same request may be faster the next time."""
