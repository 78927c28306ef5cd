"""Side partitions of a hot model: partitions that fill batches for it in addition to its own.

The id of a batch decides its shard, one of 64, and the number of partitions decides which partition has the shard. So a repeat
of a batch meets the record of the first one. A partition fills for a model only if its hash of such models has the model's
current configuration (`scripts/open_side_partition.lua`): a process that knows an older one is rejected there.

After a change of their number, records of earlier batches are in other partitions. Each of these is closed to processes that
know the earlier number before a batch is appended under the later one. From then on no record is added there, and reading it
first is enough to find a repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from calibrant_server.workers.store.connection import AsyncScript, run_async, scripts

if TYPE_CHECKING:
    from calibrant_server.workers.store.keys import Keys
    from calibrant_server.workers.store.model_config import ModelConfig

N_SHARDS = 64


class TooManyPartitions(ValueError):
    """A model cannot use more partitions than the store has."""

    def __init__(self, wanted: int, there_are: int):
        super().__init__(f"received {wanted} partitions; the store has {there_are}")
        self.wanted, self.there_are = wanted, there_are


def shard_of(batch_id: str) -> int:
    """Return the shard of a batch id.

    >>> 0 <= shard_of("site-a.0001") < N_SHARDS
    True
    """
    return blake2b(batch_id.encode(), digest_size=8).digest()[0] % N_SHARDS


def side_partition(config: ModelConfig, batch_id: str) -> int | None:
    """Return the side partition that has the shard of a batch; None: the model's own partition has it."""
    shares: list[int | None] = [None, *config.side_partitions]
    return shares[shard_of(batch_id) % len(shares)]


def all_sides(config: ModelConfig) -> list[int]:
    """Return the side partitions of a model, and those that were some earlier: their batches may not be merged yet."""
    return sorted({*config.side_partitions, *config.former_side_partitions})


def with_sides(
    config: ModelConfig, current: ModelConfig | None, own: int, n_partitions: int
) -> ModelConfig:
    """Return a configuration with the side partitions that its `fill_partitions` needs.

    Parameters
    ----------
    config : as declared
    current : as stored; None for a new model
    own : the model's own partition

    Raises
    ------
    TooManyPartitions
    """
    if config.fill_partitions > n_partitions:
        raise TooManyPartitions(config.fill_partitions, n_partitions)
    before = [] if current is None else current.side_partitions
    former = set() if current is None else {*current.former_side_partitions, *before}
    others = [each for each in _order(config.key, n_partitions) if each != own]
    kept = [each for each in before if each != own]
    sides = [*kept, *(each for each in others if each not in kept)][: config.fill_partitions - 1]
    moved = current is not None and (
        current.have_shards_moved or (bool(before) and sides != before)
    )
    return replace(
        config,
        side_partitions=sides,
        former_side_partitions=sorted(former - set(sides)),
        have_shards_moved=moved,
    )


async def open_sides(
    client: Any, keys: Keys, config: ModelConfig, durability: str = "everysec"
) -> None:
    """Have every side partition of a model, present or former, reject processes that know an older configuration.

    With durability `replicated`, also after the loss of its server: else a repeat could be added behind the look-up for it.
    """
    generation = f'"generation":"{config.generation}"'
    arguments = [config.key, config.to_json(), generation, config.revision]
    # The former ones first: none of them takes a batch when a present one takes the first.
    for number in [*config.former_side_partitions, *config.side_partitions]:
        side = keys.partition(number)
        names = [side.side_models, side.gone_models]
        script = AsyncScript(client, scripts()["open_side_partition"])
        await script.run(names, arguments, side.bytes_in, durability)


async def close_sides(client: Any, keys: Keys, config: ModelConfig) -> None:
    """Have every side partition of a deleted model reject its batches, and remove what it has of it."""
    arguments = [config.key, config.generation]
    for number in all_sides(config):
        side = keys.partition(number)
        names = [side.side_models, side.gone_models]
        await run_async(client, "close_side_partition", names, arguments)


@lru_cache(maxsize=1024)
def _order(model: str, n_partitions: int) -> Sequence[int]:
    """Return all partitions in an order of the model's own: hot models use different ones."""
    return sorted(
        range(n_partitions),
        key=lambda each: blake2b(f"{model}|{each}".encode(), digest_size=8).digest(),
    )
