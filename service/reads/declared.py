"""Routes of the reads that the library declares: parameters, response model and document follow from the declaration."""

from functools import cache
from importlib import import_module
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, create_model

from calibrant.results.reads import Read
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheMapRead, TheReadAccess
from calibrant_server.service.reads.figures import Draw, Format, or_drawn
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery
from calibrant_server.service.reads.response_models import response_of
from calibrant_server.workers.queries.declared import declared_query

FIGURES = "calibrant.figures"
FORMAT: Any = (
    Format | None,
    Field(None, description="Format of the response, instead of the header Accept."),
)
ETAG = "Changes with the state and the query."


def add_route(router: APIRouter, read: Read[Any, Any]) -> None:
    """Add the route of a read."""
    found = success(response_of(read.result), read.response, ETag=ETAG)

    async def respond(read_access: Any, query: Any) -> Response:
        read_query = await read_access.read_query(query)
        draw = figure_of(read.figure)
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
        responses=or_drawn(found),
    )(respond)


def parameters_of(read: Read[Any, Any]) -> type[BaseModel]:
    """Return the parameters of a read: its own, the window, the other side of a comparison and the format."""
    compared = (AgainstQuery,) if read.compare else ()
    bases: tuple[type[BaseModel], ...] = (ClockQuery, *compared, declared_query(read))
    name = read.query.__name__.replace("Query", "Parameters")
    return create_model(name, __base__=bases, format=FORMAT)


@cache
def figure_of(place: str) -> Draw:
    """Return the function that draws a result."""
    module, _, name = place.partition(":")
    draw: Draw = getattr(import_module(f"{FIGURES}.{module}"), name)
    return draw
