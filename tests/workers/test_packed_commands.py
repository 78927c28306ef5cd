"""Commands of the event loop are packed in C, to the bytes of the client library."""

from __future__ import annotations

import pytest
import redis.asyncio

from calibrant_server.workers.store.connection import _watched, _WatchedAsync

KIND = _watched(redis.asyncio.Connection, _WatchedAsync)


@pytest.mark.parametrize(
    "command",
    [
        ("GET", "ü"),
        ("EVALSHA", "abc", 2, "a", "b", b"\x00\xff\r\n", 5, -1, 2.5, ""),
        ("CONFIG GET", "maxmemory"),
        (b"SCRIPT FLUSH",),
        ("SET", "large", b"x" * 100_000),
        ("HMGET", "h", *(f"f{n}" for n in range(500))),
    ],
)
def test_commands_have_the_same_bytes(command):
    own = KIND(host="localhost")
    library = b"".join(redis.asyncio.Connection.pack_command(own, *command))
    assert b"".join(own.pack_command(*command)) == library
