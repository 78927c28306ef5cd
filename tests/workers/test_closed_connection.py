"""A connection that the server has closed between two requests, in the event loop of the service."""

from __future__ import annotations

import asyncio

import pytest
import redis
import uvloop

from calibrant_server.workers.store.connection import connect_async

pytestmark = pytest.mark.one_server


async def request_over_closed(settings):
    client = connect_async(settings)
    pool = client.connection_pool
    connection = await pool.get_connection()
    try:
        # As after a reset, before the loop has notified the reader.
        connection._writer.transport.abort()
        await asyncio.sleep(0)
        await connection.send_command("PING")
    finally:
        await pool.release(connection)
        await client.aclose()


def test_it_is_an_error_of_the_connection(settings):
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(redis.ConnectionError),
    ):
        runner.run(request_over_closed(settings))
