"""Errors of the library: which argument, which row, which rule."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from difflib import get_close_matches

MAX_PRINTED = 3


@dataclass(frozen=True)
class Violation:
    """One broken rule: a JSON Pointer to the place, the rule's name, a sentence for a person."""

    pointer: str
    rule: str
    detail: str

    @property
    def argument(self) -> str:
        """The argument, field or column that breaks the rule."""
        return self.pointer.removeprefix("/").partition("/")[0]

    @property
    def row(self) -> int | None:
        """The row that breaks the rule, from 0; None if the rule is about the complete column."""
        last = self.pointer.rpartition("/")[2]
        return int(last) if last.isdecimal() else None

    def __str__(self) -> str:
        row = "" if self.row is None else f", row {self.row}"
        return f"{self.argument or 'input'}{row}: {self.detail} ({self.rule})"


class CalibrationInputError(ValueError):
    """The input breaks a rule; `violations` names each place and rule.

    Parameters
    ----------
    violations : the first of them, at least one
    n_violations : number of all. Default: as many as `violations`.

    Examples
    --------
    >>> error = CalibrationInputError.at("/labels/3", "class_range", "received class 7; expected 0 to 2")
    >>> print(error)
    labels, row 3: received class 7; expected 0 to 2 (class_range)
    >>> error.violations[0].argument, error.violations[0].row, error.violations[0].rule
    ('labels', 3, 'class_range')
    """

    def __init__(self, violations: list[Violation], n_violations: int = 0) -> None:
        self.violations = violations
        self.n_violations = max(n_violations, len(violations))
        printed = [str(violation) for violation in violations[:MAX_PRINTED]]
        if self.n_violations > MAX_PRINTED:
            printed.append("and further rows")
        super().__init__("; ".join(printed))

    def __reduce__(self) -> tuple[type[CalibrationInputError], tuple[list[Violation], int]]:
        return type(self), (self.violations, self.n_violations)

    def each(self, change: Callable[[Violation], Violation]) -> CalibrationInputError:
        """Return the error with every violation changed, equal ones once, of the same number."""
        changed = dict.fromkeys(change(each) for each in self.violations)
        return CalibrationInputError(list(changed), self.n_violations)

    @classmethod
    def at(cls, pointer: str, rule: str, detail: str) -> CalibrationInputError:
        """Return the error of a single violation."""
        return cls([Violation(pointer, rule, detail)])


def check_one_of(name: str, value: object, known: Collection[str]) -> None:
    """Raise unless an option is one of the known values."""
    if not isinstance(value, str) or value not in known:
        detail = f"Received {name} {str(value)[:60]!r}; expected one of {', '.join(known)}."
        raise CalibrationInputError.at(f"/{name}", "one_of", detail)


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise unless an option is within its limits."""
    if not low <= value <= high:
        detail = f"Received {name}={value}; expected {low} to {high}."
        raise CalibrationInputError.at(f"/{name}", "range", detail)


class NoResultError(Exception):
    """The state has no result; `reason` is a code for machines, `detail` a sentence, `n_excluded` the number left out."""

    def __init__(self, reason: str, detail: str, n_excluded: float | None = None) -> None:
        self.reason, self.detail, self.n_excluded = reason, detail, n_excluded
        super().__init__(f"{reason}: {detail}")


def nearest(name: str, known: Collection[str], cutoff: float = 0.7) -> str:
    """Return a sentence that names the known name nearest to a mistyped one; nothing if none is near.

    >>> nearest("tolerence", ["bucket", "tolerance"]), nearest("colour", ["bucket", "tolerance"])
    (' The nearest name is tolerance.', '')
    """
    near = get_close_matches(name[:256], known, 1, cutoff)
    return f" The nearest name is {near[0]}." if near else ""
