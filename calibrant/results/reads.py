"""Reads: results of a window, each declared once in a file of this folder.

A declaration has the query, the result, the function between them and, where two windows can be compared, a second function. The engine
computes it from the window's pane. The service derives route, parameters, schema and figure from it; the client its method; the command
line and the documentation their row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_type_hints

from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.figures import figure_of
from calibrant.inference.pairing import shared
from calibrant.inference.seeds import SEED
from calibrant.results.base import Result, says
from calibrant.results.models import Model
from calibrant.results.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLE = "sample"
# The sample of a window whose labelled rows are few enough for a fit to each of them: larger ones are read for nothing.
SAMPLE_OF_FEW = "sample_of_few"
Raters = Literal["pooled", "mean", "majority", "single"]
Edges = Literal["right", "left"]


@dataclass(frozen=True)
class State:
    """One side's window.

    Attributes
    ----------
    pane : the merge of the window's panes; it is shared and must not be changed
    seed : of everything random
    days : length of the window
    name : of the other side of a comparison, as the response names it
    """

    pane: Pane
    model: Model
    seed: int = SEED
    days: float = 0.0
    name: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Query:
    """Parameters of a read, without the window."""

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        """Return the parameters that change for one model: defaults computed, classes named by their index.

        Parameters
        ----------
        given : names of the parameters that the request has

        Raises
        ------
        CalibrationInputError
            The model does not support this query.
        """
        return {}


Q = TypeVar("Q", bound=Query)
R = TypeVar("R", bound=Result)
Plain = dict[str, Any]
Compute = Callable[[State, Q], R]
Compare = Callable[[State, State, Q], R]


@dataclass(frozen=True, eq=False)
class Read(Generic[Q, R]):
    """The declaration of a read; called with a state and a query, it computes the result.

    Attributes
    ----------
    path : below the model's path
    tag : group of the API document
    response : of the document, in one phrase
    figure : the function that draws the result's plain values. Default: `draw_NAME` of the file NAME of `calibrant/figures`, if there is one
    accumulators : names of those that the computation reads
    drawn : parameters that a figure needs
    shown : options of the figure, as a dataclass
    panels : the function that draws the results of several labels, by name, in one figure
    compare : computes the comparison with another window. Default: the read is not compared.
    compared_accumulators : names of those that `compare` reads in addition
    is_slow : whether it may take seconds, so that fast results do not wait for it
    is_map : whether keys with the scope `maps` may read it
    needs : parts of a window that the engine reads to compute it, if it is more than the merge of panes
    is_compared : whether the engine compares it
    table : the result as rows, if it is also a table
    paged : name of the list of which a response has a page, and the sort key of its entries
    called : the operation in the API document. Default: after the path
    in_parts : whether it is also returned for each part of the window and each value of a slice
    short : makes a response without `include=details` of the plain values. Default: a response has all fields
    """

    path: str
    tag: str
    response: str
    compute: Compute[Q, R]
    accumulators: Callable[[Q], Iterable[str]] = lambda query: ()
    figure: Callable[..., Figure] | None = None
    shown: type[Any] | None = None
    panels: Callable[[Mapping[str, Any]], Figure] | None = None
    drawn: Mapping[str, Any] = field(default_factory=dict)
    compare: Compare[Q, R] | None = None
    compared_accumulators: tuple[str, ...] = ()
    is_slow: Callable[[Q], bool] = lambda query: False
    is_map: bool = False
    needs: Mapping[str, Any] = field(default_factory=dict)
    is_compared: bool = False
    table: Table | None = None
    paged: tuple[str, Callable[[Any], list[Any]]] | None = None
    called: str = ""
    in_parts: bool = False
    short: Callable[[Plain], Plain] | None = None

    def __call__(self, state: State, query: Q) -> R:
        return self.compute(state, query)

    def compared(self, state: State, other: State, query: Q) -> R:
        """Return the comparison with another window."""
        if self.compare is None:
            raise TypeError(f"{self.name} is not compared")
        return self.compare(state, other, query)

    def of_other(self, other: State, query: Q, case: str | None) -> dict[str, Any]:
        """Return the other side's result as plain values; the reason where it lacks the requested case."""
        try:
            return self(other, query).to_dict()
        except CalibrationInputError as error:
            if case is None or error.violations[0].rule != "unknown_case":
                raise
            return {"reason": "unknown_case"}

    @property
    def of_records(self) -> bool:
        """Whether it reads records of the store as they are now, on no clock of cohorts."""
        return "records" in self.needs

    @property
    def name(self) -> str:
        """The name of the result kind and of the client's method."""
        return self.path.replace("-", "_").replace("/", "_")

    @property
    def operation(self) -> str:
        """The operation in the API document."""
        return self.called or "get" + "".join(each.capitalize() for each in self.name.split("_"))

    @property
    def summary(self) -> str:
        """The documentation, first line first."""
        return (self.compute.__doc__ or "").strip()

    @property
    def query(self) -> type[Q]:
        """The class of the query."""
        found: type[Q] = get_type_hints(self.compute)["query"]
        return found

    @property
    def result(self) -> type[R]:
        """The class of the result."""
        found: type[R] = get_type_hints(self.compute)["return"]
        return found


def read(path: str, **declared: Any) -> Callable[[Compute[Q, R]], Read[Q, R]]:
    """Declare the function below as a read; the parameters are those of `Read`."""

    def declare(compute: Compute[Q, R]) -> Read[Q, R]:
        found = Read(path, compute=compute, **declared)
        if found.figure is None:
            found = replace(found, figure=figure_of(found.name))
        if found.figure is not None:
            found.result.figure = staticmethod(found.figure)
        return found

    return declare


@cache
def find_reads() -> dict[str, Read[Any, Any]]:
    """Return the reads of the folder `calibrant/results` by name."""
    folder = import_module("calibrant.results")
    modules = (
        import_module(f"{folder.__name__}.{each.name}") for each in iter_modules(folder.__path__)
    )
    found = (each for module in modules for each in vars(module).values() if isinstance(each, Read))
    return {each.name: each for each in sorted(found, key=lambda each: each.name)}


def other_side(state: State, other: State) -> dict[str, Any]:
    """Return the other side, its size, and the number of labelled predictions on both."""
    return {**other.name, **other.pane.counts, "shared": shared(state.pane, other.pane)}


def level() -> Any:
    """Declare the level of the intervals."""
    return says("Level of the intervals.", 0.95, ge=0.5, lt=1)


def label_policy() -> Any:
    """Declare the label policy."""
    return says("Label policy: how several ratings of one prediction count.", "pooled")


def edges_of_bins() -> Any:
    """Declare which end belongs to a bin."""
    return says("right: (a, b] with 0 in the first bin; left: [a, b).", "right")
