"""State versions: the state that a result about a window depends on.

A commit gives each changed pane a unique version (the commit's random token, so that a version lost in a crash
never recurs for other content), and also records it as the slice's last change. While that is unchanged, the
panes' versions read before are still valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from cachetools import LRUCache

from calibrant_server.workers.queries.query import Needs
from calibrant_server.workers.store.key_names import LAST_CHANGE, Keys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.slice_names import is_live
from calibrant_server.workers.store.watermarks import Watermarks, fields_of
from calibrant_server.workers.store.windows import Window

_MAX_SLICES = 256
PANES = Needs()


def panes_in(found: dict[bytes, bytes], window: Window) -> dict[int, bytes]:
    """Return versions of the panes of a window by start, from a slice's version hash."""
    last, from_s, to_s = LAST_CHANGE.encode(), window.from_s, window.to_s
    starts = [(int(name), version) for name, version in found.items() if name != last]
    return dict(sorted(each for each in starts if from_s <= each[0] < to_s))


def name_state(
    config: ModelConfig,
    slice_: str,
    window: Window,
    panes: dict[int, bytes],
    marks: Watermarks = Watermarks(),  # noqa: B008
    alarm: bytes = b"",
) -> str:
    """Return the name of the state: configuration, slice, window, sealed and merged limits, and every pane's version.

    `alarm` is the version of the alarm's last change, if it is read.
    """
    digest = blake2b(digest_size=12)
    digest.update(f"{config.key}|{config.generation}|{config.revision}|{slice_}".encode())
    digest.update(f"|{window.from_s}|{window.to_s}".encode())
    if config.label_horizon_s is not None and is_live(slice_) and marks.sealed_to > window.from_s:
        digest.update(b"|sealed %d" % min(marks.sealed_to, window.to_s))
    for start, version in panes.items():
        digest.update(b"|%d:%s" % (start, version))
    if alarm:
        digest.update(b"|alarm:" + alarm)
    return digest.hexdigest()


def with_records(version: str, panes: Iterable[int], marks: Watermarks) -> str:
    """Return the name of a state whose records are also read.

    Commits change records together with panes. But records of a day that has partly exceeded its retention are no longer
    returned while its complete pane is still stored. If the window contains such a pane, the name includes the limit of retention.

    Parameters
    ----------
    panes : starts of the window's panes in seconds, oldest first
    """
    first = next(iter(panes), marks.kept_from)
    return version if first >= marks.kept_from else joined(version, f"kept from {marks.kept_from}")


def joined(version: str, other: str) -> str:
    """Return the name of two states together."""
    return blake2b(f"{version}|{other}".encode(), digest_size=12).hexdigest()


@dataclass(frozen=True)
class SliceState:
    """State of a slice at one moment.

    Attributes
    ----------
    panes : version of every pane by its start, as stored
    marks : limits up to which panes are sealed and merged into days
    alarm : the version of the alarm's last change, if requested
    reads_records : whether retained records are also read
    """

    config: ModelConfig
    slice: str
    panes: dict[bytes, bytes]
    marks: Watermarks
    alarm: bytes = b""
    reads_records: bool = False

    @classmethod
    def of(
        cls,
        needs: Needs,
        config: ModelConfig,
        slice_: str,
        panes: dict[bytes, bytes],
        marks: Watermarks,
        alarm: bytes,
    ) -> SliceState:
        """Return the state that a result with these needs depends on. Without panes, new ones do not change it."""
        return cls(
            config, slice_, {} if needs.panes == "none" else panes, marks, alarm, needs.records
        )

    def name(self, window: Window) -> str:
        """Return the name of the state that a result about a window depends on."""
        window = self.marks.widened(window)
        panes = panes_in(self.panes, window)
        version = name_state(self.config, self.slice, window, panes, self.marks, self.alarm)
        return with_records(version, panes, self.marks) if self.reads_records else version

    def without_alarm(self) -> SliceState:
        """Return the state that results about panes alone depend on."""
        return replace(self, alarm=b"")


class Versions:
    """Reader of state versions for the event loop; an unchanged slice costs one field."""

    def __init__(self, client: Any, keys: Keys):
        self._client = client
        self._keys = keys
        self._by_slice: LRUCache[str, dict[bytes, bytes]] = LRUCache(_MAX_SLICES)

    async def state_version(
        self, config: ModelConfig, slice_: str, window: Window, needs: Needs = PANES
    ) -> str:
        """Return the name of the state that a result about a window depends on now."""
        return (await self.state(config, slice_, needs)).name(window)

    async def state(self, config: ModelConfig, slice_: str, needs: Needs = PANES) -> SliceState:
        """Return the state that results about a slice depend on now; one read if nothing has changed."""
        name, _, last, marks, alarm = await self._look(config, slice_, needs)
        stored = self._known(name, last)
        if stored is None:
            keys = self._keys.of(config)
            reads = ReadTogether()
            reads.hgetall(name)
            reads.hmget(keys.marks(config.key, config.generation), fields_of(slice_))
            stored, marks = await reads.run_async(self._client)
            self._by_slice[name] = stored
        return SliceState.of(needs, config, slice_, stored, Watermarks.read(marks), alarm)

    async def unchanged_state(
        self, config: ModelConfig, slice_: str, needs: Needs = PANES
    ) -> SliceState | None:
        """Return the state with one read, if model configuration and slice are unchanged since the last read; else None."""
        name, text, last, marks, alarm = await self._look(config, slice_, needs)
        stored = self._known(name, last)
        if stored is None or text != config.to_json():
            return None
        return SliceState.of(needs, config, slice_, stored, Watermarks.read(marks), alarm)

    async def n_panes(self, config: ModelConfig, slices: Sequence[str]) -> list[int]:
        """Return how many panes each slice has, in any window: one read."""
        keys = self._keys.of(config)
        async with self._client.pipeline(transaction=False) as pipe:
            for slice_ in slices:
                pipe.hlen(keys.versions(config.key, config.generation, slice_))
            return [int(n) for n in await pipe.execute()]

    async def marks(self, config: ModelConfig, slice_: str) -> Watermarks:
        """Return the limits up to which the panes of a slice are sealed and merged into days."""
        name = self._keys.of(config).marks(config.key, config.generation)
        return Watermarks.read(await self._client.hmget(name, fields_of(slice_)))

    async def _look(
        self, config: ModelConfig, slice_: str, needs: Needs
    ) -> tuple[str, Any, Any, Any, bytes]:
        """Return the key of the slice's versions, with the model's configuration, the slice's last change, its marks
        and the alarm's last change at one moment."""
        keys = self._keys.of(config)
        name = keys.versions(config.key, config.generation, slice_)
        reads = ReadTogether()
        reads.hget(keys.models, config.key)
        reads.hget(name, LAST_CHANGE)
        reads.hmget(keys.marks(config.key, config.generation), fields_of(slice_))
        if needs.alarm:
            reads.hget(keys.detectors(config.key, config.generation), LAST_CHANGE)
        text, last, marks, *alarm = await reads.run_async(self._client)
        return name, text, last, marks, (alarm and alarm[0]) or b""

    def _known(self, name: str, last: bytes | None) -> dict[bytes, bytes] | None:
        """Return the panes' versions read before, if nothing has changed since."""
        stored = self._by_slice.get(name)
        if stored is None or last is None or stored.get(LAST_CHANGE.encode()) != last:
            return None
        return stored
