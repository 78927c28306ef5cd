"""Changes by two people: the first requests one, and another one makes it effective by the same request."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from pydantic import BaseModel, Field

from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.alarm.episodes import FirstPerson, FirstRequest
from calibrant_server.workers.store.windows import rfc3339

# After this the first person requests it again: the evidence has changed since.
VALID = timedelta(days=7)


class PendingRequest(BaseModel):
    """A request that waits for another person."""

    requested_by: str
    requested_role: str | None
    requested_at: str
    expires_at: str


class PendingPromotion(PendingRequest):
    """A requested promotion that waits for another person."""

    version: int
    follows: int = Field(description="Number of the promotion that it follows; 0: none.")
    reason: str
    override: bool


class WaitingPromotion(BaseModel):
    """The promotion is not in effect: another person must request it too."""

    model: str
    pending: PendingPromotion


class PromotionRequest(FirstRequest):
    """A requested promotion as stored."""

    version: int
    follows: int
    override: bool


def first_request(caller: Caller, by: str, reason: str | None) -> FirstRequest:
    """Return the request of the first person."""
    now = datetime.now(UTC)
    return {
        "requested_by": by,
        "requested_role": caller.role or None,
        "requested_at": rfc3339(now),
        "expires_at": rfc3339(now + VALID),
        "reason": reason,
        "identity": caller.key_id,
    }


def promotion_request(
    caller: Caller, by: str, version: int, follows: int, reason: str, override: bool
) -> PromotionRequest:
    """Return the request of the first person to promote a map."""
    made = first_request(caller, by, reason)
    return {**made, "version": version, "follows": follows, "override": override}


def pending_promotion(text: bytes | None, follows: int) -> PromotionRequest | None:
    """Return the stored request; None if there is none, or it is of another promotion or too old."""
    if not text:
        return None
    found: PromotionRequest = orjson.loads(text)
    return None if is_over(found) or found["follows"] != follows else found


def is_over(pending: FirstRequest) -> bool:
    """Return whether a request is too old."""
    return datetime.fromisoformat(pending["expires_at"]) <= datetime.now(UTC)


def shown(pending: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a request without the identity of who made it."""
    if pending is None:
        return None
    return {name: value for name, value in pending.items() if name != "identity"}


def is_other_person(pending: FirstRequest, caller: Caller) -> bool:
    """Return whether this caller is another person than the one who made the request."""
    return pending["identity"] != caller.key_id


def is_same_promotion(pending: PromotionRequest, version: int, override: bool) -> bool:
    """Return whether a request is for the same promotion."""
    return (pending["version"], pending["override"]) == (version, override)


def first_person(pending: FirstRequest) -> FirstPerson:
    """Return the fields of the first person in the record of a change."""
    return {
        "requested_by": pending["requested_by"],
        "requested_role": pending["requested_role"],
        "requested_at": pending["requested_at"],
        "requested_reason": pending["reason"],
    }
