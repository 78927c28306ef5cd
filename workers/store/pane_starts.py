"""Starts of the stored panes of a model, by slice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrant_server.workers.store.keys import LAST_CHANGE, PartitionKeys
from calibrant_server.workers.store.slice_names import is_baseline


def pane_starts(
    node: Any,
    keys: PartitionKeys,
    model: tuple[str, str],
    wanted: Callable[[str], bool] = lambda slice_: not is_baseline(slice_),
) -> dict[str, list[int]]:
    """Return the starts of the panes of each wanted slice, ascending. By default, baselines are left out, which do not age."""
    members = sorted(member.decode() for member in node.smembers(keys.slices(*model)))
    slices = list(filter(wanted, members))
    with node.pipeline(transaction=False) as pipe:
        for slice_ in slices:
            pipe.hkeys(keys.versions(*model, slice_))
        replies = pipe.execute() if slices else []
    return {
        slice_: sorted(int(name) for name in names if name != LAST_CHANGE.encode())
        for slice_, names in zip(slices, replies, strict=True)
    }
