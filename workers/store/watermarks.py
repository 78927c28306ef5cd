"""Watermarks: how far a model's panes are dropped, sealed and merged into days, and how far its sources were accepted.

The watermarks of a model change only in commits of its partition's worker, together with the panes that they describe. A
reader that reads watermarks, versions and panes in one transaction sees them agree.
That of a source moves in the step that appends a batch (`scripts/append_group.lua`), and offsets of later batches are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant_server.workers.store.key_names import LAST_CHANGE, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.script import StorePart
from calibrant_server.workers.store.slice_names import is_baseline, is_live
from calibrant_server.workers.store.windows import Window

DAY_S = 86_400
KEPT_FROM, SEALED_TO = "kept_from", "sealed_to"
ERASED = "erased"  # number of predictions that were deleted
RATED = "rated"  # 1 if named raters rated, in a model with a label horizon
INDEXED = (
    "indexed"  # 1 if the index of records is complete, which models without a label horizon lack
)


def day_of(start_s: int) -> int:
    """Return the start of the day of a pane.

    >>> day_of(90_000)
    86400
    """
    return start_s - start_s % DAY_S


def daily_to(slice_: str) -> str:
    """Return the field of a slice's watermark of days."""
    return f"d|{slice_}"


def latest_day(found: Mapping[bytes, bytes]) -> int:
    """Return the latest watermark of days of the slices that batches fill, from all watermarks of a model."""
    head = daily_to("").encode()
    return max(
        (
            int(value)
            for name, value in found.items()
            if name.startswith(head) and is_live(name.removeprefix(head).decode())
        ),
        default=0,
    )


def fields_of(slice_: str) -> list[str]:
    """Return the fields that `Watermarks.read` takes."""
    return [KEPT_FROM, SEALED_TO, daily_to(slice_), INDEXED]


@dataclass(frozen=True)
class Watermarks:
    """Watermarks of one slice, in seconds since the epoch.

    Attributes
    ----------
    kept_from : panes that began earlier are past their retention
    sealed_to : cohorts that ended by then are sealed
    daily_to : panes that begin earlier are one day long
    indexed : 1 if the index of the model's records is complete, else 0
    """

    kept_from: int = 0
    sealed_to: int = 0
    daily_to: int = 0
    indexed: int = 0

    @classmethod
    def read(cls, values: Sequence[bytes | None]) -> Watermarks:
        """Create from the values of `fields_of`."""
        return cls(*(int(value or 0) for value in values))

    @classmethod
    def of(cls, slice_: str, found: Mapping[bytes, bytes]) -> Watermarks:
        """Create from all watermarks of a model."""
        return cls.read([found.get(name.encode()) for name in fields_of(slice_)])

    def start(self, start_s: int) -> int:
        """Return the start of the pane that now contains the pane of `start_s`."""
        return start_s - start_s % DAY_S if start_s < self.daily_to else start_s

    def starts(self, starts_s: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return `start` of several."""
        return np.where(starts_s < self.daily_to, starts_s - starts_s % DAY_S, starts_s)

    def length(self, start_s: int, pane_s: int) -> int:
        """Return the length of the pane that begins at `start_s`."""
        return max(DAY_S, pane_s) if start_s < self.daily_to else pane_s

    def widened(self, window: Window) -> Window:
        """Return the window widened to the boundaries that still exist."""
        to_s = window.to_s
        if to_s < self.daily_to:
            to_s = -(-to_s // DAY_S) * DAY_S
        return Window(self.start(window.from_s), to_s)


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


class Sources(StorePart):
    """The sources of a store, for the event loop."""

    async def watermark(self, config: ModelConfig, name: str) -> int | None:
        """Return the number after the last accepted message of a source; None before its first batch.

        Raises
        ------
        StoreUnavailableError
        """
        marks = self._keys.of(config).marks(config.key, config.generation)
        found = await self._retried(lambda: self._client.hget(marks, f"source:{name}"))
        return None if found is None else int(found)
