"""Which worker should serve which partition: rendezvous hashing, bounded by the work of each worker.

Each worker makes the plan by itself, from the names of the live workers and from what each partition merged lately. A worker that
joins or leaves moves few partitions beside its own. Where the plans of two workers differ, a lease decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

# No worker has more than this much above an even share of the work, unless a single partition is more.
TOLERANCE = 0.1
# Part of the work that is distributed by number of partitions: the next entries may be for any of them.
_BY_NUMBER = 0.1
# Weights are powers of √2, so that the plans of two workers that look at different times are the same.
_STEPS_AN_OCTAVE = 2
# Part of a new rate in the mean.
_NEW_RATE = 0.5


class Loads:
    """Bytes merged per second and partition, a mean in which the last rate has the largest part."""

    def __init__(self) -> None:
        self._rates: dict[int, float] = {}
        self._seen: dict[int, int] = {}
        self._seen_at = 0.0

    def note(self, merged: Mapping[int, int], now_s: float) -> None:
        """Record how many bytes each partition has ever merged."""
        seconds = now_s - self._seen_at
        for number, n_bytes in merged.items():
            if number in self._seen and seconds > 0:
                rate = max(0, n_bytes - self._seen[number]) / seconds
                before = self._rates.get(number, rate)
                self._rates[number] = before + _NEW_RATE * (rate - before)
        self._seen, self._seen_at = dict(merged), now_s

    def of(self, partitions: Iterable[int]) -> dict[int, float]:
        """Return the rates; 0 where none is known yet."""
        return {number: self._rates.get(number, 0.0) for number in partitions}


def weights_of(loads: Mapping[int, float]) -> dict[int, float]:
    """Return the share of each partition in the work, from the bytes that it merged lately, rounded to a power of √2.

    >>> weights_of({0: 0.0, 1: 0.0})
    {0: 0.5, 1: 0.5}
    """
    total, even = sum(loads.values()), 1 / max(1, len(loads))
    return {
        number: _rounded((1 - _BY_NUMBER) * load / total + _BY_NUMBER * even if total > 0 else even)
        for number, load in loads.items()
    }


def planned(weights: Mapping[int, float], workers: Sequence[str]) -> dict[int, str]:
    """Return the worker of each partition: the first one of its own order of the workers that has room for it.

    Parameters
    ----------
    weights : of all partitions
    workers : names of those that are alive, at least one

    Examples
    --------
    >>> planned({0: 0.5, 1: 0.25, 2: 0.25}, ["a"])
    {0: 'a', 1: 'a', 2: 'a'}
    """
    room = (1 + TOLERANCE) * sum(weights.values()) / len(workers)
    loads = dict.fromkeys(workers, 0.0)
    found: dict[int, str] = {}
    for number in sorted(weights, key=lambda each: (-weights[each], each)):
        order = sorted(workers, key=lambda worker: _rank(number, worker), reverse=True)
        least = min(order, key=loads.__getitem__)
        found[number] = next((w for w in order if loads[w] + weights[number] <= room), least)
        loads[found[number]] += weights[number]
    return dict(sorted(found.items()))


def _rounded(weight: float) -> float:
    return float(2.0 ** (round(math.log2(weight) * _STEPS_AN_OCTAVE) / _STEPS_AN_OCTAVE))


@lru_cache(maxsize=1 << 16)
def _rank(number: int, worker: str) -> bytes:
    return blake2b(f"{number}|{worker}".encode(), digest_size=8).digest()
