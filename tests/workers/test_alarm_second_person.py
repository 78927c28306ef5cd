"""Acknowledgements of an alarm by two people: the first one's request, and what is stored of both."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant_server.workers.alarm.alarm_transfer import EPISODE, alarm_lines
from calibrant_server.workers.alarm.commands import (
    acknowledgement,
    acknowledgement_request,
    promotion,
)
from calibrant_server.workers.alarm.episodes import (
    ACKNOWLEDGED,
    CLOSED,
    OPEN,
    FirstPerson,
    FirstRequest,
    shown,
)
from tests.workers.test_alarm import Sealing

REQUEST: FirstRequest = {
    "requested_by": "ann",
    "requested_role": None,
    "requested_at": "2026-11-23T00:00:00Z",
    "expires_at": "2026-11-30T00:00:00Z",
    "reason": "known",
    "identity": "k1",
}
FIRST: FirstPerson = {
    "requested_by": "ann",
    "requested_role": None,
    "requested_at": "2026-11-23T00:00:00Z",
    "requested_reason": "known",
}


@pytest.fixture
def sealing(bench):
    return Sealing(bench)


def exported_lines(sealing):
    async def read():
        keys = sealing.bench.store.keys.of(sealing.config)
        lines = alarm_lines(sealing.bench.inbox.client, keys, sealing.config)
        return [each async for each in lines]

    return sealing.bench.run(read())


def test_a_request_to_acknowledge_leaves_the_alarm_open(sealing):
    _, raised = sealing.until_alarm(np.random.default_rng(5))
    before, sent = sealing.detector().pack(), len(sealing.deliveries())
    sealing.order(acknowledgement_request(raised.id, REQUEST))
    [waiting] = sealing.episodes()
    assert (waiting.status, waiting.pending) == (OPEN, REQUEST) and waiting.number > raised.number
    assert sealing.detector().pack() == before and len(sealing.deliveries()) == sent
    exported = [each for each in exported_lines(sealing) if each["type"] == EPISODE]
    assert [each["holds"]["pending"] for each in exported] == [None]
    sealing.order(acknowledgement(raised.id, "bob", "I agree", None, FIRST))
    [episode] = sealing.episodes()
    assert (episode.status, episode.acknowledged_by) == (ACKNOWLEDGED, "bob")
    assert (episode.pending, episode.first_person) == (None, FIRST)
    assert shown(episode)["requested_by"] == "ann"
    before = sealing.raw()
    sealing.order(acknowledgement_request(raised.id, REQUEST))
    assert sealing.raw() == before


def test_an_alarm_that_closes_waits_for_nobody(sealing):
    _, raised = sealing.until_alarm(np.random.default_rng(5))
    sealing.order(acknowledgement_request(raised.id, REQUEST))
    sealing.order(promotion("v2"))
    [episode] = sealing.episodes()
    assert (episode.status, episode.pending) == (CLOSED, None)
