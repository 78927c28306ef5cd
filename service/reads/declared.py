"""Routes of the reads that the library declares: parameters, response model and document follow from the declaration."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import orjson
from fastapi import Request, Response
from pydantic import BaseModel, create_model

from calibrant.results.queries import DETAILS, parts_of, without_details
from calibrant.results.reads import Read
from calibrant.results.reliability import EACH_CLASS
from calibrant_server.service.http.lists import PAGE_HEADERS, PageQuery, link_to, page_of
from calibrant_server.service.http.parameters import (
    MEDIA_TYPES,
    ChosenFormat,
    Format,
    media_type_of,
)
from calibrant_server.service.openapi.schema import reference, success
from calibrant_server.service.reads.operations import Access, MapReader, Operations, Reader
from calibrant_server.service.reads.parts import (
    ClassesResponse,
    LabelsResponse,
    Parts,
    classes_of,
    has_labels,
    is_by_label,
    labels_of,
    reject_one_result,
    values_of,
    with_current_advice,
)
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery, PartsQuery, WindowQuery
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.reads.representations import (
    TABLES,
    Draw,
    drawn,
    or_drawn,
    or_table,
    response_of,
    tabulated,
    written_type,
)
from calibrant_server.service.reads.service import JSON, Render
from calibrant_server.workers.queries.query import declared_query, described
from calibrant_server.workers.store.model_config import ModelConfig

FORMAT: Any = (ChosenFormat, None)
ETAG = "Changes with the state and the query."
AnyRead = Read[Any, Any]


def add_route(router: Operations, read: AnyRead) -> None:
    """Add the route of a read."""

    async def respond(access: Access) -> Response:
        return await response_to(read, access, access.query)

    respond.__doc__, respond.__name__ = read.summary, read.operation
    of_page = {} if read.paged is None else {"Link": PAGE_HEADERS["Link"]}
    found = success(response_of(read), read.response, ETag=ETAG, **of_page)
    if has_labels(read):
        schema = found["content"][JSON]
        others = (LabelsResponse, *((ClassesResponse,) if read.panels is not None else ()))
        schema["schema"] = {"anyOf": [schema["schema"], *map(reference, others)]}
    found = found if read.table is None else or_table(found)
    router.operation(
        f"GET /v1/models/{{model}}/{read.path}",
        MapReader if read.is_map else Reader,
        found if read.figure is None else or_drawn(found),
        406,
        query=parameters_of(read),
        headers=("if_none_match", "prefer"),
        tag=read.tag,
    )(respond)


async def response_to(read: AnyRead, access: Access, query: Any) -> Response:
    """Return the result of a read as JSON, table or figure."""
    media_type = _media_type(read, access.request, getattr(query, "format", None))
    if getattr(query, "scope", None) == EACH_CLASS and read.panels is not None:
        parts = await classes_of(read, access, query, media_type)
        render = _panels(read, "classes", media_type)
        return await _together(access, parts, media_type, render)
    is_figure = media_type not in (JSON, *TABLES)
    is_short = read.short is not None and media_type == JSON and DETAILS not in parts_of(query.include)  # fmt: skip
    options = {name: getattr(query, name) for name in _shown(read)} if is_figure else {}
    changed = dict(read.drawn) if is_figure else {}
    if read.short is not None and query.include is not None:
        changed = {"include": without_details(query.include), **changed}
    query = query.model_copy(update=changed) if changed else query
    read_query = await access.read_query(query, ("short",) if is_short else (*options.values(),))
    is_multilabel = read_query.config.label_names is not None
    has_all_labels = is_multilabel and is_by_label(read, read_query)
    if has_all_labels:
        reject_one_result(read, read_query, media_type)
    if read.paged is not None and media_type == JSON:
        return await _page(read.paged, access, read_query, query)
    render = _rendered_short(read) if is_short else _render(read, media_type, options, read_query)
    if has_all_labels:
        return await _together(access, labels_of(read_query), media_type, render)
    current = with_current_advice(read_query) if media_type == JSON else None
    if current is not None:
        return await _together(access, current, media_type, render)
    if getattr(query, "by", None) is not None:
        parts = await values_of(read_query, query.by, access.reads)
        return await _together(access, parts, media_type, render)
    return await access.reads.respond(access.request, read_query, media_type, render)


async def _together(
    access: Access, parts: Parts, media_type: str, render: Render | None
) -> Response:
    return await access.reads.together(
        access.request, parts.queries, parts.join, media_type, render
    )


def _panels(read: AnyRead, name: str, media_type: str) -> Render | None:
    """Return what draws the parts of a document in one figure; None for JSON."""
    panels = read.panels
    assert panels is not None
    return drawn(lambda found: panels(found[name]), media_type)


def _render(
    read: AnyRead, media_type: str, options: Mapping[str, Any], read_query: ReadQuery
) -> Render | None:
    """Return what makes a table or a figure of the result; None for JSON."""
    if media_type == JSON:
        return None
    if media_type in TABLES and read.table is not None:
        return tabulated(media_type, read.table)
    assert read.figure is not None
    if read.panels is not None and read_query.config.label_names and is_by_label(read, read_query):
        return _panels(read, "labels", media_type)
    return drawn(figure_of(read.figure, options, read_query.config), media_type)


async def _page(
    paged: tuple[str, Callable[[Any], list[Any]]],
    access: Access,
    read_query: ReadQuery,
    query: PageQuery,
) -> Response:
    """Return a page of a result's list, with the link to the next one."""
    name, key = paged
    following: list[str] = []

    async def render(body: bytes) -> bytes:
        document = orjson.loads(body)
        page, cursor = page_of(document[name], key, query)
        following.extend([] if cursor is None else [cursor])
        return orjson.dumps(document | {name: page, "next": cursor})

    read_query = replace(read_query, shown=(str(query.limit), query.cursor))
    response = await access.reads.respond(access.request, read_query, JSON, render)
    if following:
        response.headers["Link"] = link_to(access.request, following[0])
    return response


