"""Responses whose head and body are written together, and coroutines that begin before they are awaited."""

import asyncio
import os
import re

import pytest

from calibrant_server.service.http.begun import Begun
from calibrant_server.service.http.joined_responses import JoinedResponse
from calibrant_server.workers.store.random_text import DRAWN_BYTES, random_hex

impl = pytest.importorskip("uvicorn.protocols.http.httptools_impl")


class Transport:
    def __init__(self):
        self.written, self.is_closed = [], False

    def write(self, data):
        self.written.append(bytes(data))

    def close(self):
        self.is_closed = True

    def is_closing(self):
        return self.is_closed


class Flow:
    write_paused = False

    async def drain(self):
        self.write_paused = False


Plain = impl.RequestResponseCycle
Joined = type("Joined", (JoinedResponse, Plain), {})


def cycle_of(kind, method="POST", keep_alive=True, access_log=False):
    ended = []
    cycle = kind(
        scope={"method": method, "http_version": "1.1"},
        transport=Transport(),
        flow=Flow(),
        logger=None,
        access_logger=None,
        access_log=access_log,
        default_headers=[(b"date", b"today")],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=keep_alive,
        on_response=lambda: ended.append(True),
    )
    cycle.ended = ended
    return cycle


def head(*headers, status=202):
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def part(body, more=False):
    return {"type": "http.response.body", "body": body, "more_body": more}


LENGTH = (b"Content-Length", b"4")
USUAL = [head((b"X-Id", b"a"), LENGTH), part(b"body")]
RESPONSES = {
    "usual": USUAL,
    "empty": [head((b"content-length", b"0"), status=404), part(b"")],
    "in parts": [head(LENGTH), part(b"bo", True), part(b"dy")],
    "chunked": [head(), part(b"bo", True), part(b"dy")],
    "declared chunked": [head((b"transfer-encoding", b"chunked")), part(b"body")],
    "closing": [head(LENGTH, (b"connection", b"close")), part(b"body")],
    "unknown status": [head(LENGTH, status=299), part(b"body")],
    "without content": [head(status=204), part(b"")],
    "too long": [head(LENGTH), part(b"bodies")],
    "too short": [head(LENGTH), part(b"b")],
    "invalid name": [head((b"a b", b""), LENGTH), part(b"body")],
    "invalid value": [head((b"a", b"b\r\nc: d"), LENGTH), part(b"body")],
    "two heads": [head(LENGTH), head(LENGTH)],
    "after the end": [*USUAL, part(b"")],
    "no head": [part(b"body")],
}


def sent(cycle, messages):
    """What a client receives, how the request ended, and the error if any."""

    async def send():
        for message in messages:
            await cycle.send(message)

    error = None
    try:
        asyncio.run(send())
    except RuntimeError as raised:
        error = str(raised)
    written = b"".join(cycle.transport.written)
    state = (cycle.response_complete, cycle.transport.is_closed, len(cycle.ended))
    return written, state, error


@pytest.mark.parametrize(
    "about", [{}, {"method": "HEAD"}, {"method": "GET"}, {"keep_alive": False}]
)
@pytest.mark.parametrize("name", RESPONSES)
def test_a_client_receives_what_uvicorn_sends(name, about):
    joined, plain = (cycle_of(kind, **about) for kind in (Joined, Plain))
    found, expected = sent(joined, RESPONSES[name]), sent(plain, RESPONSES[name])
    assert found[1:] == expected[1:]
    assert found[0] == expected[0] or (expected[2] and expected[0].startswith(found[0]))


def test_head_and_body_are_written_by_one_call():
    cycle = cycle_of(Joined)
    sent(cycle, USUAL)
    assert len(cycle.transport.written) == 1 and cycle.ended == [True]


def test_nothing_is_written_to_a_client_that_has_left():
    for at in (0, 1):
        cycle = cycle_of(Joined)

        async def send(cycle=cycle, at=at):
            for number, message in enumerate(USUAL):
                cycle.disconnected |= number == at
                await cycle.send(message)

        asyncio.run(send())
        assert cycle.transport.written == []


def test_a_client_that_reads_slowly_is_waited_for():
    cycle = cycle_of(Joined)

    async def send():
        await cycle.send(USUAL[0])
        cycle.flow.write_paused = True
        await cycle.send(USUAL[1])

    asyncio.run(send())
    assert b"".join(cycle.transport.written).endswith(b"\r\n\r\nbody") and cycle.response_complete


def test_a_coroutine_that_does_not_wait_is_done_at_once():
    async def found():
        return 7

    begun = Begun(found)
    assert begun.is_done and begun.result == 7


def test_a_coroutine_that_waits_goes_on_when_it_is_awaited():
    async def main():
        events = [asyncio.Event(), asyncio.Event()]
        seen = []

        async def waits():
            for event in events:
                await event.wait()
                seen.append(event)
            return len(seen)

        begun = Begun(waits)
        assert not begun.is_done and not seen
        loop = asyncio.get_running_loop()
        for event in events:
            loop.call_soon(event.set)
        async with asyncio.timeout(60):
            assert await begun == 2

    asyncio.run(main())


def test_a_time_limit_reaches_a_coroutine_that_has_begun():
    closed = []

    async def waits():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            closed.append(True)
            raise

    async def main():
        begun = Begun(waits)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await begun

    asyncio.run(main())
    assert closed == [True]


def test_random_text_is_used_once():
    found = [random_hex(n) for n in (4, 16, 40) * 400]
    assert len(set(found)) == len(found)
    assert {len(each) for each in found} == {8, 32, 80}
    assert all(re.fullmatch("[0-9a-f]+", each) for each in found)
    assert len(random_hex(DRAWN_BYTES + 1)) == 2 * DRAWN_BYTES + 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_use_the_bytes_of_its_parent():
    random_hex(1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, random_hex(16).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 32).decode() != random_hex(16)
