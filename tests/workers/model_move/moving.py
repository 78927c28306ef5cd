"""Movers, clients that post meanwhile, and what partitions have of a model, for tests of moves between partitions."""

from __future__ import annotations

import asyncio
import itertools
import threading

from calibrant_server.workers.ingest.errors import ModelMismatchError, StoreUnavailableError
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.lifecycle.model_move import ModelMove
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import Registry
from tests.waiting import PATIENCE_S
from tests.workers.driving import MODEL, delivery


def mover(bench, **parts):
    return ModelMove(bench.store, MODEL.key, PATIENCE_S, **parts)


def config_at(bench, number):
    text = bench.client.hget(bench.store.keys.partition(number).models, MODEL.key)
    return None if text is None else ModelConfig.from_json(text)


def keys_at(bench, number):
    """The keys of the model in a partition."""
    tag = bench.store.keys.partition(number).tag
    found = bench.client.scan_iter(match=f"{tag}:*{MODEL.key}|{MODEL.generation}*", count=1000)
    return sorted(name.decode().removeprefix(tag) for name in found)


def placed(bench):
    return bench.run(Registry(bench.inbox.client, bench.inbox.keys).get("default", "m"))


class Client(threading.Thread):
    """Posts batches with the configuration that it read once, again under their id until they are accepted."""

    def __init__(self, settings, name):
        super().__init__()
        self.settings, self.label = settings, name
        self.sent, self.has_ended, self.error = [], threading.Event(), None

    def run(self):
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self.error = error

    async def _run(self):
        async with Inbox(self.settings, ingest_deadline_s=0.2) as inbox:
            config = MODEL
            for number in itertools.count():
                batch_id = f"{self.label}{number}"
                while True:
                    try:
                        await inbox.enqueue(delivery(batch_id, [number], config))
                        break
                    except StoreUnavailableError:
                        await asyncio.sleep(0.01)
                    except ModelMismatchError:
                        config = await Registry(inbox.client, inbox.keys).get("default", "m")
                self.sent.append((batch_id, number))
                if self.has_ended.is_set():
                    return


class Killed(BaseException):
    """The mover ends here."""
