"""Result of `compare`: differences of two models, metric by metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibrant.metrics.estimate import Estimate, number
from calibrant.printing import html_table, text_table
from calibrant.results.values import MISSING, bounds_text, cell, counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Difference:
    """The value of the first model minus that of the second, with an interval; `float(difference)` is the number.

    Attributes
    ----------
    first, second : the estimate of each model
    value : first minus second; None if either has no value
    interval : lower and upper bound of the true difference; None if there is none
    reason : why there is no value or no interval, as one word for programs; None if there are both
    method : how the interval was computed; None without one

    Examples
    --------
    >>> difference = Difference(Estimate(0.15, name="ece"), Estimate(0.05, name="ece"), 0.1, (0.06, 0.14))
    >>> difference
    Difference(ece: 0.1500 - 0.0500 = 0.1000, interval=[0.0600, 0.1400])
    >>> float(difference), difference.differs
    (0.1, True)
    """

    first: Estimate
    second: Estimate
    value: float | None
    interval: tuple[float, float] | None = None
    reason: str | None = None
    method: str | None = None

    @property
    def name(self) -> str:
        """Slug of the metric, with the options of the request."""
        return self.first.name

    @property
    def differs(self) -> bool | None:
        """Whether the interval excludes 0: the difference is larger than chance explains. None without an interval."""
        if self.interval is None:
            return None
        return not self.interval[0] <= 0.0 <= self.interval[1]

    def __float__(self) -> float:
        if self.value is None:
            raise ValueError(f"{self.name} has no difference: {self.reason}. Read `.value`.")
        return self.value

    def __repr__(self) -> str:
        values = f"{number(self.first.value)} - {number(self.second.value)}"
        parts = [f"{self.name}: {values} = {number(self.value)}"]
        if self.interval is not None:
            parts.append(f"interval=[{number(self.interval[0])}, {number(self.interval[1])}]")
        if self.reason is not None:
            parts.append(f"reason={self.reason!r}")
        return f"Difference({', '.join(parts)})"


class Comparison(Mapping[str, Difference]):
    """Differences by slug, with the counts of the data that the first model was evaluated on.

    Parameters
    ----------
    differences : by slug, with the options of the request
    about : the counts, `raters`, `scope`, `bins` and `ci` of the request
    """

    def __init__(self, differences: Mapping[str, Difference], about: Mapping[str, Any]) -> None:
        self._differences, self.about = dict(differences), dict(about)

    @classmethod
    def of(
        cls, first: Mapping[str, Estimate], second: Mapping[str, Estimate],
        compared: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any],
    ) -> Comparison:  # fmt: skip
        """Return the comparison of the estimates of two models.

        Parameters
        ----------
        first, second : estimates by slug
        compared : `difference`, `difference_interval`, `difference_reason` and `difference_method` by slug
        about : as in the class
        """
        found = {}
        for key, each in compared.items():
            bounds = each.get("difference_interval")
            found[key] = Difference(
                first[key],
                second[key],
                each["difference"],
                None if bounds is None else (float(bounds[0]), float(bounds[1])),
                each.get("difference_reason"),
                each.get("difference_method"),
            )
        return cls(found, about)

    def __getitem__(self, name: str) -> Difference:
        try:
            return self._differences[name]
        except KeyError:
            raise KeyError(f"the comparison has no {name!r}; it has {', '.join(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._differences)

    def __len__(self) -> int:
        return len(self._differences)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: the counts, and `metrics` as the service returns them with `against`."""
        return self.about | {"metrics": {name: _plain(each) for name, each in self.items()}}

    def plot(self) -> Figure:
        """Draw each difference with its interval; what is left of 0 is smaller for the first model.

        Returns
        -------
        Figure, one panel for calibration errors and one for each other metric

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra `plot` brings it.
        """
        from calibrant.figures.base import empty_figure
        from calibrant.figures.estimates import draw_differences

        return draw_differences(self.to_dict(), on=empty_figure(shown=True))

    @property
    def _caption(self) -> str:
        return f"{counted(self.about)}; raters={self.about['raters']}, scope={self.about['scope']}"

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        level = f"{100 * self.about['ci']:g} % interval"
        header = ("metric", "first", "second", "difference", level)
        return header, [_row(name, each) for name, each in self.items()]

    def __repr__(self) -> str:
        return text_table(*self._table(), caption=f"Comparison on {self._caption}")

    def _repr_html_(self) -> str:
        return html_table(*self._table(), caption=self._caption)


def _plain(difference: Difference) -> dict[str, Any]:
    found = difference.first.to_dict() | {
        "against": difference.second.value,
        "difference": difference.value,
        "difference_interval": None if difference.interval is None else list(difference.interval),
    }
    if difference.reason is not None:
        found["difference_reason"] = difference.reason
    if difference.method is not None:
        found["difference_method"] = difference.method
    return found


def _row(name: str, difference: Difference) -> tuple[str, ...]:
    bounds = difference.interval
    shown = bounds_text(bounds) if bounds is not None else (difference.reason or MISSING)
    values = (difference.first.value, difference.second.value, difference.value)
    return (name, *map(cell, values), shown)
