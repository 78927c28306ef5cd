"""Backlog of a model in its side partitions: a cohort is not sealed before the batches there are merged."""

from __future__ import annotations

import time
from typing import Any

from calibrant_server.workers.store.commit import id_order
from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.side_partitions import all_sides


def merged_from_sides_s(client: Any, keys: Keys, config: ModelConfig) -> float:
    """Return the time before which everything that side partitions received is merged, in seconds since the epoch.

    Call it in the thread that merges in the own partition. A delta stays in the outbox until it is merged there, so what is
    neither in a stream nor in an outbox is merged. The stream is read first: a commit moves batches from stream to outbox.
    """
    now_s = time.time()
    with client.pipeline(transaction=False) as pipe:
        for number in all_sides(config):
            side = keys.partition(number)
            pipe.xrange(side.stream, count=1)
            pipe.hvals(side.outbox_index)
        replies = pipe.execute()
    arrivals = []
    for waiting, deltas in zip(replies[::2], replies[1::2], strict=True):
        arrivals += [id_order(entry_id.decode())[0] for entry_id, _ in waiting]
        name = f"{config.key}|{config.generation}".encode()
        arrivals += [
            int(text.split(b" ", 1)[0]) for text in deltas if text.split(b" ", 2)[2] == name
        ]
    return min([now_s, *(each / 1000 for each in arrivals)])
