"""Query of a pane, and the options of single metrics and fits, declared once with their allowed values and defaults.

The HTTP service derives its parameters and their descriptions from the options. For all callers, a value is checked when a
metric reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibrant.core.errors import CalibrationInputError, check_one_of, check_range
from calibrant.core.grid import Edges
from calibrant.core.label_policies import POLICIES
from calibrant.core.own_edges import OWN, are_edges, inexact_edges, missing_edges, read_edges
from calibrant.core.spec import PaneSpec

MAX_BINS = 100_000
# A number of bins, or their edges.
Bins = int | Sequence[float]
# Larger integers are out of the range of every number of a query, and not all of them are floats.
_MAX_NUMBER = 2**60
BINNINGS = ("equal_width", "equal_mass")


@dataclass(frozen=True)
class PaneQuery:
    """Options of a calibration result.

    Parameters
    ----------
    bins : number of bins; or their edges, which then become `bin_edges`
    binning : "equal_width" or "equal_mass"; "own_edges" with `bin_edges`
    edges : "right" for (a, b] with 0 in the first bin, "left" for [a, b) with 1 in the last
    raters : label policy
    min_count : bins with fewer samples (mass if predictions are weighted) are left out
    scope : "top_label", "positive", "class:INDEX" or "all". Default: the model's own.
    ci : nominal coverage of intervals, in (0, 1)
    options : further options by name, for the metrics that read them
    bin_edges : own edges from 0 to 1 instead of a number of bins, or their text with commas; empty without
    own_bins : bins are of a table other than the scope's (uncertainty, disagreement, cases), which checks them by its own grid
    """

    bins: Any = 15
    binning: str = "equal_width"
    edges: Edges = "right"
    raters: str = "pooled"
    min_count: float = 0
    scope: str | None = None
    ci: float = 0.95
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    bin_edges: Sequence[float] | str = ()
    own_bins: bool = False

    def __post_init__(self) -> None:
        given: Any = self.bin_edges or (self.bins if are_edges(self.bins) else ())
        if not len(given):
            return
        if self.binning not in ("equal_width", OWN):
            detail = f"Received own edges and binning {str(self.binning)[:60]!r}; bins of own edges have no other binning. Remove one."
            raise CalibrationInputError.at("/binning", "not_taken", detail)
        edges = read_edges(given, "/bin_edges" if self.bin_edges else "/bins")
        for name, value in (("bin_edges", edges), ("bins", len(edges) - 1), ("binning", OWN)):
            object.__setattr__(self, name, value)

    @property
    def edges_of_bins(self) -> tuple[float, ...]:
        """Own edges of the bins; empty without."""
        return tuple(self.bin_edges)  # type: ignore[arg-type]

    @property
    def about_bins(self) -> dict[str, Any]:
        """The bins as results state them."""
        own = {"bin_edges": list(self.bin_edges)} if self.bin_edges else {}
        return {"bins": self.bins, **own}

    def without_edges(self, **changed: Any) -> PaneQuery:
        """Return the query with a number of bins of equal width, and other values changed."""
        return replace(self, **({"bin_edges": (), "binning": "equal_width"} | changed))

    def check(self, spec: PaneSpec, *, exact: bool = True) -> PaneQuery:
        """Return the query itself if a pane of this spec supports it; raw rows give any bins, `exact=False`.

        Raises
        ------
        CalibrationInputError
            An option outside its range, a scope that the model does not have, or bins that its grid cannot give exactly.
        """
        return replace(self, **self.numbers())._checked(spec, exact)

    def numbers(self) -> dict[str, Any]:
        """Return the numbers of the query in their own types."""
        return {each.name: each.of_any(getattr(self, each.name)) for each in _NUMBERS}

    def _checked(self, spec: PaneSpec, exact: bool) -> PaneQuery:
        check_one_of("binning", self.binning, (*BINNINGS, *([OWN] if self.bin_edges else [])))
        check_one_of("edges", self.edges, ("right", "left"))
        check_one_of("raters", self.raters, POLICIES)
        if not 0.5 <= self.ci < 1.0:
            detail = f"Received ci={self.ci}; expected a number in [0.5, 1)."
            raise CalibrationInputError.at("/ci", "range", detail)
        if not 0 <= self.min_count <= 2**53:
            detail = f"Received min_count={self.min_count}; expected 0 to 2^53."
            raise CalibrationInputError.at("/min_count", "range", detail)
        scope = self.scope_for(spec)
        grid, exact = spec.grid_for(scope), exact and not self.own_bins
        most = grid.cells if exact else MAX_BINS
        check_range("bins", self.bins, 1, most)
        if exact and self.bin_edges and missing_edges(grid, self.edges_of_bins):
            detail = inexact_edges(self.edges_of_bins, scope, grid)
            raise CalibrationInputError.at("/bin_edges", "bins_not_exact", detail)
        if exact and self.binning == "equal_width" and self.bins not in grid.exact_bins:
            raise CalibrationInputError.at(
                "/bins", "bins_not_exact", inexact_bins(self.bins, scope, spec)
            )
        return self

    def scope_for(self, spec: PaneSpec) -> str:
        """Return the scope of the query, or the model's own.

        Raises
        ------
        CalibrationInputError
            The model has no such scope.
        """
        scope: Any = spec.default_scope if self.scope is None else self.scope
        if not isinstance(scope, str):
            detail = f"Received a scope of type {type(scope).__name__}; expected text, such as 'class:0'."
            raise CalibrationInputError.at("/scope", "type", detail)
        kind, _, name = scope.partition(":")
        if kind == "class" and name.isdecimal() and len(name) <= 5 and int(name) < spec.n_classes:
            return f"class:{int(name)}"
        if scope in ("top_label", "all") or (scope == "positive" and spec.n_classes == 2):
            return str(scope)
        detail = (
            f"Received scope {scope[:60]!r}; expected one of this model: top_label, all, class:INDEX"
            + (", positive" if spec.n_classes == 2 else "")
        )
        raise CalibrationInputError.at("/scope", "one_of", detail)


def policy_index(name: str) -> int:
    """Return the place of a policy in `POLICIES`.

    Raises
    ------
    ValueError
        Unknown policy.
    """
    if name not in POLICIES:
        raise ValueError(f"Received policy {name!r}; expected one of {', '.join(POLICIES)}.")
    return POLICIES.index(name)


def default_bins(spec: PaneSpec, scope: str | None = None, wanted: int = 15) -> int:
    """Return the default number of bins: the wanted one, or the nearest that the grid of a scope gives."""
    exact = spec.grid_for(scope or spec.default_scope).exact_bins
    return min(exact, key=lambda bins: (abs(bins - wanted), -bins))


def inexact_bins(bins: int, scope: str, spec: PaneSpec) -> str:
    """Return the sentence with the bin counts that a scope's grid gives exactly."""
    exact = ", ".join(map(str, spec.grid_for(scope).exact_bins))
    return f"the grid cannot give {bins} equal-width bins of {scope} exactly; it gives {exact}"