def _media_type(read: AnyRead, request: Request, format: Format | None) -> str:
    images = (*MEDIA_TYPES.values(),) if read.figure is not None else (JSON,)
    tables = TABLES if read.table is not None else ()
    media_type = media_type_of(format, request, images + tables)
    return written_type(media_type) if media_type in tables else media_type


def parameters_of(read: AnyRead) -> type[BaseModel]:
    """Return the parameters of a read: its own, the window, the other side of a comparison and the format."""
    bases: tuple[type[BaseModel], ...] = (
        WindowQuery if read.of_records else ClockQuery,
        *((AgainstQuery,) if read.compare or read.is_compared else ()),
        *((PartsQuery,) if read.in_parts else ()),
        *((PageQuery,) if read.paged is not None else ()),
        declared_query(read),
    )
    name = read.query.__name__.replace("Query", "Parameters")
    drawn_as = {} if read.figure is None else {**_shown(read), "format": FORMAT}
    return create_model(name, __base__=bases, **drawn_as)


def figure_of(figure: Draw, options: Mapping[str, Any], config: ModelConfig) -> Draw:
    """Return the function that draws a result, with the options of the request and the classes of the model."""
    taken = signature(figure).parameters
    of_model = {name: getattr(config, name) for name in ("classes", "n_classes") if name in taken}
    return partial(figure, **options, **of_model)


def _rendered_short(read: AnyRead) -> Render:
    """Return what makes the short response from a complete one."""
    short = read.short
    assert short is not None

    async def render(body: bytes) -> bytes:
        found = orjson.loads(body)
        labels = {name: short(each) for name, each in found.pop("labels", {}).items()}
        if labels and not read.in_parts:
            return orjson.dumps(found | {"labels": labels})
        return orjson.dumps(short(found) | ({"labels": labels} if labels else {}))

    return render


def _shown(read: AnyRead) -> Mapping[str, Any]:
    """Return the options of the figure."""
    return {} if read.shown is None else described(read.shown)
