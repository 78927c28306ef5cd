"""The reference of a model: the baseline of that name, one block of predictions with labels before the first live cohort."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calibrant.core.pane import Pane
from calibrant.drift.change import Effects
from calibrant.drift.evaluation import effects_of
from calibrant.drift.unit_tables import UnitTable
from calibrant_server.workers.ingest.baseline_samples import START_S
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import read_pane
from calibrant_server.workers.store.keys import PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import baseline_slice
from calibrant_server.workers.store.windows import Window

REFERENCE = "reference"


@dataclass(frozen=True)
class Before:
    """What is before the first live cohort of a detector.

    Attributes
    ----------
    block : effects of the reference as one block, None without a reference
    window : of the live data that it was frozen from: their cohorts are not counted again
    """

    block: Effects | None = None
    window: Window = Window(0, 0)  # noqa: RUF009


@dataclass(frozen=True)
class Reference:
    """Tables of the reference by detector, empty without one; and the window of live data that it was frozen from."""

    tables: Mapping[str, UnitTable] = field(default_factory=dict)
    window: Window = Window(0, 0)  # noqa: RUF009

    def of(self, name: str) -> Before:
        """Return what is before the first live cohort of a detector."""
        table = self.tables.get(name)
        if table is None or not table.n_units:
            return Before()
        return Before(effects_of([table]), self.window)


def read_reference(
    node: Any, keys: PartitionKeys, config: ModelConfig
) -> tuple[Pane, Window] | None:
    """Return the pane of the reference and the window that it was frozen from; None without a reference."""
    text = node.hget(keys.baselines(config.key, config.generation), REFERENCE)
    if text is None:
        return None
    key = PaneKey(config.key, config.generation, baseline_slice(REFERENCE), START_S)
    pane = read_pane(node, keys, Numerics(), config, key)[0]
    return pane, Window(*json.loads(text)["window"])
