"""Promotions by two people: the first requests one, and another one makes it effective by the same request."""

from datetime import UTC, datetime, timedelta
from typing import TypedDict

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


class StoredRequest(TypedDict):
    """A requested promotion as stored, with the key of who made it."""

    version: int
    follows: int
    requested_by: str
    requested_role: str | None
    requested_at: str
    expires_at: str
    reason: str
    override: bool
    identity: str | None


class FirstPerson(TypedDict):
    """What the record of a promotion says about the first person."""

    requested_by: str
    requested_role: str | None
    requested_at: str
    requested_reason: str


def pending_of(text: bytes | None, follows: int) -> StoredRequest | None:
    """Return the stored request; None if there is none, or it is of another promotion or too old."""
    if not text:
        return None
    found: StoredRequest = orjson.loads(text)
    is_over = datetime.fromisoformat(found["expires_at"]) <= datetime.now(UTC)
    return None if is_over or found["follows"] != follows else found


def shown(pending: StoredRequest | None) -> dict[str, object] | None:
    """Return a request without the identity of who made it."""
    if pending is None:
        return None
    return {name: value for name, value in pending.items() if name != "identity"}


def request_of(
    caller: Caller, by: str, version: int, follows: int, reason: str, override: bool
) -> StoredRequest:
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
    pending: StoredRequest | None, caller: Caller, version: int, override: bool
) -> bool:
    """Return whether this caller is another person than the one who requested the same promotion."""
    return (
        pending is not None
        and (pending["version"], pending["override"]) == (version, override)
        and pending["identity"] != caller.key_id
    )


def first_person(pending: StoredRequest) -> FirstPerson:
    """Return what the record of a promotion says about the first person."""
    return {
        "requested_by": pending["requested_by"],
        "requested_role": pending["requested_role"],
        "requested_at": pending["requested_at"],
        "requested_reason": pending["reason"],
    }
