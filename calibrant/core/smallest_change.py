"""The smallest change of a rate that a rule would show, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SLOPE, POINTS = 0.625, 0.05  # of the log-odds, and of the rate: what an armed rule shows
TARGET = f"temperature of {1.0 / SLOPE:.1f}"
SIMILAR = 1.5  # ratio of a fall and a rise that are one size in the sentence


@dataclass(frozen=True)
class SmallestChange:
    """The smallest fall and rise of a rate that would show, in [0, 1]; None if none would.

    >>> rare = SmallestChange(0.044, None, 0.057)
    >>> rare.text("the rate"), rare.other
    ('a rise of the rate from 4.4 % to 10.1 %', '; a fall would not')
    """

    rate: float  # at present
    fall: float | None = None
    rise: float | None = None

    @property
    def which(self) -> Literal["change", "fall", "rise"]:
        """Return "change" if both directions show at about the same size, else the one that shows at a smaller one.

        >>> for rise in (0.06, 0.04, 0.2):
        ...     print(SmallestChange(0.5, 0.055, rise).which)
        change
        rise
        fall
        """
        if self.fall is None or self.rise is None:
            return "rise" if self.fall is None else "fall"
        low, high = sorted((self.fall, self.rise))
        is_one = high <= SIMILAR * low and (low <= POINTS) == (high <= POINTS)
        return "change" if is_one else "fall" if low == self.fall else "rise"

    @property
    def points(self) -> float | None:
        """Size of `which`."""
        if self.which == "change":
            return max(self.fall or 0.0, self.rise or 0.0)
        return self.fall if self.which == "fall" else self.rise

    def text(self, name: str) -> str:
        """Return the change of a rate of this name: of both directions by its size, else by its ends."""
        points = self.points or 0.0
        if self.which == "change":
            return f"a change of {name} by {100.0 * points:.1f} points"
        end = self.rate + (points if self.which == "rise" else -points)
        ends = (f"{100.0 * min(max(each, 0.0), 1.0):.1f} %" for each in (self.rate, end))
        return f"a {self.which} of {name} from {' to '.join(ends)}"

    @property
    def other(self) -> str:
        """What of the other direction would show; empty if it is the same."""
        if self.points is None or self.which == "change":
            return ""
        name, size = ("fall", self.fall) if self.which == "rise" else ("rise", self.rise)
        return f"; a {name} {'would not' if size is None else f'only by {100.0 * size:.1f} points'}"
