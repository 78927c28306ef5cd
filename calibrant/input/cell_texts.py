"""Cells of tables of texts, such as CSV files: numbers, and texts that mean "no value".

`NA`, `nan` and `None` are names of classes, subgroups and patients somewhere. Only a blank cell and the text `null` are no
value, and what the caller names. Where the source has nulls of its own (Parquet, Arrow, JSON), every other text is a value.
"""

from __future__ import annotations

from collections.abc import Collection

BLANK = frozenset({""})
MISSING_TEXTS = frozenset({"", "null"})
# What other programs write for "no value": not read as such, but advised about.
OFTEN_MISSING = frozenset({"na", "n/a", "<na>", "nan", "null", "none", "nat", "-", "?"})


def value_of(
    text: str, missing: Collection[str] = MISSING_TEXTS, declared: Collection[str] = ()
) -> str | None:
    """Return a text without blanks around it, None where it means no value.

    Parameters
    ----------
    missing : texts that mean no value
    declared : texts that are always a value, such as the names of classes

    Examples
    --------
    >>> [value_of(text) for text in (" NA ", "none", "null", "  ")]
    ['NA', 'none', None, None]
    >>> value_of("null", declared=["null", "other"])
    'null'
    """
    text = text.strip()
    return text if text in declared or text not in missing else None


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
