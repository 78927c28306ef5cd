"""A request that asks the service to wait is given the time for it, beyond the time-out of the client."""

import asyncio
import json
import time

import pytest

import calibrant as cal
from tests.client.service import Service

TIMEOUT_S = 0.5
COLUMNS = {"probabilities": [[0.7, 0.3]], "labels": [1]}


@pytest.fixture
def slow():
    """A service that merges a batch later than the time-out of its client."""

    def respond(body):
        time.sleep(2 * TIMEOUT_S)
        receipt = {"batch_id": body["batch_id"], "status": "merged", "accepted": 1, "rejected": 0}
        return 200, {}, json.dumps(receipt | {"errors": []}).encode()

    with Service(respond) as service:
        yield service


def test_a_wait_is_added_to_the_time_out(slow):
    with cal.Client(f"http://127.0.0.1:{slow.port}", timeout=TIMEOUT_S) as client:
        assert client.model("m").send(wait=30, **COLUMNS).status == "merged"
    assert len(slow.raw) == 1


def test_a_wait_is_added_to_the_time_out_of_the_asynchronous_client(slow):
    async def send():
        async with cal.AsyncClient(f"http://127.0.0.1:{slow.port}", timeout=TIMEOUT_S) as client:
            return await client.model("m").send(wait=30, **COLUMNS)

    assert asyncio.run(send()).status == "merged"
    assert len(slow.raw) == 1
