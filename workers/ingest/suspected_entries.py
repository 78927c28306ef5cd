"""Suspected entries: each is reduced alone, in a process that may die of it.

An entry that was read when a worker died is suspected of having killed it.
"""

from __future__ import annotations

from collections.abc import Callable

from calibrant_server.workers.ingest.commit_group import CommitGroup, Item
from calibrant_server.workers.ingest.reduce import Numerics, StoreReads
from calibrant_server.workers.ingest.sandbox import DisposableReducer, EntryKills, EntryRejected

# Time limit for one suspected entry in the sandbox: many times that of the largest accepted batch.
CHILD_TIMEOUT_S = 20.0
CHILD_MEMORY_BYTES = 2 << 30


class SuspectedEntries:
    """Reduces suspected entries of a partition.

    Parameters
    ----------
    look_up : reads the record and the model of entries
    reads : what a group reads from the store
    idle, busy : report that the partition waits, or works
    """

    def __init__(
        self,
        numerics: Numerics,
        *,
        look_up: Callable[[list[Item]], None],
        reads: Callable[[], StoreReads],
        idle: Callable[[], None],
        busy: Callable[[], None],
    ) -> None:
        self._numerics = numerics
        self._look_up, self._reads = look_up, reads
        self._idle, self._busy = idle, busy
        self._child = DisposableReducer(numerics, CHILD_TIMEOUT_S, CHILD_MEMORY_BYTES)

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def group_of(self, item: Item) -> CommitGroup:
        """Return the group of one suspected entry, reduced in a process that may die of it."""
        group = CommitGroup(self._numerics, reads=self._reads())
        self._look_up([item])
        entry, config = item.entry, item.config
        if (
            entry is None
            or config is None
            or item.is_known
            or config.generation != entry.generation
        ):
            group.add(item)
            return group
        # The sandbox has its own time limit: a loop that waits for it is not stuck.
        self._idle()
        try:
            reduction, n = self._child.reduce(entry, config)
        except EntryKills as death:
            item.dead_letter(str(death))
        except EntryRejected as error:
            item.judge(error)
        else:
            depends = reduction.has_ids or any(key.slice for key in reduction.touched)
            if depends:
                # It is harmless. Its changes depend on records and slices, which only the worker reads.
                group.add(item)
            else:
                group.add_reduced(item, reduction, n)
            return group
        finally:
            self._busy()
        group.items.append(item)
        return group
