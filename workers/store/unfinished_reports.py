"""Reports that one request could not finish: the states of the slices whose results are computed, for the request that continues.

It uses these results although data have arrived since, so that a report of a model with steady traffic is finished too. Each slice is of
one state; the states of two slices are at most `KEPT_S` apart. After the deletion of a prediction none is used: it would still be in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import ERASED
from calibrant_server.workers.store.windows import Window

KEPT_S = 300


@dataclass(frozen=True)
class UnfinishedReport:
    """What earlier requests have computed of a report.

    Attributes
    ----------
    n_erased : deleted predictions of the model; none of these states is older than the last deletion
    versions : states by slice, of this window
    """

    window: Window
    n_erased: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)


class UnfinishedReports:
    """The unfinished reports of a store, for the event loop. A report is named by a digest of all that it depends on but data."""

    def __init__(self, client: Any, keys: Keys):
        self._client, self._keys = client, keys

    async def read(self, config: ModelConfig, name: str, window: Window) -> UnfinishedReport:
        """Return what is computed of a report; nothing if it is new, was left too long ago, or for another window."""
        n_erased = await self.n_erased(config)
        stored = await self._client.get(self._keys.unfinished_report(name))
        if stored is not None:
            from_s, to_s, n_then, versions = json.loads(stored)
            if (Window(from_s, to_s), n_then) == (window, n_erased):
                return UnfinishedReport(window, n_erased, versions)
        return UnfinishedReport(window, n_erased)

    async def n_erased(self, config: ModelConfig) -> int:
        """Return how many predictions of a model were deleted."""
        marks = self._keys.of(config).marks(config.key, config.generation)
        return int(await self._client.hget(marks, ERASED) or 0)

    async def leave(self, name: str, report: UnfinishedReport, continues: bool) -> None:
        """Store what is computed.

        Parameters
        ----------
        continues : whether states of an earlier request are among it, so that the time since that one counts
        """
        window = report.window
        text = json.dumps([window.from_s, window.to_s, report.n_erased, dict(report.versions)])
        lasts: dict[str, Any] = {"xx": True, "keepttl": True} if continues else {"ex": KEPT_S}
        await self._client.set(self._keys.unfinished_report(name), text, **lasts)

    async def end(self, name: str) -> None:
        """Forget a report that is archived: the next one is of the state that the model has then."""
        await self._client.delete(self._keys.unfinished_report(name))
