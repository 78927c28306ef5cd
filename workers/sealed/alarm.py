"""The alarm sees what is sealed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant.pane import Pane
from workers.alarm.gathering import take_sealed
from workers.sealed import Cohort
from workers.state.commit import Commit
from workers.state.keys import PartitionKeys
from workers.state.registry import ModelConfig


def sealed(
    commit: Commit,
    keys: PartitionKeys,
    node: Any,
    config: ModelConfig,
    cohort: Cohort,
    panes: Mapping[str, Any],
) -> None:
    """Gather a sealed pane's cohort, or let detectors see one that is whole."""
    found = {slice_: pane for slice_, pane in panes.items() if isinstance(pane, Pane)}
    take_sealed(commit, keys, node, config, cohort.start_s, cohort.end_s, found)
