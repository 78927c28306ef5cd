"""Slices of a model that a read may name: the declared values, and those that have data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from calibrant_server.service.reads.queries import unanswerable
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.store.model_config import ModelConfig

MAX_LISTED = 50


def declared_slices(config: ModelConfig) -> set[str]:
    """Return the slices that a model declares, as `key:value`."""
    return {f"{key}:{each}" for key, values in config.slices.items() for each in values or ()}


@dataclass(frozen=True)
class KnownSlices:
    """Slices of a model as `key:value`, sorted, and their keys, of which a declared one may have no value yet."""

    names: Sequence[str]
    keys: Sequence[str]

    @classmethod
    async def of(cls, inbox: Inbox, config: ModelConfig) -> KnownSlices:
        """Return those that the model declares or has data of."""
        stored = await inbox.slices(config)
        names = sorted(declared_slices(config).union(filter(None, stored)))
        return cls(names, sorted({*config.slices, *(each.partition(":")[0] for each in names)}))

    def reject_others(self, names: Iterable[str], pointer: str = "/slice") -> None:
        """Reject slices that the model does not have."""
        for name in names:
            if name not in self.names:
                key, _, value = name.partition(":")
                values = [each.partition(":")[2] for each in self.names if each.startswith(f"{key}:")]  # fmt: skip
                known = f"a value of {key}: {_listed(value, values)}" if key in self.keys else self._a_key(key)  # fmt: skip
                detail = f"Received slice {name!r}; expected {known}."
                raise unanswerable(pointer, "undeclared_slice", detail)

    def reject_other_key(self, key: str) -> None:
        """Reject a key that the model does not have."""
        if key not in self.keys:
            detail = f"Received slice key {key!r}; expected {self._a_key(key)}."
            raise unanswerable("/by", "undeclared_slice", detail)

    def _a_key(self, wanted: str) -> str:
        return f"a key of the model: {_listed(wanted, self.keys)}"


def _listed(wanted: str, known: Sequence[str]) -> str:
    """List names, the nearest first."""
    shown = known[:MAX_LISTED]
    near = get_close_matches(wanted, shown, 1)
    more = ", …" if len(known) > MAX_LISTED else ""
    return ", ".join([*near, *(each for each in shown if each not in near)]) + more or "it has none"
