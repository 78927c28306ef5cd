"""State versions: what an answer about a window rests on.

A commit gives each pane it touches a version of its own (the commit's random token, so that a version lost in a crash
never comes again for other content), and notes it a second time as the slice's last change. While that stays, the
panes' versions read before are still right.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Any

from workers.alarm.view import DUPLICATES, alarm_version
from workers.state.keys import LAST_CHANGE, Keys
from workers.state.marks import Marks, fields_of, is_live
from workers.state.registry import ModelConfig
from workers.windows import Window

_SLICES_KEPT = 256
# Kinds of answers that rest on the alarm's state beside that of panes.
READ_ALARM = frozenset({"drift", "drift_difference", "drift_history", "expected_delay"})
# Kinds that rest on the alarm's state alone: what comes into panes is no news to who waits for them.
READ_NO_PANE = frozenset({"drift_history"})


def panes_in(found: dict[bytes, bytes], window: Window) -> dict[int, bytes]:
    """Versions of the panes of a window by start, from a slice's version hash."""
    starts = {
        int(start): version for start, version in found.items() if start != LAST_CHANGE.encode()
    }
    return {start: starts[start] for start in sorted(starts) if start in window}


def name_state(
    config: ModelConfig,
    slice_: str,
    window: Window,
    panes: dict[int, bytes],
    marks: Marks = Marks(),  # noqa: B008
    alarm: bytes = b"",
) -> str:
    """The name of the state: configuration, slice, window, how much of it is sealed, and every pane's version.

    `alarm` is the version of the alarm's last change, where it is read.
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


def joined(version: str, other: str) -> str:
    """The name of two states together."""
    return blake2b(f"{version}|{other}".encode(), digest_size=12).hexdigest()


def seed_of(state_version: str) -> int:
    """The seed of everything random in an answer, so that answers repeat."""
    return int(state_version[:15], 16)


class Versions:
    """State versions for the event loop; an unchanged slice costs one field."""

    def __init__(self, client: Any, keys: Keys):
        self._client = client
        self._keys = keys
        self._kept: OrderedDict[str, dict[bytes, bytes]] = OrderedDict()

    async def state_version(
        self, config: ModelConfig, slice_: str, window: Window, kind: str = ""
    ) -> str:
        """The name of the state that an answer of a kind about a window rests on now."""
        alarm = b""
        if kind in READ_ALARM:
            keys = self._keys.of_model(config.key)
            model = (config.key, config.generation)
            async with self._client.pipeline(transaction=False) as pipe:
                pipe.hget(keys.detectors(*model), LAST_CHANGE)
                pipe.hget(keys.tallies(*model), DUPLICATES)
                alarm = alarm_version(*await pipe.execute())
        found, marks = await self._read(config, slice_)
        window = marks.widened(window)
        panes = {} if kind in READ_NO_PANE else panes_in(found, window)
        return name_state(config, slice_, window, panes, marks, alarm)

    async def marks(self, config: ModelConfig, slice_: str) -> Marks:
        """How far the panes of a slice are sealed and merged into days."""
        name = self._keys.of_model(config.key).marks(config.key, config.generation)
        return Marks.read(await self._client.hmget(name, fields_of(slice_)))

    async def _read(self, config: ModelConfig, slice_: str) -> tuple[dict[bytes, bytes], Marks]:
        """Versions and marks, of one moment."""
        keys = self._keys.of_model(config.key)
        name = keys.versions(config.key, config.generation, slice_)
        marks_name = keys.marks(config.key, config.generation)
        kept = self._kept.get(name)
        async with self._client.pipeline(transaction=True) as pipe:
            pipe.hget(name, LAST_CHANGE)
            pipe.hmget(marks_name, fields_of(slice_))
            last, marks = await pipe.execute()
        if kept is None or last is None or kept.get(LAST_CHANGE.encode()) != last:
            async with self._client.pipeline(transaction=True) as pipe:
                pipe.hgetall(name)
                pipe.hmget(marks_name, fields_of(slice_))
                self._kept[name], marks = await pipe.execute()
        self._kept.move_to_end(name)
        kept = self._kept[name]
        while len(self._kept) > _SLICES_KEPT:
            self._kept.popitem(last=False)
        return kept, Marks.read(marks)