@dataclass(frozen=True)
class _Number:
    """A number of a query: its name, and its type as `kind` and in words."""

    name: str
    kind: type[int] | type[float]
    expected: str

    def of_any(self, value: Any) -> int | float:
        """Return a number of any type as `kind`; a whole float is an integer.

        Raises
        ------
        CalibrationInputError
            Another type, or a fraction where an integer is expected.
        """
        number = value.item() if isinstance(value, np.number) else value
        if isinstance(number, int) and not isinstance(number, bool):
            return min(max(number, -_MAX_NUMBER), _MAX_NUMBER)
        if isinstance(number, float) and (self.kind is float or number.is_integer()):
            return self.kind(number)
        shown = f"{value!r:.60} ({type(value).__name__})"
        detail = f"Received {self.name}={shown}; expected {self.expected}."
        raise CalibrationInputError.at(f"/{self.name}", "type", detail)


_NUMBERS = (
    _Number("bins", int, "the number of bins, an integer"),
    _Number("min_count", float, "a number"),
    _Number("ci", float, "a number in [0.5, 1)"),
)


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

    def of(self, pane_query: PaneQuery) -> Any:
        """Return its value in a query, or its default.

        Raises
        ------
        CalibrationInputError
            As `read`.
        """
        value = pane_query.options.get(self.name)
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
            raise self._rejected(
                "one_of",
                f"Received {self.name}={_shown(value)}; expected one of {', '.join(map(str, self.allowed))}.",
            )
        if not isinstance(typed, str) and not self._in_range(typed):
            raise self._rejected(
                "range",
                f"Received {self.name}={_shown(value)}; expected a value in [{_bound(self.low)}, {_bound(self.high)}].",
            )
        return typed

    def _typed(self, value: Any) -> str | int | float:
        is_integral = isinstance(value, float) and self.type is int and value.is_integer()
        taken = (int, float, str) if self.type is float else (int, str)
        # Python reads "1_0" and digits of every script as numbers; a query must not.
        odd = (
            isinstance(value, str)
            and self.type is not str
            and ("_" in value or not value.isascii())
        )
        if isinstance(value, bool) or odd or not (is_integral or isinstance(value, taken)):
            raise self._rejected(
                "type",
                f"Received {self.name}={_shown(value)}; expected {_TYPE_NAMES[self.type]}.",
            )
        try:
            return self.type(value)
        except (ValueError, OverflowError) as error:
            raise self._rejected(
                "type",
                f"Received {self.name}={_shown(value)}; expected {_TYPE_NAMES[self.type]}.",
            ) from error

    def _in_range(self, value: float) -> bool:
        # Written so that nan is rejected.
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and value == value
        )

    def _rejected(self, rule: str, detail: str) -> CalibrationInputError:
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
