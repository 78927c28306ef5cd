"""Connections end where a client says nothing, too little, or reads nothing; new ones find a place."""

import ast
import asyncio
import inspect
import re
import resource
from contextlib import asynccontextmanager

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from calibrant_server.service.http import connections
from calibrant_server.service.http.connections import (
    ConnectionSlots,
    protocol_in,
)
from calibrant_server.service.startup import backlog, connection_limit

pytestmark = pytest.mark.anyio
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
LARGE = 8 * 1024 * 1024
BASES = {"httptools": HttpToolsProtocol, "h11": H11Protocol}
CHOSEN = {}


@pytest.fixture
def quick(monkeypatch):
    """Short time limits."""
    monkeypatch.setattr(connections, "HEADER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(connections, "KEEP_ALIVE_S", 0.3)


class App:
    """Responds at once; to `/slow` when triggered, to `/large` with 8 MiB."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.has_begun = asyncio.Event()
        self.n_ended = 0

    async def __call__(self, scope, receive, send) -> None:
        if scope["path"] == "/slow":
            self.has_begun.set()
            await self.may_end.wait()
        body = b"." * (LARGE if scope["path"] == "/large" else 2)
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for start in range(0, len(body), 65536):
            part = body[start : start + 65536]
            more = start + 65536 < len(body)
            await send({"type": "http.response.body", "body": part, "more_body": more})
        self.n_ended += 1


@pytest.fixture(autouse=True, params=["httptools", "h11"])
def parser(request, monkeypatch):
    """Every bound holds with both parsers."""
    monkeypatch.setitem(CHOSEN, "base", BASES[request.param])
    return request.param


@pytest.fixture
def anyio_backend(parser):
    return "asyncio", {"use_uvloop": parser == "httptools"}


async def eventually_async(condition) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition did not hold")


@asynccontextmanager
async def serving(limit: int = 100):
    """The port of a server with so many places, its app and its state."""
    app, state = App(), ServerState()
    config = uvicorn.Config(app, log_config=None, timeout_keep_alive=connections.KEEP_ALIVE_S)
    config.load()
    protocol = protocol_in(ConnectionSlots(limit), CHOSEN["base"])
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1], app, state
    finally:
        server.close()
        while OPEN:
            OPEN.pop().transport.abort()
        await asyncio.sleep(0)
        for each in list(state.connections):
            each.transport.abort()


OPEN: list[asyncio.StreamWriter] = []


async def opened(port: int, sent: bytes = b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    OPEN.append(writer)
    writer.write(sent)
    return reader, writer


async def status_of(reader) -> int:
    line = await asyncio.wait_for(reader.readline(), 10)
    return int(line.split()[1])


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX: "])
async def test_a_connection_without_a_request_is_closed(quick, sent):
    async with serving() as (port, _, state):
        reader, _ = await opened(port, sent)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        assert not state.connections


@pytest.mark.parametrize("first", [b"", GET])
async def test_headers_that_drip_in_are_late(quick, first):
    async with serving() as (port, _, state):
        _, writer = await opened(port, first + b"GET / HTTP/1.1\r\n")
        for _ in range(100):
            await asyncio.sleep(0.05)
            if not state.connections:
                break
            writer.write(b"x")
        assert not state.connections


async def test_a_connection_is_used_again_and_closed_when_idle(quick):
    async with serving() as (port, app, _):
        reader, writer = await opened(port, GET)
        assert await status_of(reader) == 200
        await asyncio.sleep(0.1)
        writer.write(GET)
        await asyncio.wait_for(reader.read(), 10)
        assert app.n_ended == 2


async def test_a_request_that_is_served_is_not_ended(quick):
    async with serving() as (port, app, _):
        reader, _ = await opened(port, GET.replace(b"/ ", b"/slow "))
        await asyncio.sleep(0.7)
        app.may_end.set()
        assert await status_of(reader) == 200


async def test_the_connection_that_waits_longest_gives_way():
    async with serving(limit=5) as (port, _, state):
        half = [await opened(port, b"GET / HTTP/1.1\r\nX: ") for _ in range(20)]
        reader, _ = await opened(port, GET)
        assert await status_of(reader) == 200
        assert len(state.connections) <= 5
        assert await asyncio.wait_for(half[0][0].read(), 10) == b""


async def test_a_new_connection_is_rejected_if_all_are_served():
    async with serving(limit=2) as (port, app, _):
        served = []
        for _ in range(2):
            app.has_begun.clear()
            served.append(await opened(port, GET.replace(b"/ ", b"/slow ")))
            await asyncio.wait_for(app.has_begun.wait(), 10)
        reader, _ = await opened(port, GET)
        answer = await asyncio.wait_for(reader.read(), 10)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1\r\n" in answer
        app.may_end.set()
        assert [await status_of(each) for each, _ in served] == [200, 200]


HEAD = b"POST / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "repeated"),
    [
        (b"GET /", b"a" * 8192),
        (HEAD + b"x: ", b"a" * 8192),
        (HEAD, b"x: " + b"a" * 1000 + b"\r\n"),
        (CHUNKED + b"1\r\na\r\n0\r\n", b"x: " + b"a" * 1000 + b"\r\n"),
    ],
)
async def test_a_head_without_end_is_not_collected(sent, repeated, parser):
    if parser == "h11":
        pytest.skip("h11 bounds it")
    async with serving() as (port, app, _):
        reader, writer = await opened(port, sent)
        n_sent, received = 0, asyncio.create_task(reader.read())
        while not received.done() and n_sent < 64 * 1024 * 1024:
            writer.write(repeated)
            n_sent += len(repeated)
            try:
                await asyncio.wait_for(writer.drain(), 1)
            except OSError:  # ended, or, where it is a timeout, not read any more
                break
        app.may_end.set()
        assert n_sent < 16 * 1024 * 1024  # what the buffers of two sockets hold
        received.cancel()


async def test_a_head_that_is_too_large_is_rejected(parser):
    async with serving() as (port, _, _):
        reader, writer = await opened(port, HEAD)
        writer.write(b"x: " + b"a" * 100_000)
        assert await status_of(reader) == (431 if parser == "httptools" else 400)


async def test_a_few_requests_at_once_are_all_served():
    async with serving() as (port, app, _):
        reader, _ = await opened(
            port, 20 * GET + GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
        )
        found = await asyncio.wait_for(reader.read(), 10)
        assert (found.count(b" 200 OK"), app.n_ended) == (21, 21)


BROKEN = {
    "length and chunked": CHUNKED.replace(b"host", b"content-length: 4\r\nhost") + b"0\r\n\r\n",
    "two lengths": HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "a space before the colon": GET.replace(b"host:", b"host :"),
    "garbage": b"\x16\x03\x01\x02\x00garbage\r\n\r\n",
    "a chunk without a size": CHUNKED + b"zz\r\nabc\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
async def test_what_is_no_request_is_rejected_without_effect(name, parser):
    if (name, parser) == ("length and chunked", "h11"):
        pytest.skip("h11 follows RFC 9112: chunked counts")
    async with serving() as (port, app, _):
        reader, _ = await opened(port, BROKEN[name])
        found = await asyncio.wait_for(reader.read(), 10)
        assert re.findall(rb"HTTP/1.1 (\d+) ", found) == [b"400"]
        # A request whose body breaks has begun; it is ended, and the client gets the reason.
        assert app.n_ended <= (name == "a chunk without a size")


async def test_a_large_chunked_body_is_no_head():
    async with serving() as (port, _, _):
        reader, writer = await opened(port, CHUNKED)
        for _ in range(5000):
            writer.write(b"40\r\n" + b"a" * 64 + b"\r\n")
        writer.write(b"0\r\nx: y\r\n\r\n")
        assert await status_of(reader) == 200


@pytest.mark.parametrize("soft", [64, 160, 1024, 20_000, resource.RLIM_INFINITY])
def test_connections_and_the_backlog_fit_in_the_descriptors(monkeypatch, soft):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert connection_limit() >= 32
    if soft > 0:
        assert connection_limit() + backlog() < soft


def test_no_private_name_of_uvicorn_is_used():
    """A later uvicorn may rename what begins with an underscore."""
    tree = ast.parse(inspect.getsource(connections))
    names = {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
    names |= {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    assert not {each for each in names if each.startswith("_") and each.strip("_")}
