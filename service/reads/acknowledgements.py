"""Acknowledgements of alarms: the request, by one person or two, and the representation of alarms in responses."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import Violation
from calibrant_server.service.http.problem_responses import invalid_input
from calibrant_server.service.reads import second_person
from calibrant_server.service.reads.frozen_maps import valid, who_is
from calibrant_server.service.reads.second_person import PendingRequest
from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.alarm import commands, episodes
from calibrant_server.workers.alarm.episodes import OPEN, Episode, FirstRequest

Order = commands.AcknowledgeCommand | commands.AcknowledgementRequest


class Acknowledgement(BaseModel):
    """An acknowledgement."""

    model_config = ConfigDict(extra="forbid", strict=True)

    note: str | None = Field(
        None,
        max_length=2000,
        description="The reason; required from people whom a proxy or an issuer names.",
    )


class PendingAcknowledgement(PendingRequest):
    """A requested acknowledgement that waits for another person."""

    reason: str | None


def shown(episode: Episode) -> dict[str, Any]:
    """Return an alarm as sent to clients."""
    return {**episodes.shown(episode), "pending": second_person.shown(_pending(episode))}


def parsed(document: dict[str, Any], caller: Caller) -> Acknowledgement:
    """Return a valid acknowledgement; a person gives a reason, which is recorded with their name."""
    said: Acknowledgement = valid(Acknowledgement, document)
    if caller.is_person and not (said.note or "").strip():
        detail = "Received no note; expected the reason of the acknowledgement."
        raise invalid_input([Violation("/note", "missing", detail)])
    return said


def order_of(episode: Episode, said: Acknowledgement, caller: Caller, takes_two: bool) -> Order:
    """Return the order to acknowledge an alarm; where it takes two people, to store the request of the first one."""
    by, role = who_is(caller), caller.role or None
    if not takes_two:
        return commands.acknowledgement(episode.id, by, said.note, role)
    pending = _pending(episode)
    if pending is None or not second_person.is_other_person(pending, caller):
        made = second_person.first_request(caller, by, said.note)
        return commands.acknowledgement_request(episode.id, made)
    return commands.acknowledgement(
        episode.id, by, said.note, role, second_person.first_person(pending)
    )


def is_awaited(episode: Episode, order: Order | None) -> bool:
    """Return whether an order has not taken effect yet; None: an earlier one was given."""
    if episode.state != OPEN or episode.is_acknowledged:
        return False
    return order is None or order["op"] == "acknowledge" or episode.pending != order["pending"]


def _pending(episode: Episode) -> FirstRequest | None:
    """Return the request of a first person, if it is not too old."""
    pending = episode.pending
    return None if pending is None or second_person.is_over(pending) else pending
