"""Import of stored samples: by model and day, or of exports in which each pane has its own."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from calibrant.accumulators.sample import WINDOW_BYTES, Sample
from calibrant.core.packing import PackingError
from calibrant.core.routing import ALL_ROWS
from calibrant.core.sampled_rows import is_possible
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_cache import SampleCache, SampleKey
from calibrant_server.workers.ingest.sample_rows import SampleRows
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import plain_slice


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
        rows = SampleRows.unpack(b64decode(line["packed"], validate=True))
        spec = self._numerics.spec(self._config)
        if rows.rows.scores.shape[1] != spec.n_classes or (rows.rows.counts < 1).any():
            raise PackingError("Received a sample of another model.")
        if not is_possible(Sample.of_rows(spec, rows.rows, 0, WINDOW_BYTES).rows):
            raise PackingError("Received a sample with invalid predictions.")
        sample_of_day.add(rows, line["halvings"])

    def of_pane(self, key: PaneKey, packed: bytes) -> None:
        """Add the sample of a pane of format 1; raise PackingError where it is damaged.

        The pane of all rows comes before those of its slices, which only say in which slices its rows are.
        """
        sample = Sample.unpack(self._numerics.spec(self._config), packed)
        if not self._are_stored:
            return
        sample_of_day = self._samples[SampleKey.of(key)]
        name = plain_slice(key.slice)
        rows = SampleRows.of_sample(sample, key.start_s, {})
        if name == ALL_ROWS:
            sample_of_day.add(rows, sample.halvings)
            return
        stored = sample_of_day.all_rows()
        if stored is not None:
            sample_of_day.replace(stored.labelled(rows, *name.split(":", 1)))

    def write(self, commit: Commit, token: bytes) -> None:
        """Write all changes into a commit."""
        if self._are_stored:
            self._samples.commit_with(commit, token)
