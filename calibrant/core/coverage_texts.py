"""How many predictions have labels, in sentences."""

from __future__ import annotations

from calibrant.core.number_texts import at_least, at_most, percent_text
from calibrant.core.time_texts import day_of, period_text

REPORTED = 0.02  # least share of predictions with labels after the horizon that the sentence has


def missing_text(
    share: float,
    bounds: tuple[float, float],
    period: tuple[int, int] | None = None,
    late: float | None = None,
) -> str:
    """Return which predictions lack labels, and what the error is between.

    Parameters
    ----------
    bounds : the error if they had the least or the most favourable labels
    late : share of predictions with labels after the horizon; None without a horizon

    >>> missing_text(0.18, (0.01214, 0.15), (1794000000, 1794086400))
    'Of the predictions of 6 Nov 2026 to 7 Nov 2026, 18 % have no label: depending on their labels, the error is between 0.012 and 0.15.'
    >>> missing_text(0.18, (0.012, 0.15), late=0.14).partition(". ")[2]
    'Later, 14 % got one: lengthen the horizon.'
    """
    none = "have no label" if late is None else "had no label within the horizon"
    which = f"Of the predictions{period_text(period)}, {percent_text(share)} {none}"
    between = f"the error is between {at_least(bounds[0])} and {at_most(bounds[1])}"
    found = f"{which}: depending on their labels, {between}."
    if late is None:
        return found
    if late < REPORTED:
        return f"{found} Lengthen the horizon if labels come later."
    return f"{found} Later, {percent_text(late)} got one: lengthen the horizon."


def fallen_text(before: float, now: float, since: int) -> str:
    """Return that the labelled share fell.

    >>> fallen_text(0.95, 0.4, 1794000000)
    'The share with a label fell from 95 % to 40 % on 6 Nov 2026.'
    """
    return f"The share with a label fell from {percent_text(before)} to {percent_text(now)} on {day_of(since)}."
