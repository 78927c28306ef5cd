"""The table of levels: which level the stored state of a model reaches at which age.

Housekeeping applies the rules to each model that is due, in the order of the table. When it is due follows from the same table.

Panes age at known times. Between them a model is examined again if a commit has changed something old of it, if its settings have
changed, or if another worker may have. Batches for the present time are not old: a model that receives them each minute is not examined
each minute. The times are cached in memory: a worker that takes a partition over examines every model once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import DAY_S

# Copies of cohorts; nothing, past the retention; panes of days; files. What is being removed is not merged any more.
SEALED, GONE, DAYS, FILES = "sealed", "gone", "days", "files"


class Rule(NamedTuple):
    """What reaches a level.

    Attributes
    ----------
    age_s : seconds after the end of a time slice; None for never
    step_s : length of these time slices
    """

    level: str
    age_s: float | None
    step_s: int

    def next_s(self, now_s: float) -> float:
        """Return when the end of the next time slice reaches the age, in seconds since the epoch."""
        if self.age_s is None:
            return math.inf
        n_past = math.floor((now_s - self.age_s) / self.step_s)
        return float((n_past + 1) * self.step_s + self.age_s)


def rules_of(config: ModelConfig, settings: EngineSettings) -> tuple[Rule, ...]:
    """Return the rules of a model.

    Examples
    --------
    >>> hourly = ModelConfig("default", "m", "binary", 2, retention_s=86_400)
    >>> for rule in rules_of(hourly, EngineSettings(compact_after_s=1_209_600)):
    ...     print(*rule)
    sealed None 3600
    gone 86400 3600
    days 1209600 86400
    files None 86400
    """
    pane_s = config.pane_s
    merges = settings.compact_after_s and DAY_S % pane_s == 0 and pane_s != DAY_S
    # A day ends with its last pane, which may be longer.
    moves = settings.cold_url is not None and settings.cold_after_s
    cold_s = settings.cold_after_s + max(pane_s - DAY_S, 0)
    return (
        Rule(SEALED, config.label_horizon_s, pane_s),
        Rule(GONE, config.retention_s, pane_s),
        Rule(DAYS, settings.compact_after_s if merges else None, DAY_S),
        Rule(FILES, cold_s if moves else None, DAY_S),
    )


def next_due_s(rules: Sequence[Rule], now_s: float, merged_to_s: float) -> float:
    """Return when panes reach their next level, in seconds since the epoch; infinity if they do not age.

    Parameters
    ----------
    merged_to_s : everything received before this time was merged: what is sealed depends on it
    """
    return min(rule.next_s(merged_to_s if rule.level == SEALED else now_s) for rule in rules)


def min_age_s(rules: Sequence[Rule]) -> float:
    """Return the least age at which something is done with a pane; infinity if nothing is."""
    return min((rule.age_s for rule in rules if rule.age_s is not None), default=math.inf)


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
