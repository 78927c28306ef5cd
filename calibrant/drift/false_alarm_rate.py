"""False-alarm rate: a text such as "1 per P10Y" as a threshold.

The average run length to a false alarm is at least the threshold, in cohorts. The rule does not depend on the scores.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_FALSE_ALARMS = "1 per P10Y"
DAY_S = 86_400
YEAR_DAYS = 365
_SETTING = re.compile(
    r"(?P<alarms>[1-9]\d{0,5}) per P(?:(?P<weeks>\d{1,6})W|(?:(?P<years>\d{1,6})Y)?(?:(?P<days>\d{1,6})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,6})H)?)?)",
    re.ASCII,
)
_UNIT_S = {"weeks": 7 * DAY_S, "years": YEAR_DAYS * DAY_S, "days": DAY_S, "hours": 3600}


@dataclass(frozen=True)
class FalseAlarms:
    """At most `alarms` false alarms in `period_s` seconds, on average."""

    alarms: int
    period_s: int

    @classmethod
    def parse(cls, text: str) -> FalseAlarms:
        """Read "1 per P10Y": a number, "per", an ISO 8601 duration in years of 365 days, weeks, days, hours.

        Raises
        ------
        ValueError
            Another form, or a period of zero.
        """
        found = _SETTING.fullmatch(text)
        parts = found.groupdict() if found else {}
        period = sum(_UNIT_S[unit] * int(parts[unit] or 0) for unit in _UNIT_S if unit in parts)
        if not period:
            raise ValueError(
                'expected a rate such as "1 per P10Y": a number, then an ISO 8601 duration'
            )
        return cls(int(parts["alarms"] or 0), period)

    def run_length(self, cohort_s: float) -> float:
        """Return the mean number of cohorts until a false alarm: the threshold of a single detector.

        Raises
        ------
        ValueError
            Cohorts of length zero, or more alarms than cohorts.

        Examples
        --------
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
