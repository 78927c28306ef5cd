"""When the models of a partition need housekeeping next, so that a pass examines these alone.

Panes age at known times. Between them a model is examined again if a commit has changed something old of it, if its settings have
changed, or if another worker may have. Batches for the present time are not old: a model that receives them each minute is not examined
each minute. The times are cached in memory: a worker that takes a partition over examines every model once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import DAY_S

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


def next_due_s(
    config: ModelConfig,
    now_s: float,
    merged_to_s: float,
    compact_after_s: float,
    cold_after_s: float = 0.0,
) -> float:
    """Return when a model's panes reach their next age, in seconds since the epoch; infinity if they do not age.

    Parameters
    ----------
    now_s : of the examination
    merged_to_s : everything received before this time was merged then
    compact_after_s : age at which days are merged; 0 for never
    cold_after_s : age at which days are moved to files; 0 for never

    Examples
    --------
    >>> hourly = ModelConfig("default", "m", "binary", 2, retention_s=86_400)
    >>> next_due_s(hourly, 100_000.0, 100_000.0, 0.0)
    100800.0
    """
    pane_s = config.pane_s
    times = [math.inf]
    if config.label_horizon_s is not None:
        times.append(_next(merged_to_s, config.label_horizon_s, pane_s))
    if config.retention_s is not None:
        times.append(_next(now_s, config.retention_s, pane_s))
    if compact_after_s and DAY_S % pane_s == 0 and pane_s != DAY_S:
        times.append(_next(now_s, compact_after_s, DAY_S))
    if cold_after_s:
        # A day ends with its last pane, which may be longer.
        times.append(_next(now_s - max(pane_s - DAY_S, 0), cold_after_s, DAY_S))
    return min(times)


def min_age_s(config: ModelConfig, compact_after_s: float, cold_after_s: float = 0.0) -> float:
    """Return the least age at which something is done with a pane; infinity if nothing is.

    Examples
    --------
    >>> min_age_s(ModelConfig("default", "m", "binary", 2, retention_s=86_400), 1_209_600.0)
    86400
    """
    ages = (config.label_horizon_s, config.retention_s, compact_after_s or None)
    found = [age for age in (*ages, cold_after_s or None) if age is not None]
    return min(found, default=math.inf)


def _next(now_s: float, age_s: float, length_s: int) -> float:
    """Return when the next boundary of a length reaches an age."""
    return float((math.floor((now_s - age_s) / length_s) + 1) * length_s + age_s)


def _name(config: ModelConfig) -> tuple[str, str]:
    return config.key, config.generation
