"""Promotions by two people: the first requests one, and another one makes it effective by the same request."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from pydantic import BaseModel, Field

from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.store.windows import rfc3339

# After this the first person requests it again: the evidence has changed since.
VALID = timedelta(days=7)


class PendingPromotion(BaseModel):
    """A requested promotion that waits for another person."""

    version: int
    follows: int = Field(description="Number of the promotion that it follows; 0: none.")
    requested_by: str
    requested_role: str | None
    requested_at: str
    expires_at: str
    reason: str
    override: bool


class WaitingPromotion(BaseModel):
    """The promotion is not in effect: another person must request it too."""

    model: str
    pending: PendingPromotion


def pending_of(text: bytes | None, follows: int) -> dict[str, Any] | None:
    """Return the stored request; None if there is none, or it is of another promotion or too old."""
    if not text:
        return None
    found: dict[str, Any] = orjson.loads(text)
    is_over = datetime.fromisoformat(found["expires_at"]) <= datetime.now(UTC)
    return None if is_over or found["follows"] != follows else found


def shown(pending: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a request without the identity of who made it."""
    return (
        None if pending is None else {name: pending[name] for name in PendingPromotion.model_fields}
    )


def request_of(
    caller: Caller, by: str, version: int, follows: int, reason: str, override: bool
) -> dict[str, Any]:
    """Return the request of the first person."""
    now = datetime.now(UTC)
    return {
        "version": version,
        "follows": follows,
        "requested_by": by,
        "requested_role": caller.role or None,
        "requested_at": rfc3339(now),
        "expires_at": rfc3339(now + VALID),
        "reason": reason,
        "override": override,
        "identity": caller.key_id,
    }


def is_confirmed(
    pending: dict[str, Any] | None, caller: Caller, version: int, override: bool
) -> bool:
    """Return whether this caller is another person than the one who requested the same promotion."""
    return (
        pending is not None
        and (pending["version"], pending["override"]) == (version, override)
        and pending["identity"] != caller.key_id
    )


def first_person(pending: dict[str, Any]) -> dict[str, Any]:
    """Return what the record of a promotion says about the first person."""
    named = ("requested_by", "requested_role", "requested_at")
    return {name: pending[name] for name in named} | {"requested_reason": pending["reason"]}
