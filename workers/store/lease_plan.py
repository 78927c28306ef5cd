"""Which worker should serve which partition: each about the same work, with few changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# A worker with at most this much above an even share of the work keeps all of its partitions.
TOLERANCE = 0.1
# Part of the work that is distributed by number of partitions: the next entries may be for any of them.
_BY_NUMBER = 0.1


def weights_of(loads: Mapping[int, float]) -> dict[int, float]:
    """Return the share of each partition in the work, from the bytes that it merged lately.

    >>> weights_of({0: 0.0, 1: 0.0})
    {0: 0.5, 1: 0.5}
    """
    total, even = sum(loads.values()), 1 / max(1, len(loads))
    if total <= 0:
        return dict.fromkeys(loads, even)
    return {
        number: (1 - _BY_NUMBER) * load / total + _BY_NUMBER * even
        for number, load in loads.items()
    }


def planned(
    weights: Mapping[int, float], owners: Mapping[int, str | None], workers: Sequence[str]
) -> dict[int, str]:
    """Return the worker of each partition.

    Parameters
    ----------
    weights : of all partitions
    owners : who has the lease of each; one that is not among the workers is gone
    workers : names of those that are alive, at least one

    Examples
    --------
    >>> planned({0: 0.5, 1: 0.25, 2: 0.25}, {0: "a", 1: "a", 2: "a"}, ["a", "b"])
    {0: 'b', 1: 'a', 2: 'a'}
    """
    found = {number: owner for number, owner in owners.items() if owner in workers}
    loads = dict.fromkeys(sorted(workers), 0.0)
    for number, owner in found.items():
        loads[str(owner)] += weights[number]
    vacant = [number for number in owners if number not in found]
    for number in sorted(vacant, key=lambda each: (-weights[each], each)):
        least = min(loads, key=loads.__getitem__)
        found[number] = least
        loads[least] += weights[number]
    fair = sum(weights.values()) / len(loads)
    for _ in weights:
        most, least = max(loads, key=loads.__getitem__), min(loads, key=loads.__getitem__)
        gap = loads[most] - loads[least]
        movable = [
            number
            for number, owner in found.items()
            if owner == most and weights[number] < gap * (1 - 1e-9)
        ]
        if loads[most] <= fair * (1 + TOLERANCE) or not movable:
            break
        # Moved, it leaves the smaller of the two loads as large as possible.
        best = min(movable, key=lambda each: (abs(weights[each] - gap / 2), each))
        found[best] = least
        loads[most] -= weights[best]
        loads[least] += weights[best]
    return {number: str(owner) for number, owner in sorted(found.items())}
