"""False alarms: of one detector, a rate such as "1 per P10Y" as a threshold; of many, the slices that changed.

The average run length to a false alarm is at least the threshold, in cohorts. The rule does not depend on the scores. Slices,
classes and raters overlap, so the rule for many holds under any dependence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from calibrant.core.durations import parse_duration

DEFAULT_FALSE_ALARMS = "1 per P10Y"
DAY_S = 86_400
YEAR_DAYS = 365
_SETTING = re.compile(r"([1-9]\d{0,5}) per P(?:(\d{1,6})Y)?([\dWDTH]*)", re.ASCII)


@dataclass(frozen=True)
class FalseAlarms:
    """At most `alarms` false alarms in `period_s` seconds, on average."""

    alarms: int
    period_s: int

    @classmethod
    def parse(cls, text: str) -> FalseAlarms:
        """Read "1 per P10Y": a number, "per", an ISO 8601 duration in years of 365 days, weeks, days, hours.

        ValueError: Another form, or a period of zero.
        """
        alarms, years, rest = found.groups() if (found := _SETTING.fullmatch(text)) else (0, 0, "")
        period = int(years or 0) * YEAR_DAYS * DAY_S
        try:
            period += int(parse_duration(f"P{rest}")) if rest else 0
        except ValueError:
            period = 0
        if not period:
            raise ValueError(
                'expected a rate such as "1 per P10Y": a number, then an ISO 8601 duration'
            )
        return cls(int(alarms), period)

    def run_length(self, cohort_s: float) -> float:
        """Return the mean number of cohorts until a false alarm: the threshold of a single detector.

        ValueError: Cohorts of length zero, or more alarms than cohorts.

        >>> FalseAlarms.parse("1 per P10Y").run_length(86400)
        3650.0
        """
        if not cohort_s > 0:
            raise ValueError("expected a cohort longer than 0 s")
        length = self.period_s / (self.alarms * cohort_s)
        if length <= 1.0:
            raise ValueError(
                "expected fewer false alarms than cohorts, because otherwise every evaluation could be an alarm"
            )
        return length


def flagged(p: Mapping[str, float], false_share: float = 0.05) -> list[str]:
    """Return slices that changed by their p-values, smallest first, so that on average at most a share of flagged ones is due to chance.

    p : each slice's p-value of the last cohort

    ValueError: `false_share` outside (0, 1).

    Source: Benjamini and Yekutieli, The control of the false discovery rate in multiple testing under dependency (Ann Stat 2001).

    >>> flagged({"a": 1e-4, "b": 0.01, "c": 1.0, "d": 0.5})
    ['a', 'b']
    """
    if not 0.0 < false_share < 1.0:
        raise ValueError(f"Received false_share={false_share}; expected a number in (0, 1).")
    names = sorted(p, key=lambda name: (p[name], name))
    rank = np.arange(1, len(names) + 1)
    limit = rank * false_share / (max(len(names), 1) * (1.0 / rank).sum())
    enough = np.flatnonzero(np.array([p[name] for name in names]) <= limit)
    return names[: int(enough[-1]) + 1 if len(enough) else 0]
