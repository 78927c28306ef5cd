"""Models of the responses that are results of the library: fields, types and sentences are those of the result's class."""

from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, create_model

from calibrant.metrics import METRICS
from calibrant.metrics.estimate import Estimate
from calibrant.results.base import Result
from calibrant.results.estimate_values import EstimateValues
from calibrant.results.reads import Read
from calibrant_server.service.http.lists import ListPage
from calibrant_server.workers.queries.declared import described


class WindowShown(BaseModel):
    """The window after it was resolved to whole panes: half open, RFC 3339."""

    from_: str = Field(alias="from")
    to: str


_models: dict[str, type[BaseModel]] = {}
HEAD: Mapping[str, Any] = {
    "model": (str, ...),
    "window": (WindowShown, ...),
    "state_version": (str, ...),
}


def response_of(read: Read[Any, Any]) -> type[BaseModel]:
    """Return the model of a response that is a result, with the head of all results."""
    # The parts of a window have a state each.
    head = {**HEAD, "state_version": (str | None, None)} if read.in_parts else HEAD
    if read.paged is not None:
        head = {**head, "next": (str | None, ListPage.model_fields["next"])}
    return _model(f"{read.result.__name__}Response", read.result, head)


def part_of(result: type[Result], name: str | None = None) -> type[BaseModel]:
    """Return the model of a result that is part of a response."""
    return _model(name or result.__name__, result, {})


def _model(name: str, result: type[Any], head: Mapping[str, Any]) -> type[BaseModel]:
    if name in _models:
        return _models[name]
    own = {name: (_shown(kind), field) for name, (kind, field) in described(result).items()}
    config = ConfigDict(extra="allow")
    _models[name] = create_model(
        name,
        __config__=config,
        __doc__=(result.__doc__ or "").partition("\n\n")[0],
        **{**head, **own},
    )
    return _models[name]


def _shown(kind: Any) -> Any:
    """Return a type whose results are models of the document."""
    if kind in (Estimate, EstimateValues):
        return part_of(EstimateValues, "Estimate")
    if kind == dict[str, EstimateValues]:
        return estimates()
    if isinstance(kind, type) and issubclass(kind, Result):
        return part_of(kind)
    inner = tuple(_shown(each) for each in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return reduce(or_, inner)
    return get_origin(kind)[inner] if get_origin(kind) in (list, dict) else kind


@cache
def estimates() -> type[BaseModel]:
    """Return the model of estimates by metric, derived from the list of metrics."""
    fields: dict[str, Any] = {
        slug: (part_of(EstimateValues, "Estimate"), _described(metric))
        for slug, metric in sorted(METRICS.items())
    }
    return create_model(
        "Estimates",
        __config__=ConfigDict(extra="allow"),
        __doc__="Estimates by the canonical key of the request: a slug, with its options in brackets; each "
        "states which value is better.",
        **fields,
    )


def _described(metric: Any) -> Any:
    return Field(None, title=metric.title, description=getattr(metric, "direction", None))
