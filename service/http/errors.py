"""Every error that a client can receive: one class per problem, status on the class, docstring as message.

    Problem
      400  MalformedBody, MalformedRequest
      403  ScopeMissing, KeysNotConfigured, KeyLimitedToModels
      404  PathUnknown, ModelUnknown, BatchUnknown, BaselineUnknown, DeadLetterUnknown, EventUnknown, AlarmUnknown,
           MapUnknown, KeyIdUnknown, ReportUnknown
      405  MethodNotAllowed
      406  NotAcceptable
      408  BodyTooSlow
      409  BatchConflict, OffsetConflict, ModelConflict, BaselineConflict, ModelDeleted, ImportUnfinished,
           AlarmClosed, MapNotBetter, ObserveOnly,
           MapsFull, WebhooksMissing, KeyConfigured, ArchiveFull, ReportsArchived
      410  PathRemoved
      412  PreconditionFailed
      413  BodyTooLarge
      415  MediaTypeUnsupported, CodingUnsupported
      422  InvalidInput, InvalidQuery, InvalidName
      428  PreconditionRequired
      500  InternalError, PaneDamaged
      KeyProblem
        401  KeyRequired, KeyUnknown
      RetryLater
        429  BacklogFull, IdsFull, RecordsFull, QuotaFull, RateExceeded
        503  Saturated, StoreUnavailable, AnswerLate

The slug is the class name in kebab case; `type` is the page `/v1/problems/{slug}`. Problems are raised
where they are detected. `service/http/problem_responses.py` is the one place that turns them into
`application/problem+json` (RFC 9457).
"""

from collections.abc import Iterable
from typing import Any

from calibrant.core.errors import Violation
from calibrant_server.service.http.problem import PROBLEMS as PROBLEMS
from calibrant_server.service.http.problem import KeyProblem, Problem, RetryLater


class MalformedBody(Problem):
    """The request body is not well-formed in the format that its Content-Type names."""

    status = 400


class MalformedRequest(Problem):
    """A header of the request is invalid."""

    status = 400


class KeyRequired(KeyProblem):
    """This service requires a key: send the header `Authorization: Bearer <key>`."""


class KeyUnknown(KeyProblem):
    """The key in the header Authorization is unknown: send a key that this service has configured."""

    challenge = 'Bearer realm="calibrant", error="invalid_token"'


class ScopeMissing(Problem):
    """The key has none of the scopes that this operation requires: use a key with one of them."""

    status = 403


class KeysNotConfigured(Problem):
    """No keys are configured, so the service accepts requests from this machine only: configure keys first."""

    status = 403


class KeyLimitedToModels(Problem):
    """The key is limited to some models, and this operation concerns all of them: use a key without this limit."""

    status = 403


class PathRemoved(Problem):
    """An earlier version served this path. The detail says what to use instead."""

    status = 410


class PathUnknown(Problem):
    """No operation exists at this path; the API document lists all paths."""

    status = 404


class ModelUnknown(Problem):
    """There is no model with this id among the models of your key."""

    status = 404


class BatchUnknown(Problem):
    """There is no batch with this id: it was never sent, or its record has expired."""

    status = 404


class BaselineUnknown(Problem):
    """The model has no baseline with this name."""

    status = 404


class EventUnknown(Problem):
    """The model has no event with this id."""

    status = 404


class DeadLetterUnknown(Problem):
    """The model has no dead letter or parked entry of this id: it was replayed or discarded before, or never existed."""

    status = 404


class AlarmUnknown(Problem):
    """There is no alarm with this id among the models of your key."""

    status = 404


class KeyIdUnknown(Problem):
    """There is no key with this id among the keys of your tenant."""

    status = 404


class MapUnknown(Problem):
    """The model has no calibration map with this version, or no version was promoted yet."""

    status = 404


class MethodNotAllowed(Problem):
    """This path does not support this method; the header Allow lists the supported ones."""

    status = 405


class NotAcceptable(Problem):
    """This operation cannot produce any of the media types in the header Accept."""

    status = 406


class BodyTooSlow(Problem):
    """The request body did not arrive within the time limit; send it faster or in smaller batches."""

    status = 408


class BatchConflict(Problem):
    """This batch id was used before with different content; send new content under a new id."""

    status = 409


