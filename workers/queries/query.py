"""Queries: one frozen class per result kind, the same in the request, on the wire and in the computation.

The HTTP service derives the parameters of a route from the query's fields. It builds the query once, with `resolved`,
and sends it as JSON; the worker reads the same class and computes from it.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field

from calibrant.results.base import OMITTED
from calibrant.results.queries import BinnedQuery, smallest_bin
from calibrant.results.reads import level
from calibrant_server.workers.store.model_config import ModelConfig


def limited(declared: Any, **more: Any) -> Any:
    """Return a field that the library declares, with its sentence and limits."""
    about = {name: value for name, value in declared.metadata.items() if name != OMITTED}
    return Field(... if declared.default is MISSING else declared.default, **about, **more)


_BINNED = {each.name: limited(each) for each in fields(BinnedQuery)}
BINS, SCOPE = _BINNED["bins"], _BINNED["scope"]
CI, MIN_COUNT = limited(level()), limited(smallest_bin())


@dataclass(frozen=True)
class Needs:
    """Parts of a window that a result kind reads.

    Attributes
    ----------
    panes : their merge, each pane separately, the merges of parts (`SeriesQuery`), merges of which none is in two `sides`, or none
    last_s : of sides, the length of the second; of the other window of a comparison, each pane is read separately
    alarm : the state of the model's alarm
    changed : of an alarm, accumulators of the sealed panes since the change
    records : retained records; the result then states whether they changed while they were read
    """

    panes: Literal["merged", "each", "parts", "sides", "none"] = "merged"
    last_s: int = 0
    alarm: bool = False
    changed: tuple[str, ...] = ()
    records: bool = False


class SeriesQuery:
    """Query of the consecutive parts of a window.

    Attributes
    ----------
    every_s : length of a part, a whole number of panes
    """

    every_s: int

    def check(self, n_parts: int) -> None:
        """Reject more parts than one request may have."""
        raise NotImplementedError


class Query(BaseModel):
    """Query of a window, without the window.

    Attributes
    ----------
    kind : name of the result kind
    needs : the parts that it reads
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ClassVar[str] = ""
    needs: ClassVar[Needs] = Needs()

    def resolved(self, config: ModelConfig) -> Query:
        """Return the query for one model: every default computed, every class named by its index.

        Raises
        ------
        CalibrationInputError
            The model does not support this query.
        """
        return self.own()

    def own(self, **changed: Any) -> Self:
        """Return the kind's own query, without the further parameters of a request, with some fields changed."""
        cls: type[Query] = next(each for each in type(self).__mro__ if "kind" in vars(each))
        fields = {name: getattr(self, name) for name in cls.model_fields} | changed
        return cast(
            "Self",
            cls.model_construct(self.model_fields_set & fields.keys() | changed.keys(), **fields),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values, for the identity of the query and for transfer."""
        return self.model_dump(mode="json", by_alias=True)
