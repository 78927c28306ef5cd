"""Verdict of a row: the 99.9 % Clopper-Pearson interval of a share against its promise."""

from __future__ import annotations

from dataclasses import dataclass

import scipy

LEVEL = 0.999
WIDEST = 0.03


@dataclass(frozen=True)
class Share:
    """A counted share of runs."""

    count: int
    runs: int

    @property
    def value(self) -> float:
        return self.count / self.runs if self.runs else float("nan")

    @property
    def standard_error(self) -> float:
        return float((self.value * (1.0 - self.value) / self.runs) ** 0.5) if self.runs else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper-Pearson interval at `LEVEL`.

        Examples
        --------
        >>> [round(bound, 3) for bound in Share(95, 100).interval]
        [0.841, 0.993]
        """
        tail = (1.0 - LEVEL) / 2.0
        beta = scipy.stats.beta
        low = beta.ppf(tail, self.count, self.runs - self.count + 1) if self.count else 0.0
        missing = self.runs - self.count
        high = beta.ppf(1.0 - tail, self.count + 1, missing) if missing else 1.0
        return float(low), float(high)


def verdict(share: Share, promise: float, at_least: bool) -> str:
    """Return "holds", "fails" or "undecided".

    Examples
    --------
    >>> verdict(Share(2850, 3000), 0.93, at_least=True)
    'holds'
    >>> verdict(Share(2700, 3000), 0.93, at_least=True)
    'fails'
    >>> verdict(Share(95, 100), 0.93, at_least=True)
    'undecided'
    """
    if not share.runs:
        return "undecided"
    low, high = share.interval
    if high < promise if at_least else low > promise:
        return "fails"
    return "undecided" if high - low > WIDEST else "holds"
