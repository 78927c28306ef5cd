"""The panes of the baseline `reference`, the past of its model: one for each of its days, or one of everything."""

from __future__ import annotations

import json
from typing import Any

from calibrant_server.workers.ingest.baseline_samples import START_S
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import read_pane
from calibrant_server.workers.store.key_names import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import BaselineRecord, ModelConfig
from calibrant_server.workers.store.slice_names import (
    REFERENCE,
    baseline_slice,
    reference_days_slice,
)

MIN_DAYS = 7  # with labels, to count as days: fewer do not show how days vary


def reference_panes(
    node: Any, keys: PartitionKeys, config: ModelConfig
) -> tuple[list[Any], BaselineRecord] | None:
    """Return the panes of a model's reference in order, and its record; None without a reference."""
    model = (config.key, config.generation)
    text = node.hget(keys.baselines(*model), REFERENCE)
    if text is None:
        return None
    days = node.hkeys(keys.versions(*model, reference_days_slice()))
    starts = sorted(int(each) for each in days if each != LAST_CHANGE.encode())
    places = [(reference_days_slice(), each) for each in starts]
    places = places or [(baseline_slice(REFERENCE), START_S)]
    panes = [
        read_pane(node, keys, Numerics(), config, PaneKey(*model, *each))[0] for each in places
    ]
    return panes, json.loads(text)
