"""Reports that one request could not finish: the states of the slices whose results are computed, for the request that continues.

It uses these results although data have arrived since, so that a report of a model with steady traffic is finished too. Each slice is of one state;
the states of two slices are at most `KEPT_S` apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.windows import Window

KEPT_S = 300


class StateOfSlice(NamedTuple):
    """State of a slice that a result was computed from."""

    window: Window
    version: str


class UnfinishedReports:
    """The unfinished reports of a store, for the event loop. A report is named by a digest of all that it depends on but data."""

    def __init__(self, client: Any, keys: Keys):
        self._client, self._keys = client, keys

    async def states(self, name: str) -> dict[str, StateOfSlice]:
        """Return the states by slice; none of a report that is new, or was left too long ago."""
        stored = await self._client.get(self._keys.unfinished_report(name))
        found = json.loads(stored or "{}")
        return {
            slice_: StateOfSlice(Window(*window), version)
            for slice_, (window, version) in found.items()
        }

    async def end(self, name: str) -> None:
        """Drop the states of a report that is finished: the next one is of the state that the model has then."""
        await self._client.delete(self._keys.unfinished_report(name))

    async def leave(self, name: str, states: Mapping[str, StateOfSlice], continues: bool) -> None:
        """Store the states that a request leaves.

        Parameters
        ----------
        continues : whether it used states of an earlier request, so that the time since that one counts
        """
        text = json.dumps({s: ((w.from_s, w.to_s), version) for s, (w, version) in states.items()})
        lasts: dict[str, Any] = {"xx": True, "keepttl": True} if continues else {"ex": KEPT_S}
        await self._client.set(self._keys.unfinished_report(name), text, **lasts)
