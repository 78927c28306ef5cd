"""Queries: one frozen class per result kind, the same in the request, on the wire and in the computation.

The HTTP service derives the parameters of a route from the query's fields. It builds the query once, with `resolved`,
and sends it as JSON; the worker reads the same class and computes from it.

Reads that the library declares make queries of their own. Cached results and ETags include the version of the computing code, so
that other code never serves or confirms them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast, get_type_hints

import numpy
import scipy
from pydantic import BaseModel, ConfigDict, Field, create_model

import calibrant
from calibrant.results.base import OMITTED, key_of
from calibrant.results.queries import BinnedQuery, smallest_bin
from calibrant.results.reads import Query as LibraryQuery
from calibrant.results.reads import Read, edges_of_bins, label_policy, level
from calibrant_server.workers.store.model_config import ModelConfig


def limited(declared: Any, **more: Any) -> Any:
    """Return a field that the library declares, with its sentence and limits."""
    about = {name: value for name, value in declared.metadata.items() if name != OMITTED}
    return Field(... if declared.default is MISSING else declared.default, **about, **more)


def same_field(query: type[LibraryQuery], name: str) -> Any:
    """Return a field as a query of the library declares it."""
    return next(limited(each) for each in fields(query) if each.name == name)


BINS, BINNING, SCOPE = (same_field(BinnedQuery, name) for name in ("bins", "binning", "scope"))
CI, MIN_COUNT = limited(level()), limited(smallest_bin())
RATERS, EDGES = limited(label_policy()), limited(edges_of_bins())


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


ROOTS = (Path(calibrant.__file__).parent, Path(__file__).parents[1])


def digest_of_code(roots: Iterable[Path] = ROOTS) -> str:
    """Return the digest of every source file below some folders, and of the versions of numpy and scipy."""
    digest = blake2b(f"{numpy.__version__} {scipy.__version__}".encode(), digest_size=8)
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            name, text = path.relative_to(root).as_posix(), path.read_bytes()
            digest.update(f"\n{root.name}/{name} {len(text)}\n".encode())
            digest.update(text)
    return digest.hexdigest()


CODE_VERSION = digest_of_code()


class Declared(Query):
    """Query that the library declares."""

    library: ClassVar[type[LibraryQuery]]

    def resolved(self, config: ModelConfig) -> Query:
        return self.own(**self.plain().resolved(config, self.model_fields_set))

    def plain(self) -> Any:
        """Return the query as the library computes it."""
        return self.library(
            **{each.name: getattr(self, each.name) for each in fields(self.library)}
        )


@cache
def declared_query(read: Read[Any, Any]) -> type[Declared]:
    """Return the class of a read's query with its limits, as the service and the worker check it."""
    made = query_class(read.query)
    made.kind, made.needs = read.name, Needs(**read.needs)
    found: type[Declared] = made
    return found


def query_class(library: type[LibraryQuery]) -> Any:
    """Return the class of a query with its limits."""
    fields_, doc = described(library), library.__doc__
    made = create_model(library.__name__, __base__=Declared, __doc__=doc, **fields_)
    made.library = library
    return made


def query_for(read: Read[Any, Any], **parameters: Any) -> Declared:
    """Return a query of a read, checked."""
    return declared_query(read).model_validate(parameters)


def described(cls: type[Any]) -> Mapping[str, Any]:
    """Return the fields of a dataclass with their types and descriptions."""
    hints = get_type_hints(cls)
    return {each.name: (hints[each.name], _field(each)) for each in fields(cls)}


def _field(each: dataclasses.Field[Any]) -> Any:
    key = key_of(each.name)
    return limited(each, **({"alias": key} if key != each.name else {}))
