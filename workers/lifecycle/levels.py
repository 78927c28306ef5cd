"""The table of levels: which level the stored state of a model reaches at which age.

Housekeeping applies the rules to each model that is due, in the order of the table. When it is due follows from the same table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
