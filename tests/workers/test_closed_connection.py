"""A connection that the server has closed between two requests, in the event loop of the service."""

from __future__ import annotations

import asyncio

import pytest
import redis
import uvloop

from calibrant_server.workers.store.connection import connect_async

pytestmark = pytest.mark.one_server


async def requests_over_closed(settings):
    """The reply to a request after one whose connection is closed before the request is sent."""
    client = connect_async(settings)
    pool = client.connection_pool
    given = pool.get_connection

    async def closed():
        pool.get_connection = given
        connection = await given()
        # As after a reset, before the loop has notified the reader.
        connection._writer.transport.abort()
        await asyncio.sleep(0)
        return connection

    pool.get_connection = closed
    try:
        with pytest.raises(redis.ConnectionError):
            await client.ping()
        return await client.ping()
    finally:
        await client.aclose()


def test_it_is_an_error_of_the_connection(settings):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(requests_over_closed(settings))
