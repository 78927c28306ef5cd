"""Options of single metrics and fits, declared once with their allowed values and defaults.

The HTTP service derives its parameters and their descriptions from them. For all callers, a value is checked when a
metric reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery


@dataclass(frozen=True)
class Option:
    """Named value that a metric reads from `PaneQuery.options`.

    Parameters
    ----------
    name : name in a query
    default : its type (str, int or float) is the option's type
    description : one sentence
    allowed : all allowed values; empty if a range applies
    low, high : bounds of a number, both included; None if unbounded

    Examples
    --------
    >>> Option("norm", 1, "Power of the gaps.", allowed=(1, 2)).read("2")
    2
    """

    name: str
    default: str | int | float
    description: str
    allowed: tuple[str | int, ...] = ()
    low: float | None = None
    high: float | None = None

    @property
    def type(self) -> type[str] | type[int] | type[float]:
        """Type of its values."""
        return type(self.default)

    def of(self, question: PaneQuery) -> Any:
        """Return its value in a query, or its default.

        Raises
        ------
        CalibrationInputError
            As `read`.
        """
        value = question.options.get(self.name)
        return self.default if value is None else self.read(value)

    def read(self, value: Any) -> str | int | float:
        """Convert a value, or a number written as text, to the option's type.

        Raises
        ------
        CalibrationInputError
            Another type (`type`), not among the allowed (`one_of`), or out of bounds (`range`).
        """
        typed = self._typed(value)
        if self.allowed and typed not in self.allowed:
            raise self._refused(
                "one_of",
                f"Received {self.name}={_shown(value)}; expected one of {', '.join(map(str, self.allowed))}.",
            )
        if not isinstance(typed, str) and not self._in_range(typed):
            raise self._refused(
                "range",
                f"Received {self.name}={_shown(value)}; expected a value in [{_bound(self.low)}, {_bound(self.high)}].",
            )
        return typed

    def _typed(self, value: Any) -> str | int | float:
        whole = isinstance(value, float) and self.type is int and value.is_integer()
        taken = (int, float, str) if self.type is float else (int, str)
        # Python reads "1_0" and digits of every script as numbers; a query must not.
        odd = (
            isinstance(value, str)
            and self.type is not str
            and ("_" in value or not value.isascii())
        )
        if isinstance(value, bool) or odd or not (whole or isinstance(value, taken)):
            raise self._refused(
                "type",
                f"Received {self.name}={_shown(value)}; expected {_TYPE_NAMES[self.type]}.",
            )
        try:
            return self.type(value)
        except (ValueError, OverflowError) as fault:
            raise self._refused(
                "type",
                f"Received {self.name}={_shown(value)}; expected {_TYPE_NAMES[self.type]}.",
            ) from fault

    def _in_range(self, value: float) -> bool:
        # Written so that nan is rejected.
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and value == value
        )

    def _refused(self, rule: str, detail: str) -> CalibrationInputError:
        return CalibrationInputError.at(f"/{self.name}", rule, detail)


# Options that are no single text or number; the metric that reads one checks it, and no query contains it.
COMPOUND = frozenset({"composites"})


def check_options(given: Mapping[str, Any], known: Mapping[str, Option]) -> None:
    """Check that every option is known and has an allowed value.

    Raises
    ------
    CalibrationInputError
        An unknown name (`unknown_option`), or a value that its option rejects.
    """
    for name, value in given.items():
        if name in COMPOUND:
            continue
        if name not in known:
            detail = f"Received option {name[:60]!r}; expected one of {', '.join(sorted(known))}."
            raise CalibrationInputError.at(f"/{name[:60]}", "unknown_option", detail)
        if value is not None:
            known[name].read(value)


def _shown(value: Any) -> str:
    return str(value)[:60]


def _bound(value: float | None) -> str:
    return "open" if value is None else f"{value:g}"


_TYPE_NAMES: dict[type, str] = {str: "text", int: "an integer", float: "a number"}
TIES = Option(
    "ties",
    "together",
    "Equal scores in equal-mass bins: never in two bins, or split by the order of the rows as the papers' code does "
    "(raw rows only).",
    allowed=("together", "split"),
)
NORM = Option(
    "norm", 1, "1 for the mean gap, 2 for the root of the mean squared gap.", allowed=(1, 2)
)
