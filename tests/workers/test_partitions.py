"""A store keeps the number of partitions that it was made with; a setting that differs is reported and not applied."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from redis.exceptions import RedisError

from calibrant_server.workers.engine import Engine
from calibrant_server.workers.main import run
from calibrant_server.workers.store.store_of_settings import with_partitions_of_store
from tests.ports import reserved_port
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, delivery


@pytest.fixture
def other(bench, settings):
    """Settings with three partitions of a store that was made with two."""
    bench.store.fix_properties()
    assert settings.partitions == 2
    return settings.replace(partitions=3)


def test_the_number_of_the_store_is_taken_and_reported(other, caplog):
    with caplog.at_level(logging.WARNING):
        assert with_partitions_of_store(other).partitions == 2
    assert "partitions_are_those_of_the_store n=2 setting=3" in caplog.text


def test_the_same_number_and_a_new_store_are_not_reported(other, settings, caplog):
    fresh = other.replace(namespace=f"{settings.namespace}-fresh")
    with caplog.at_level(logging.WARNING):
        assert with_partitions_of_store(settings).partitions == 2
        assert with_partitions_of_store(fresh).partitions == 3
    assert not caplog.text


def test_a_store_that_is_away_is_not_new(settings):
    away = settings.replace(redis_url=f"redis://127.0.0.1:{reserved_port()}")
    with pytest.raises(RedisError):
        with_partitions_of_store(away)


def test_service_and_workers_with_another_number_use_that_of_the_store(bench, other):
    """A batch that one accepts is merged by the other."""
    bench.put_model()
    stop = threading.Event()
    worker = threading.Thread(target=run, args=(other, stop), kwargs={"numbers": bench.numerics})
    worker.start()

    async def merged() -> str:
        async with Engine(other, works_here=False) as engine:
            assert engine.inbox.keys.partitions == 2
            await engine.inbox.enqueue(delivery("one", [1]))
            receipt = await engine.inbox.wait_merged(MODEL.key, "one", PATIENCE_S)
            return receipt.status

    try:
        assert asyncio.run(merged()) == "merged"
    finally:
        stop.set()
        worker.join(PATIENCE_S)
    assert not worker.is_alive()
