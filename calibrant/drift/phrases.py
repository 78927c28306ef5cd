"""Numbers in the sentences about a model."""

from __future__ import annotations

MANY_LABELS = 20_000  # the error is then too near what is allowed for the labels to decide soon


def size_text(value: float) -> str:
    """Write an error or distance with two decimals, three below .1."""
    return f"{value:.2f}" if value >= 0.0995 else f"{value:.3f}".rstrip("0").rstrip(".") or "0"


def labels_text(n: int | None) -> str:
    """Return a number of further labelled units with two significant digits; None if it is not known.

    >>> labels_text(1_741), labels_text(177_568), labels_text(None)
    ('about 1,700 more labelled units', 'only more than 20,000 further labelled units', 'more labelled units')
    """
    if n is None:
        return "more labelled units"
    if n > MANY_LABELS:
        return f"only more than {MANY_LABELS:,} further labelled units"
    return f"about {float(f'{n:.2g}'):,.0f} more labelled units"


def against_scores(gap: float) -> str:
    """Return a rate less the mean score in words.

    >>> against_scores(-0.012), against_scores(0.06), against_scores(0.001)
    ('1 point below the mean score', '6 points above the mean score', 'equal to the mean score')
    """
    points = round(100.0 * abs(gap))
    if not points:
        return "equal to the mean score"
    return f"{points} point{'' if points == 1 else 's'} {'above' if gap > 0 else 'below'} the mean score"


def percent_text(share: float | None) -> str:
    return "–" if share is None else f"{100.0 * share:.0f} %"
