"""Numbers written as text in the cells of a table, such as a CSV file."""

from __future__ import annotations


def number_of(text: str) -> float:
    """Return the number that a text states.

    Python alone reads `1_0` and digits of other scripts as numbers: in a table these are mistakes.

    Raises
    ------
    ValueError
        It is no number.

    Examples
    --------
    >>> number_of(" 1e-3")
    0.001
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"not a number: {text!r}")
    return float(text)
