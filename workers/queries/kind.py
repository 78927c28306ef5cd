"""Result kinds: what each reads of a window, its computation and its comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, Literal, TypeVar

from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.inference.pairing import shared
from calibrant.inference.seeds import SEED
from calibrant.results.reads import Read, State, find_reads
from calibrant_server.workers.alarm.words_of import AlarmSnapshot
from calibrant_server.workers.queries import kinds
from calibrant_server.workers.queries.query import Declared, Query, declared_query
from calibrant_server.workers.queries.window_records import WindowRecords
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import DatedPane, Window

Q = TypeVar("Q", bound=Query)
DAY_S = 86_400.0


@dataclass(frozen=True)
class Against:
    """Other side of a comparison, as named in the request.

    Attributes
    ----------
    by : an earlier window of the same model, one of its baselines, another model, or the reference of its alarm
    name : of the baseline or the model; the window's duration; empty for the reference
    """

    by: Literal["window", "baseline", "model", "reference"]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.by}:{self.name}" if self.name else self.by


@dataclass(frozen=True)
class Inputs:
    """One side's state: the parts that the kind needs.

    Attributes
    ----------
    window : of the panes
    panes : each separately, oldest first
    seed : of everything random
    """

    config: ModelConfig
    window: Window
    merged: Any = None
    panes: list[DatedPane] = field(default_factory=list)
    of_alarm: AlarmSnapshot | None = None
    of_records: WindowRecords | None = None
    seed: int = SEED

    @property
    def pane(self) -> Pane:
        """The merge of the window's panes. It is shared with other queries and must not be changed."""
        if self.merged is None:
            raise LookupError("this kind does not declare that it needs merged panes")
        pane: Pane = self.merged
        return pane

    @property
    def alarm(self) -> AlarmSnapshot:
        """The state of the model's alarm."""
        if self.of_alarm is None:
            raise LookupError("this kind does not declare that it needs the alarm")
        return self.of_alarm

    @property
    def records(self) -> WindowRecords:
        """The retained records of the window."""
        if self.of_records is None:
            raise LookupError("this kind does not declare that it needs records")
        return self.of_records


def _all(query: Query) -> None:
    return None


def _quick(query: Query) -> bool:
    return False


@dataclass(frozen=True)
class ResultKind(Generic[Q]):
    """One kind of results, declared as `KIND` in a file of its name.

    Attributes
    ----------
    query : its class, which declares name and needs
    compute : from the query and the window's state to JSON values
    accumulators : names of those that it reads, None for all
    compare : the same, with the state of another window. Default: the kind is not compared.
    compared_accumulators : names of those that `compare` reads in addition
    is_slow : whether it may take seconds, so that fast results do not wait for it
    """

    query: type[Q]
    compute: Callable[[Q, Inputs], Result]
    accumulators: Callable[[Q], Iterable[str] | None] = _all
    compare: Callable[[Q, Inputs, Inputs, Against], Result] | None = None
    compared_accumulators: tuple[str, ...] = ()
    is_slow: Callable[[Q], bool] = _quick

    @property
    def name(self) -> str:
        """The name of the kind, under which it is requested."""
        return self.query.kind

    def reads(self, query: Q, compared: bool) -> tuple[str, ...] | None:
        """Return the accumulators that a computation reads, sorted; None for all."""
        names = self.accumulators(query)
        if names is None:
            return None
        return tuple(sorted({*names, *(self.compared_accumulators if compared else ())}))


def find_kinds() -> dict[str, ResultKind[Any]]:
    """Return the reads that the library declares and the kinds of the folder `workers/queries/kinds`, by name."""
    found = {name: kind_of(each) for name, each in find_reads().items() if not each.needs}
    for each in iter_modules(kinds.__path__):
        kind: ResultKind[Any] = import_module(f"{kinds.__name__}.{each.name}").KIND
        if kind.name != each.name:
            raise ImportError(f"{each.name}.py declares the kind {kind.name}")
        found[kind.name] = kind
    return found


@cache
def kind_of(read: Read[Any, Any]) -> ResultKind[Any]:
    """Return the result kind of a read that the library declares."""

    def compute(query: Declared, inputs: Inputs) -> Result:
        found: Result = read(state_of(inputs), query.plain()).to_dict()
        return found

    def compare(query: Declared, inputs: Inputs, other: Inputs, against: Against) -> Result:
        reject_other_classes(inputs.config, other.config)
        named = replace(state_of(other), name=side_name(against, other))
        found: Result = read.compared(state_of(inputs), named, query.plain()).to_dict()
        return found

    return ResultKind(
        declared_query(read),
        compute,
        lambda query: read.accumulators(query.plain()),
        None if read.compare is None else compare,
        read.compared_accumulators,
        lambda query: read.is_slow(query.plain()),
    )


def state_of(inputs: Inputs) -> State:
    """Return a side's window as the library computes results of it."""
    days = (inputs.window.to_s - inputs.window.from_s) / DAY_S
    return State(inputs.pane, inputs.config, inputs.seed, days)


def other_side(against: Against, mine: Pane, other: Inputs) -> Result:
    """Return the other side, its size, and the number of labelled predictions on both."""
    return {**side_name(against, other), **other.pane.counts, "shared": shared(mine, other.pane)}


def side_name(against: Against, other: Inputs) -> Result:
    """Return the name of the other side in a response: a baseline, a model, or a window."""
    if against.by in ("baseline", "model"):
        return {against.by: against.name}
    return {against.by: other.window.to_dict()}


def reject_other_classes(config: ModelConfig, other: ModelConfig) -> None:
    """Reject a comparison of models with different tasks or classes."""
    if config.content != other.content:
        detail = "Received a model of another task or other classes; expected the same task and number of classes."
        raise CalibrationInputError.at("/against", "not_comparable", detail)
