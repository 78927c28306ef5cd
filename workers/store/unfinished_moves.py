"""Models that accept no batch because they are being moved to another partition, and whose move was interrupted.

A move that does not end needs an operator: its mover has died, and nobody continues it by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from calibrant_server.workers.store.keys import Keys, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig, parsed_config
from calibrant_server.workers.store.model_places import read_configs

# A move that began longer ago than this is interrupted: a million ids take some ten seconds.
MOVE_S = 300
# State of a model in its former partition (`lifecycle/move_states.py`).
_OUT = b"out "


def moving_since(node: Any, keys: PartitionKeys) -> dict[str, float]:
    """Return the models that leave a partition now, and when that began, in seconds since the epoch.

    Moves are few. What waits to be merged before a move is reported as the backlog of its partition.
    """
    return _since(read_configs(node, keys.models, _leaving(node.hgetall(keys.moves))))


async def count_interrupted(
    client: Any, keys: Keys, partitions: Iterable[int], now_s: float
) -> int:
    """Return how many models leave some partitions since more than `MOVE_S`, from the event loop."""
    found = await asyncio.gather(
        *(_moving_since(client, keys.partition(number)) for number in partitions)
    )
    return sum(at_s < now_s - MOVE_S for each in found for at_s in each.values())


async def _moving_since(client: Any, keys: PartitionKeys) -> dict[str, float]:
    names = _leaving(await client.hgetall(keys.moves))
    if not names:
        return {}
    texts = await client.hmget(keys.models, names)
    pairs = zip(names, texts, strict=True)
    return _since({name: parsed_config(text) for name, text in pairs if text is not None})


def _leaving(moves: Mapping[bytes, bytes]) -> list[str]:
    return [name.decode() for name, state in moves.items() if state.startswith(_OUT)]


def _since(configs: Mapping[str, ModelConfig]) -> dict[str, float]:
    return {
        name: config.moving.get("since_ms", 0) / 1000
        for name, config in configs.items()
        if config.moving is not None and not config.has_left
    }
