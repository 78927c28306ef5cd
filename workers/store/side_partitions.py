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
from calibrant_server.workers.store.model_config import ModelConfig, parsed_config

if TYPE_CHECKING:
    from calibrant_server.workers.store.keys import Keys

N_SHARDS = 64
# CPU time to merge a batch that a side partition has filled, over that to fill it: 0.05 with 100 batches in a commit, 0.16 with 20,
# 0.34 with 5 (`python -m benchmarks.hot_model`).
_MERGING_COST = 0.12


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
    sides, shard = config.side_partitions, shard_of(batch_id)
    if not sides:
        return None
    if config.own_shards is None:
        # As stores of earlier versions have it.
        return [None, *sides][shard % (len(sides) + 1)]
    return None if shard < config.own_shards else sides[shard % len(sides)]


def own_shards(n_partitions: int) -> int | None:
    """Return how many shards the own partition has if so many partitions fill for a model; None: all.

    It also merges what the others have filled. With fewer shards than each of these it has as much work as they have.

    >>> [own_shards(n) for n in (1, 2, 4, 8, 64)]
    [None, 30, 11, 1, 1]
    """
    n_sides = n_partitions - 1
    if n_sides == 0:
        return None
    share = (1 - _MERGING_COST * n_sides) / (n_partitions - _MERGING_COST * n_sides)
    return max(1, round(N_SHARDS * share))


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
    n_own = own_shards(config.fill_partitions)
    moved = current is not None and (
        current.have_shards_moved
        or (bool(before) and (sides, n_own) != (before, current.own_shards))
    )
    return replace(
        config,
        side_partitions=sides,
        former_side_partitions=sorted(former - set(sides)),
        have_shards_moved=moved,
        own_shards=n_own,
    )


async def open_sides(
    client: Any, keys: Keys, config: ModelConfig, durability: str = "everysec"
) -> ModelConfig | None:
    """Have every side partition of a model, present or former, reject processes that know an older configuration.

    With durability `replicated`, also after the loss of its server: else a repeat could be added behind the look-up for it.

    Returns
    -------
    the latest configuration that one of them has instead of this one. Either this one is not the current one any more, or the server
    of the own partition has lost a change: then `after_loss` has what to write there. None if they all have this one
    """
    latest: ModelConfig | None = None
    generation = f'"generation":"{config.generation}"'
    arguments = [config.key, config.to_json(), generation, config.revision]
    # The former ones first: none of them takes a batch when a present one takes the first.
    for number in [*config.former_side_partitions, *config.side_partitions]:
        side = keys.partition(number)
        names = [side.side_models, side.gone_models]
        script = AsyncScript(client, scripts()["open_side_partition"])
        reply = await script.run(names, arguments, side.bytes_in, durability)
        there = config if reply == 1 else parsed_config(reply)
        if _differs(there, config) and (latest is None or there.revision > latest.revision):
            latest = there
    return latest


def _differs(there: ModelConfig, config: ModelConfig) -> bool:
    """Whether a configuration of the same or a later revision is another one, as to where batches are."""
    if there.revision > config.revision:
        return True
    places = "side_partitions", "former_side_partitions", "own_shards"
    return any(getattr(there, name) != getattr(config, name) for name in places)


def after_loss(current: ModelConfig, lost: ModelConfig) -> ModelConfig:
    """Return what to write where the server of a model's own partition has lost a change of its configuration.

    The change was acknowledged, so it holds, unless another one has followed since. Batches may be in the partitions of both.
    """
    latest = lost if lost.revision > current.revision else current
    every = {*all_sides(current), *all_sides(lost)}
    return replace(
        latest,
        revision=latest.revision + 1,
        partition=current.partition,
        moves=current.moves,
        moving=current.moving,
        importing=current.importing,
        former_side_partitions=sorted(every - {*latest.side_partitions}),
        have_shards_moved=True,
    )


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
