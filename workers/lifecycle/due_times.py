"""When the models of a partition need housekeeping next, so that a pass examines these alone.

Panes age at known times. Between them a model is examined again if a commit has changed something old of it, if its settings have
changed, or if another worker may have. Batches for the present time are not old: a model that receives them each minute is not examined
each minute. The times are cached in memory: a worker that takes a partition over examines every model once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from calibrant_server.workers.store.model_config import ModelConfig

# By model and generation: the start of the earliest time slice that changed, minus infinity if something else did.
Changes = Mapping[tuple[str, str], float]


class DueTimes:
    """Time of the next examination by model, in seconds since the epoch; a model without one is due."""

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], tuple[int, float]] = {}
        self._examined_s = -math.inf

    def due(
        self,
        configs: Iterable[ModelConfig],
        changed: Changes | None,
        now_s: float,
        min_age_s: Callable[[ModelConfig], float],
    ) -> list[ModelConfig]:
        """Return the models to be examined now. Each stays due until it is `done`.

        Parameters
        ----------
        changed : what commits have changed; None where anything may have changed
        min_age_s : the least age at which something is done with a pane of a model
        """
        # A clock that was ahead has set times that are too late.
        if changed is None or now_s < self._examined_s:
            self._due.clear()
        self._examined_s = now_s
        every = {_name(config): config for config in configs}
        for name in self._due.keys() - every.keys():
            del self._due[name]
        for name, start_s in (changed or {}).items():
            if name in self._due and start_s <= now_s - min_age_s(every[name]):
                del self._due[name]
        return [config for name, config in every.items() if self._is_due(name, config, now_s)]

    def done(self, config: ModelConfig, next_s: float) -> None:
        """Record that a model was examined, and when it will be due."""
        self._due[_name(config)] = (config.revision, next_s)

    def _is_due(self, name: tuple[str, str], config: ModelConfig, now_s: float) -> bool:
        revision, next_s = self._due.get(name, (-1, 0.0))
        return revision != config.revision or now_s >= next_s


def _name(config: ModelConfig) -> tuple[str, str]:
    return config.key, config.generation
