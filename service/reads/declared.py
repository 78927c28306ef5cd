"""Routes of the reads that the library declares: parameters, response model and document follow from the declaration."""

from collections.abc import Mapping
from functools import partial
from inspect import signature
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, create_model

from calibrant.results.reads import Read
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheMapRead, TheReadAccess
from calibrant_server.service.reads.figures import Draw, Format, or_drawn, or_unchanged
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery, WindowQuery
from calibrant_server.service.reads.response_models import response_of
from calibrant_server.service.reads.service import JSON
from calibrant_server.service.reads.short_answers import (
    only,
    rendered_short,
    wants_details,
    without_details,
)
from calibrant_server.workers.queries.declared import declared_query, described
from calibrant_server.workers.store.model_config import ModelConfig

FORMAT: Any = (
    Format | None,
    Field(None, description="Format of the response, instead of the header Accept."),
)
ETAG = "Changes with the state and the query."


def add_route(router: APIRouter, read: Read[Any, Any]) -> None:
    """Add the route of a read."""
    found = success(response_of(read.result), read.response, ETag=ETAG)

    async def respond(read_access: Any, query: Any) -> Response:
        is_drawn = read.figure is not None and read_access.is_drawn(query.format)
        if is_drawn and read.drawn:
            query = query.model_copy(update=read.drawn)
        shown = {name: getattr(query, name) for name in _shown(read)}
        if read.short is not None:
            if not is_drawn and not wants_details(query.include):
                return await _short(read.short, read_access, query)
            query = query.model_copy(update={"include": without_details(query.include)})
        read_query = await read_access.read_query(query, **shown)
        if read.figure is None:
            plain: Response = await read_access.reads.respond(read_access.request, read_query)
            return plain
        draw = figure_of(read.figure, shown, read_query.config)
        response: Response = await read_access.respond(read_query, query.format, draw)
        return response

    respond.__annotations__ = {
        "read_access": TheMapRead if read.is_map else TheReadAccess,
        "query": Annotated[parameters_of(read), Query()],
        "return": Response,
    }
    respond.__doc__ = read.summary
    router.get(
        f"/v1/models/{{model}}/{read.path}",
        tags=[read.tag],
        operation_id=read.operation,
        responses=or_drawn(found) if read.figure else or_unchanged(found),
    )(respond)


async def _short(names: frozenset[str], read_access: Any, query: Any) -> Response:
    """Respond with the named fields."""
    read_query = await read_access.read_query(query, short="short")
    render = rendered_short(partial(only, names))
    response: Response = await read_access.reads.respond(
        read_access.request, read_query, JSON, render
    )
    return response


def parameters_of(read: Read[Any, Any]) -> type[BaseModel]:
    """Return the parameters of a read: its own, the window, the other side of a comparison and the format."""
    window = WindowQuery if read.of_records else ClockQuery
    compared = (AgainstQuery,) if read.compare or read.is_compared else ()
    bases: tuple[type[BaseModel], ...] = (window, *compared, declared_query(read))
    name = read.query.__name__.replace("Query", "Parameters")
    drawn = {} if read.figure is None else {**_shown(read), "format": FORMAT}
    return create_model(name, __base__=bases, **drawn)


def figure_of(figure: Draw, options: Mapping[str, Any], config: ModelConfig) -> Draw:
    """Return the function that draws a result, with the options of the request and the classes of the model."""
    taken = signature(figure).parameters
    of_model = {name: getattr(config, name) for name in ("classes", "n_classes") if name in taken}
    return partial(figure, **options, **of_model)


def _shown(read: Read[Any, Any]) -> Mapping[str, Any]:
    """Return the options of the figure."""
    return {} if read.shown is None else described(read.shown)
