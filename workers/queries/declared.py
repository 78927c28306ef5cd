"""Queries of the reads that the library declares, as they are requested and sent to the worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from functools import cache
from typing import Any, ClassVar, get_type_hints

from pydantic import create_model

from calibrant.results.base import key_of
from calibrant.results.reads import Query as LibraryQuery
from calibrant.results.reads import Read
from calibrant_server.workers.queries.query import Needs, Query, limited
from calibrant_server.workers.store.model_config import ModelConfig


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


def _field(each: Field[Any]) -> Any:
    key = key_of(each.name)
    return limited(each, **({"alias": key} if key != each.name else {}))
