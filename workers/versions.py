"""State versions: what an answer about a window rests on.

A commit gives each pane it touches a version of its own (the commit's random token, so that a version lost in a crash
never comes again for other content), and notes it a second time as the slice's last change. While that stays, the
panes' versions read before are still right.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Any

from workers.state.keys import LAST_CHANGE, Keys
from workers.state.registry import ModelConfig
from workers.windows import Window

_SLICES_KEPT = 256
# Kinds of answers that rest on the alarm's state beside that of panes.
READ_ALARM = frozenset({"drift", "drift_history", "expected_delay"})


def panes_in(found: dict[bytes, bytes], window: Window) -> dict[int, bytes]:
    """Versions of the panes of a window by start, from a slice's version hash."""
    starts = {
        int(start): version for start, version in found.items() if start != LAST_CHANGE.encode()
    }
    return {start: starts[start] for start in sorted(starts) if start in window}


def name_state(
    config: ModelConfig, slice_: str, window: Window, panes: dict[int, bytes], alarm: bytes = b""
) -> str:
    """The name of the state: configuration, slice, window, every pane's version, and the alarm's where it is read."""
    digest = blake2b(digest_size=12)
    digest.update(f"{config.key}|{config.generation}|{config.revision}|{slice_}".encode())
    digest.update(f"|{window.from_s}|{window.to_s}".encode())
    for start, version in panes.items():
        digest.update(b"|%d:%s" % (start, version))
    if alarm:
        digest.update(b"|alarm:" + alarm)
    return digest.hexdigest()


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
        keys = self._keys.of_model(config.key)
        alarm = b""
        if kind in READ_ALARM:
            detectors = keys.detectors(config.key, config.generation)
            alarm = await self._client.hget(detectors, LAST_CHANGE) or b""
        found = await self._read(keys.versions(config.key, config.generation, slice_))
        return name_state(config, slice_, window, panes_in(found, window), alarm)

    async def _read(self, name: str) -> dict[bytes, bytes]:
        kept = self._kept.get(name)
        last = await self._client.hget(name, LAST_CHANGE)
        if kept is None or last is None or kept.get(LAST_CHANGE.encode()) != last:
            kept = self._kept[name] = await self._client.hgetall(name)
        self._kept.move_to_end(name)
        while len(self._kept) > _SLICES_KEPT:
            self._kept.popitem(last=False)
        return kept
