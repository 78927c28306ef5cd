"""Import of stored samples, by model and day."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from calibrant.accumulators.sample import WINDOW_BYTES, Sample
from calibrant.core.packing import MAGIC, PackingError
from calibrant.core.sampled_rows import is_possible
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_cache import SampleCache, SampleKey
from calibrant_server.workers.lifecycle.former_exports import former_sample
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.sampled import sampled_rows
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig


class ImportedSamples:
    """Samples that one entry of an import changes."""

    def __init__(
        self,
        node: Any,
        keys: PartitionKeys,
        numerics: Numerics,
        config: ModelConfig,
        sample_bytes: int,
    ):
        self._numerics = numerics
        self._config = config
        self._samples = SampleCache(node, keys, sample_bytes)

    @property
    def _are_stored(self) -> bool:
        return bool(self._numerics.keeps_samples and self._samples.max_bytes)

    def line(self, line: Mapping[str, Any]) -> None:
        """Add a `sample` line; raise PackingError where it is damaged."""
        if not self._are_stored:
            return
        model = (self._config.key, self._config.generation)
        sample_of_day = self._samples[SampleKey(*model, line["day"], line["sealed"])]
        if line["packed"] is None:
            sample_of_day.fall_to(line["halvings"])
            return
        spec, packed = self._numerics.spec(self._config), b64decode(line["packed"], validate=True)
        is_former = packed.startswith(MAGIC)
        rows = former_sample(packed, spec.task) if is_former else Rows.unpack(packed)
        if rows.scores.n_classes != spec.n_classes or (rows.fixed["count"] < 1).any():
            raise PackingError("Received a sample of another model.")
        if not is_possible(Sample.of_rows(spec, sampled_rows(rows), 0, WINDOW_BYTES).rows):
            raise PackingError("Received a sample with invalid predictions.")
        sample_of_day.add(rows, line["halvings"])

    def write(self, commit: Commit, token: bytes) -> None:
        """Write all changes into a commit."""
        if self._are_stored:
            self._samples.commit_with(commit, token)
