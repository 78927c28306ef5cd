"""Values of a result as attributes, and their text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from calibrant.metrics.estimate import number

MISSING = "–"


class ResultValues:
    """A result of the service: its values are attributes by name."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._values:
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}; it has {', '.join(self.__dir__())}"
            )
        return self._values[name]

    def __dir__(self) -> list[str]:
        return sorted(
            {*(name for name in super().__dir__() if not name.startswith("_")), *self._values}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON, as the service returns them."""
        return dict(self._values)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the result that `to_dict` described, or that the service returned."""
        return cls(values)


def counted(about: Mapping[str, Any]) -> str:
    """Return the counts of the data as text."""
    n = about.get("n_labelled", about.get("n")) or 0
    return f"{n:,} labelled predictions, {about['n_ratings']:,} ratings, {about['n_units']:,} units"


def cell(value: float | None) -> str:
    """Return a number of a table as text."""
    return MISSING if value is None else number(value)


def bounds_text(interval: Any) -> str:
    """Return an interval as text."""
    return MISSING if interval is None else f"[{number(interval[0])}, {number(interval[1])}]"
