"""Placement of new models: each in the partition with the least load.

A partition's load is its share of all models, and its share of the bytes that were merged between the last two surveys.
A process that creates a model makes the survey; the store keeps it, so that a process that has just started knows the rates too.
Processes that create models at the same time may place them by the same numbers, so they choose at random among equal partitions.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibrant_server.workers.store.connection import AsyncScript, scripts
from calibrant_server.workers.store.keys import Keys

# One survey reads two numbers of every partition. Many models that are created together share it.
_SURVEY_AGE_S = 1.0
# Rates are means over at least this long.
_RATES_AGE_S = 10.0
# Below this rate of the store, in bytes per second, the number of models matters more than what is merged.
MIN_RATE = 65_536.0


@dataclass(frozen=True)
class Survey:
    """How many models each partition has, and how many bytes per second it merged lately."""

    models: Sequence[int]
    rates: Sequence[float]


def least_loaded(survey: Survey, preferred: int | None = None) -> int:
    """Return the partition with the least load; of several the preferred one, else one at random.

    Examples
    --------
    >>> least_loaded(Survey([2, 1, 1], [0.0, 0.0, 0.0]), preferred=2)
    2
    >>> least_loaded(Survey([2, 1, 1], [0.0, 1e6, 0.0]))
    2
    """
    n_models, rate = max(1, sum(survey.models)), max(MIN_RATE, sum(survey.rates))
    loads = [n / n_models + r / rate for n, r in zip(survey.models, survey.rates, strict=True)]
    least = [number for number, load in enumerate(loads) if load <= min(loads) + 1e-12]
    return preferred if preferred in least else random.choice(least)


def rates_since(
    before: Mapping[str, Any] | None, merged: Sequence[int], now_s: float
) -> tuple[list[float], bool]:
    """Return the bytes per second of each partition, and whether they are of now: then they are to be stored.

    Parameters
    ----------
    before : the stored survey, with the bytes ever merged; None if there is none, or of another number of partitions
    """
    if before is None:
        return [0.0] * len(merged), True
    seconds = now_s - before["at_s"]
    if 0 <= seconds < _RATES_AGE_S:
        return list(before["rates"]), False
    # After a jump of the clock the rates are unknown.
    rates = [max(0, n - m) / seconds if seconds > 0 else 0.0
             for n, m in zip(merged, before["merged"], strict=True)]  # fmt: skip
    return rates, True


class Placement:
    """Chooses and records the partitions of new models, for the event loop.

    With durability `replicated` a replica has each record: a model without it is not found, whatever its partition has.
    """

    def __init__(self, client: Any, keys: Keys, durability: str = "everysec"):
        self._client, self._keys, self._durability = client, keys, durability
        self._script = AsyncScript(client, scripts()["place_model"])
        self._survey: Survey | None = None
        self._survey_at = 0.0

    async def place(self, model: str) -> int:
        """Return the partition of a model (`tenant/model`) that is about to be created. Every call returns the same."""
        home = self._keys.partition_of(model)
        if self._keys.partitions == 1:
            return home
        survey = await self._recent_survey()
        keys = self._keys.partition(home)
        names, values = [keys.places, keys.models], [model, least_loaded(survey, home), home]
        number = int(await self._script.run(names, values, keys.bytes_in, self._durability))
        models = [n + (at == number) for at, n in enumerate(survey.models)]
        self._survey = Survey(models, survey.rates)
        return number

    async def survey(self) -> Survey:
        """Read how loaded the partitions are."""
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.get(self._keys.loads)
            for number in range(self._keys.partitions):
                keys = self._keys.partition(number)
                pipe.hlen(keys.models)
                pipe.hget(keys.cursor, "out")
            stored, *found = await pipe.execute()
        merged = [int(n or 0) for n in found[1::2]]
        now_s = time.time()
        rates, is_new = rates_since(_read(stored, len(merged)), merged, now_s)
        if is_new:
            text = json.dumps({"at_s": now_s, "merged": merged, "rates": rates})
            await self._client.set(self._keys.loads, text)
        return Survey([int(n) for n in found[::2]], rates)

    async def _recent_survey(self) -> Survey:
        if self._survey is None or time.monotonic() - self._survey_at > _SURVEY_AGE_S:
            self._survey, self._survey_at = await self.survey(), time.monotonic()
        return self._survey


def _read(stored: bytes | None, partitions: int) -> dict[str, Any] | None:
    """Return the stored survey; the number of partitions of a store does not change, unless a namespace is reused."""
    found: dict[str, Any] | None = None if stored is None else json.loads(stored)
    return found if found is not None and len(found["merged"]) == partitions else None
