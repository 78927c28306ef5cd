"""Result of one check: what was expected, what was measured, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Part = Literal["installation", "operation", "performance"]
PASS, FAIL, INFORMATION = "pass", "fail", "information"


@dataclass(frozen=True)
class Result:
    """One row of the page.

    Attributes
    ----------
    part : which qualification it belongs to
    check : what was checked
    expected, measured : in words or numbers
    verdict : `pass`, `fail`, or `information` where nothing is expected
    """

    part: Part
    check: str
    expected: str
    measured: str
    verdict: str


def judged(part: Part, check: str, expected: str, measured: str, passes: bool) -> Result:
    """Return the result of a check with an expectation."""
    return Result(part, check, expected, measured, PASS if passes else FAIL)


def noted(part: Part, check: str, measured: str) -> Result:
    """Return something that was found and has no expectation."""
    return Result(part, check, "none: for information", measured, INFORMATION)


def number(value: float | None, digits: int = 9) -> str:
    """Return a number as text.

    >>> number(0.1 + 0.2), number(None), number(12.0)
    ('0.3', 'no value', '12')
    """
    return "no value" if value is None else f"{value:.{digits}g}"
