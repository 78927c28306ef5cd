"""Errors of the client: no response, and the problems that the service reports.

ClientError
ServiceUnreachable   no response, or one that is not the service's
ServiceError         the service rejected the request: status, slug, detail, violations
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from calibrant.core.errors import MAX_PRINTED, Violation

# Sent again unchanged, these may succeed. 500 is among them only for batches (`delivery`): a repeat under the same id is safe.
RETRYABLE = frozenset({408, 429, 502, 503, 504})


# Ends the message of an error if nothing listens at the address.
NO_SERVICE = (
    "No service responds at this address. Start one (calibrant serve), or name another address."
)


class ClientError(Exception):
    """Base of the errors of the client."""


class ServiceUnreachable(ClientError):
    """No response arrived, or one that the service did not write.

    Attributes
    ----------
    may_have_arrived : whether the service may have received and handled the request
    """

    def __init__(self, detail: str, may_have_arrived: bool = True) -> None:
        self.may_have_arrived = may_have_arrived
        super().__init__(detail)


class ServiceError(ClientError):
    """The service rejected a request.

    Attributes
    ----------
    status : HTTP status
    slug : name of the problem, such as "invalid-input"; its page is at `/v1/problems/{slug}`
    detail : what is wrong and what to do
    violations : each with `pointer` (a JSON Pointer), `rule` and `detail`
    request_id : id under which the service logged the request
    watermark : where to continue after 409 `offset-conflict`, else None
    retryable : whether the same request may succeed later
    retry_after_s : seconds to wait before it is sent again, None if the service named none
    """

    def __init__(
        self, status: int, problem: Mapping[str, Any], retry_after: str | None = None
    ) -> None:
        self.status = status
        self.slug = str(problem.get("type") or "").rpartition("/")[2] or f"http-{status}"
        self.detail = str(problem.get("detail") or problem.get("title") or f"HTTP status {status}")
        self.violations = [_violation(each) for each in problem.get("errors") or ()]
        self.request_id: str | None = problem.get("request_id")
        self.watermark: int | None = problem.get("watermark")
        self.retryable = status in RETRYABLE
        self.retry_after_s = _seconds(retry_after)
        named = [f"{each.pointer}: {each.detail} ({each.rule})" for each in self.violations]
        listed = [each for each in named[:MAX_PRINTED] if not each.startswith(self.detail)]
        super().__init__("\n".join([f"{status} {self.slug}: {self.detail}", *listed]))


def _violation(values: Mapping[str, Any]) -> Violation:
    return Violation(*(str(values.get(name, "")) for name in ("pointer", "rule", "detail")))


def _seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a header Retry-After, which is a number or a date (RFC 9110)."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
