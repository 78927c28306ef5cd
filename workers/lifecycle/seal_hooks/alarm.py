"""Pass sealed panes to the alarm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.core.pane import Pane
from calibrant_server.workers.alarm.cohort_assembly import take_sealed
from calibrant_server.workers.lifecycle.seal_hooks import SealedCohort
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig


def sealed(
    commit: Commit,
    keys: PartitionKeys,
    node: Any,
    config: ModelConfig,
    cohort: SealedCohort,
    panes: Mapping[str, Any],
) -> None:
    """Collect a sealed pane's cohort, or advance detectors by a complete one."""
    found = {slice_: pane for slice_, pane in panes.items() if isinstance(pane, Pane)}
    take_sealed(commit, keys, node, config, cohort.start_s, cohort.end_s, found)
