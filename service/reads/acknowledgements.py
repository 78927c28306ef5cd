"""Acknowledgements of alarms: the request, and the order that it becomes."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import Violation
from calibrant_server.service.http.problem_responses import invalid_input
from calibrant_server.service.http.validation_errors import validated
from calibrant_server.service.reads.frozen_maps import who_is
from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.alarm.commands import Command, acknowledgement
from calibrant_server.workers.alarm.episodes import OPEN, Episode


class Acknowledgement(BaseModel):
    """An acknowledgement."""

    model_config = ConfigDict(extra="forbid", strict=True)

    note: str | None = Field(
        None,
        max_length=2000,
        description="The reason; required from people whom a proxy names.",
    )


def parsed(document: dict[str, Any], caller: Caller) -> Acknowledgement:
    """Return a valid acknowledgement; a person gives a reason, which is recorded with their name."""
    said: Acknowledgement = validated(Acknowledgement, document)
    if caller.is_person and not (said.note or "").strip():
        detail = "Received no note; expected the reason of the acknowledgement."
        raise invalid_input([Violation("/note", "missing", detail)])
    return said


def order_of(episode: Episode, said: Acknowledgement, caller: Caller) -> Command:
    """Return the order to acknowledge an alarm."""
    return acknowledgement(episode.id, who_is(caller), said.note, caller.role or None)


def is_awaited(episode: Episode) -> bool:
    """Return whether an order to acknowledge has not taken effect yet."""
    return episode.state == OPEN and not episode.is_acknowledged
