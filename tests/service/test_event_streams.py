"""Event streams are bounded, and each gives its place back however it ends."""

import asyncio

import pytest

from calibrant_server.service.http.event_streams import EventStream, Streams
from calibrant_server.service.http.problems import Saturated
from tests.service.conftest import problem

SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


async def events():
    yield b": one\n\n"


async def gone():
    return {"type": "http.disconnect"}


async def waiting():
    await asyncio.Event().wait()


async def send(message):
    await asyncio.sleep(0)


async def unreachable(message):
    raise OSError("the client is gone")


@pytest.mark.parametrize(("receive", "sending"), [(gone, send), (waiting, send)])
def test_a_place_is_given_back(receive, sending):
    streams = Streams()
    asyncio.run(EventStream(events(), streams, 1)(SCOPE, receive, sending))
    assert streams.open == 0


def test_a_place_is_given_back_when_nothing_can_be_sent():
    streams = Streams()
    with pytest.raises(OSError, match="gone"):
        asyncio.run(EventStream(events(), streams, 1)(SCOPE, waiting, unreachable))
    assert streams.open == 0


def test_a_stream_above_the_bound_is_rejected_before_its_first_byte():
    streams = Streams()
    sent = []

    async def note(message):
        sent.append(message)

    with streams.place(1), pytest.raises(Saturated):
        asyncio.run(EventStream(events(), streams, 1)(SCOPE, waiting, note))
    assert not sent and streams.open == 0


@pytest.mark.anyio
async def test_the_service_rejects_a_stream_above_its_bound(client, app, settings):
    app.state.streams.open = settings.max_streams
    problem(await client.get("/v1/alarms/events"), 503, "saturated")


@pytest.mark.anyio
async def test_a_rejected_stream_does_not_read_the_store(client, app, settings, monkeypatch):
    """A client that repeats rejected requests would otherwise keep the event loop busy with reads of all partitions."""
    n_reads = 0

    async def numbers():
        nonlocal n_reads
        n_reads += 1
        return [0] * settings.partitions

    alarms = app.state.connection.inbox.alarms
    monkeypatch.setattr(alarms, "numbers", numbers)
    app.state.streams.open = settings.max_streams
    problem(await client.get("/v1/alarms/events"), 503, "saturated")
    assert n_reads == 0
    app.state.streams.open = 0
    await client.head("/v1/alarms/events")
    assert n_reads > 0


@pytest.mark.anyio
async def test_head_of_a_stream_ends(client, app):
    answer = await asyncio.wait_for(client.head("/v1/alarms/events"), 5)
    assert answer.status_code == 200 and answer.content == b""
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert app.state.streams.open == 0
