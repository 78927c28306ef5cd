"""Values of slice keys that have panes of their own; other values are counted together.

Every value of a slice costs panes for their complete retention, so an open key has a maximum number of values. Rows of further
values fill the slice `key:other`, and the batch's outcome reports their number. A key declared with its values has room for
exactly these. A retained record stores the slices that it was filled into, so that it is subtracted from the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from calibrant.core.batch import Batch
from calibrant_server.workers.store.model_config import ModelConfig

OTHER = "other"
ReadSlices = Callable[[ModelConfig], Iterable[str]]


class SliceNames:
    """Values that have panes in the store, and those that entries of this group have added.

    Parameters
    ----------
    read : names of the slices, `key:value`, that have panes of a model
    most : values that an open key may have
    """

    def __init__(self, read: ReadSlices, most: int):
        self._read = read
        self._most = most
        self._by_model: dict[tuple[str, str], dict[str, set[str]]] = {}

    def name(self, config: ModelConfig, key: str, value: str) -> str:
        """Return the value under which rows of `value` are counted: itself, or `other`."""
        declared = config.slices.get(key)
        if declared is not None:
            return value if value in declared else OTHER
        values = self._values(config).setdefault(key, set())
        if value in values or value == OTHER:
            return value
        if len(values - {OTHER}) >= self._most:
            return OTHER
        values.add(value)
        return value

    def pairs(self, config: ModelConfig, slices: dict[str, str]) -> dict[str, str]:
        """Return the slices of one update as they are counted."""
        return {key: self.name(config, key, value) for key, value in sorted(slices.items())}

    def batch(
        self, config: ModelConfig, batch: Batch, counts: Sequence[bool] | None = None
    ) -> tuple[Batch, dict[str, int]]:
        """Return a batch with its slices as they are counted, and the number of rows in `other` by key.

        Parameters
        ----------
        counts : whether each row counts; None: all count. A row that does not count takes no room and is unchanged
        """
        columns, other = {}, {}
        for key, column in (batch.slices or {}).items():
            values: list[str] = np.asarray(column).astype(str).tolist()
            counted = [True] * len(values) if counts is None else counts
            wanted = {value for value, counts_ in zip(values, counted, strict=True) if counts_}
            names = {value: self.name(config, key, value) for value in sorted(wanted)}
            named = [
                names[value] if counts_ else value
                for value, counts_ in zip(values, counted, strict=True)
            ]
            n_changed = sum(name != value for name, value in zip(named, values, strict=True))
            if n_changed:
                columns[key] = np.array(named, dtype=object)
                other[key] = n_changed
        if not columns:
            return batch, {}
        return replace(batch, slices={**(batch.slices or {}), **columns}), other

    def _values(self, config: ModelConfig) -> dict[str, set[str]]:
        model = (config.key, config.generation)
        if model not in self._by_model:
            known = self._by_model[model] = {}
            for each in self._read(config):
                key, _, value = each.partition(":")
                known.setdefault(key, set()).add(value)
        return self._by_model[model]