class OffsetConflict(Problem):
    """The batch does not follow the messages of its source that were accepted before; `watermark` is where to continue."""

    status = 409

    def __init__(self, detail: str, *, errors: Iterable[Violation], watermark: int) -> None:
        super().__init__(detail, errors=errors)
        self.watermark = watermark

    def body(self, instance: str, request_id: str | None = None) -> dict[str, Any]:
        """Return the members of the problem document."""
        return super().body(instance, request_id) | {"watermark": self.watermark}


class ModelConflict(Problem):
    """The request contradicts the definition of the model."""

    status = 409


class ImportUnfinished(Problem):
    """An import of this model is unfinished: send the same import again to continue, or delete the model."""

    status = 409


class ModelDeleted(Problem):
    """The model was deleted while the request waited; no data of the request are stored."""

    status = 409


class BaselineConflict(Problem):
    """Baselines cannot be changed: this name has another window, or the maximum number of baselines is reached."""

    status = 409


class AlarmClosed(Problem):
    """The alarm is closed: another map, other settings or a later alarm replaced it."""

    status = 409


class MapNotBetter(Problem):
    """This version was not shown to be better than the current one; send `override: true` to promote it anyway."""

    status = 409


class ObserveOnly(Problem):
    """The model or the service is in observe mode: maps are advice, and none is promoted or applied."""

    status = 409


class KeyConfigured(Problem):
    """The key is in the keys file or in CALIBRANT_KEYS: remove it there; the service rereads the file."""

    status = 409


class WebhooksMissing(Problem):
    """The model's alarm has no webhooks: declare them in its settings first."""

    status = 409


class MapsFull(Problem):
    """The model has the maximum number of map versions; the service never deletes versions."""

    status = 409


class ReportUnknown(Problem):
    """The model has no archived report with this number: list its reports."""

    status = 404


class ArchiveFull(Problem):
    """The archive of the model is full: download its reports, or ask the operator to raise CALIBRANT_ARCHIVE_BYTES."""

    status = 409


class ReportsArchived(Problem):
    """The model has archived reports, which its deletion would remove: download them, then delete it with `reports=delete`."""

    status = 409


class PreconditionFailed(Problem):
    """The model is not in the state that If-Match or If-None-Match requires; read it again first."""

    status = 412


class BodyTooLarge(Problem):
    """The request body is larger than the limit; send it in several batches."""

    status = 413


class MediaTypeUnsupported(Problem):
    """This operation does not support the Content-Type of the request body."""

    status = 415


class CodingUnsupported(Problem):
    """The service does not support the Content-Encoding of the request body."""

    status = 415


class InvalidInput(Problem):
    """The request body is well-formed, but its content violates a rule; nothing was stored."""

    status = 422


class InvalidQuery(Problem):
    """A query parameter is unknown or has an invalid value."""

    status = 422


class InvalidName(Problem):
    """An id violates the rule for ids: 1 to 128 of the characters A-Za-z0-9._:@-, and neither . nor .."""

    status = 422


class PreconditionRequired(Problem):
    """A change of an existing model requires If-Match with the ETag of the version that it changes."""

    status = 428


class BacklogFull(RetryLater):
    """Batches arrive faster than they are merged; the backlog of this model's partition is full."""

    status = 429


class IdsFull(RetryLater):
    """The service stores the maximum number of batch ids; ids are never removed before they expire."""

    status = 429


class RateExceeded(RetryLater):
    """Your tenant or key sends more requests per second than its limit; the header RateLimit-Policy states it."""

    status = 429


class QuotaFull(RetryLater):
    """Your tenant has reached a limit of this service: remove what is not needed, or ask the operator for a larger limit."""

    status = 429


class RecordsFull(RetryLater):
    """The service retains the maximum number of predictions by id; none is removed before its retention ends."""

    status = 429


class PaneDamaged(Problem):
    """Stored panes of the window are damaged, so it has no result: `errors` names each pane. Request windows before and after
    them, restore them from a copy, or wait until retention drops them.
    """

    status = 500


class InternalError(Problem):
    """The service failed unexpectedly; the request is not the cause."""

    status = 500


class Saturated(RetryLater):
    """The service holds the maximum amount of request bodies in memory."""


class StoreUnavailable(RetryLater):
    """The store is unavailable; a batch can be sent again safely under the same id."""


class AnswerLate(RetryLater):
    """The workers did not respond in time; the same request may be faster the next time."""

    status = 503
