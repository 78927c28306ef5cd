"""Samples in the panes of baselines. Deleted predictions are removed from them. Nothing else of a baseline ever changes."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.accumulators.sample import Sample
from calibrant.core.hashing import U64
from calibrant.core.packing import PackingError
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.key_names import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import baseline_slice

if TYPE_CHECKING:
    from calibrant_server.workers.ingest.reduce import Numerics

log = logging.getLogger(__name__)

START_S = 0
_PART = "sample"


@dataclass
class BaselineSamples:
    """Changed samples of baselines, until the commit.

    Attributes
    ----------
    changed : by the pane of the baseline
    """

    node: Any
    keys: PartitionKeys
    numerics: Numerics

    def __post_init__(self) -> None:
        self.changed: dict[PaneKey, Sample] = {}

    def forget(self) -> None:
        """Drop what is not committed."""
        self.changed.clear()

    def erase(self, config: ModelConfig, start_s: int, hashes: U64) -> None:
        """Remove predictions of a pane from the baselines whose window has it."""
        model = (config.key, config.generation)
        for name, text in self.node.hgetall(self.keys.baselines(*model)).items():
            from_s, to_s = json.loads(text)["window"]
            if not from_s <= start_s < to_s:
                continue
            key = PaneKey(*model, baseline_slice(name.decode()), START_S)
            sample = self.changed.get(key) or self._read(config, key)
            if sample is None:
                continue
            stays = ~np.isin(sample.rows.ids, hashes)
            if not stays.all():
                self.changed[key] = Sample.of_rows(
                    sample.spec, sample.rows.take(np.flatnonzero(stays)), sample.halvings, sample.max_bytes
                )  # fmt: skip

    def _read(self, config: ModelConfig, key: PaneKey) -> Sample | None:
        packed = self.node.hget(self.keys.pane(key), _PART)
        if packed is None:
            return None
        spec = self.numerics.spec(config)
        try:
            return Sample.unpack(spec, packed)
        except PackingError:
            # No query can read it, and it may have the rows.
            log.exception("sample_of_baseline_removed model=%s", config.key)
            self.changed[key] = Sample(spec)
            return None

    def write(self, commit: Commit, version: bytes) -> None:
        """Write the changes into a commit."""
        for key, sample in self.changed.items():
            if sample.is_empty:
                commit.drop_fields(self.keys.pane(key), [_PART])
            else:
                commit.set_fields(self.keys.pane(key), {_PART: sample.pack()})
            versions = self.keys.versions(key.model, key.generation, key.slice)
            commit.set_fields(versions, {str(key.start_s): version, LAST_CHANGE: version})
        self.changed.clear()
