"""Numbers in the sentences about a model."""

from __future__ import annotations

from math import ceil, floor

MANY_LABELS = 20_000  # the error is then too near what is allowed for the labels to decide soon
_NEAR = 1e-7  # of the last digit: a value that is stored a little beside it is not rounded away


def size_text(value: float) -> str:
    """Write an error or distance with two decimals, three below .1."""
    return f"{value:.2f}" if value >= 0.0995 else f"{value:.3f}".rstrip("0").rstrip(".") or "0"


def at_least(value: float) -> str:
    """Write a lower limit as `size_text`, rounded down so that it stays one.

    >>> at_least(0.15664), at_least(0.07896), at_least(0.29), at_least(0.0997)
    ('0.15', '0.078', '0.29', '0.099')
    """
    scale = 100.0 if value >= 0.1 else 1000.0
    return (
        size_text(floor(value * scale + _NEAR) / scale)
        if scale == 100.0 or value < 0.0995
        else "0.099"
    )


def at_most(value: float) -> str:
    """Write an upper limit as `size_text`, rounded up so that it stays one.

    >>> at_most(0.00207), at_most(0.1701), at_most(0.29), at_most(0.0)
    ('0.003', '0.18', '0.29', '0')
    """
    scale = 100.0 if value >= 0.0995 else 1000.0
    return size_text(ceil(value * scale - _NEAR) / scale)


def two_digits(n: float) -> str:
    """Write a count with two significant digits.

    >>> two_digits(1_741), two_digits(0)
    ('1,700', '0')
    """
    return f"{float(f'{n:.2g}'):,.0f}"


def labels_text(n_more: int | None, n_units: float, then: str | None = None) -> str:
    """Return how many further labelled units would decide if the error stays as it is.

    Parameters
    ----------
    n_more : None if more than 100 times the present ones
    n_units : the present ones
    then : the word that they would give

    >>> labels_text(1_741, 400.0, "off")
    'at the present error, about 1,700 more labelled units would show it to be off'
    >>> labels_text(None, 70.0)
    'at the present error, a decision needs more than 7,000 labelled units'
    >>> labels_text(177_568, 9000.0, "good")
    'at the present error, a decision needs more than 20,000 labelled units'
    """
    if n_more is None or n_more > MANY_LABELS:
        least = MANY_LABELS if n_more is not None else min(MANY_LABELS, 100.0 * n_units)
        return (
            f"at the present error, a decision needs more than {two_digits(least)} labelled units"
        )
    word = f"show it to be {then}" if then else "decide"
    return f"at the present error, about {two_digits(n_more)} more labelled units would {word}"


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
    """Write a share in percent, with one decimal below 1 %.

    >>> percent_text(0.824), percent_text(0.004), percent_text(None)
    ('82 %', '0.4 %', '–')
    """
    if share is None:
        return "–"
    return f"{100.0 * share:.{1 if 0.0 < share < 0.00995 else 0}f} %"
