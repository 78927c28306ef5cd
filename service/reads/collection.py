"""Collections, each declared once: path, form of an entry, caller, and functions that list, return and delete entries.

Parameters, pages with their cursors, links and ETags, conditional requests, errors of the store and the document follow
from the declaration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, create_model

from calibrant_server.service.engine import Connection, engine_errors, model_of
from calibrant_server.service.http.bodies import JSON, read_body
from calibrant_server.service.http.json_bodies import json_response, read_json
from calibrant_server.service.http.lists import (
    NOT_MODIFIED,
    PAGE_HEADERS,
    ListPage,
    PageQuery,
    SortKey,
    list_response,
    page_of,
)
from calibrant_server.service.http.parameters import IfNoneMatch, ModelId
from calibrant_server.service.http.problem_responses import validated
from calibrant_server.service.ingest.parsed_batch import object_of
from calibrant_server.service.openapi.schema import problems, success, takes
from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.store.model_config import ModelConfig

MAX_OBJECTS = 1000
Entry = TypeVar("Entry")
Page = tuple[dict[str, Any], str | None]


@dataclass(frozen=True)
class CollectionAccess:
    """One request to a collection.

    Attributes
    ----------
    id : the entry in the path; None if the path is that of the collection
    body : what a new entry is made of, checked
    """

    request: Request
    caller: Caller
    query: Any = None
    id: Any = None
    body: Any = None

    @property
    def connection(self) -> Connection:
        """Connection to the engine."""
        connection: Connection = self.request.app.state.connection
        return connection

    async def config(self) -> ModelConfig:
        """Return the model in the path, or raise ModelUnknown."""
        return await model_of(self.connection, self.caller, self.request.path_params["model"])


@dataclass(frozen=True)
class Created:
    """An entry that a request has made, or that was the same before.

    Attributes
    ----------
    location : of the entry
    headers : further headers of the response
    """

    document: Mapping[str, Any]
    location: str
    is_new: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        """Return the response to the request."""
        headers = {"Location": self.location, **self.headers}
        return Response(orjson.dumps(self.document), 201 if self.is_new else 200, headers, JSON)


@dataclass(frozen=True)
class Collection:
    """Entries under one path.

    Attributes
    ----------
    router : gets the routes
    path : of the collection; with `{model}` if each model has one
    name : member of a page that has its entries
    item : form of an entry in a page, and alone
    caller : who lists and reads entries: an annotation of `http.dependencies`
    title : of a page, for the document
    query : parameters of a list
    page : form of a page. Default: the entries and `next`
    """

    router: APIRouter
    path: str
    name: str
    item: type[BaseModel]
    caller: Any
    title: str
    query: type[PageQuery] = PageQuery
    page: type[ListPage] | None = None

    def lists(
        self, operation: str, media_types: Iterable[str] = ()
    ) -> Callable[
        [Callable[[CollectionAccess], Awaitable[Page | Response]]],
        Callable[..., Awaitable[Response]],
    ]:
        """Return a decorator: its function returns a page (`paged`), or a response in another media type."""
        found = success(self.page or self._page(), self.title, **PAGE_HEADERS)
        found["content"] |= {each: {"schema": {"type": "string"}} for each in media_types}
        responses = {200: found, 304: NOT_MODIFIED, **problems(422)}

        def declare(
            read: Callable[[CollectionAccess], Awaitable[Page | Response]],
        ) -> Callable[..., Awaitable[Response]]:
            async def respond(
                request: Request, caller: Caller, query: Any, **_: object
            ) -> Response:
                with engine_errors():
                    page = await read(CollectionAccess(request, caller, query))
                if isinstance(page, Response):
                    return page
                return list_response(request, *page)

            taken = {
                **self._taken(self.caller),
                "query": Annotated[self.query, Query()],
                "if_none_match": IfNoneMatch,
            }
            _describe(respond, read, taken)
            self.router.get(self.path, operation_id=operation, responses=responses)(respond)
            return respond

        return declare

    def returns(
        self, operation: str, id: tuple[str, Any], description: str
    ) -> Callable[
        [Callable[[CollectionAccess], Awaitable[dict[str, Any]]]],
        Callable[..., Awaitable[Response]],
    ]:
        """Return a decorator: its function returns one entry. `id`: its name in the path, and annotation."""

        def declare(
            read: Callable[[CollectionAccess], Awaitable[dict[str, Any]]],
        ) -> Callable[..., Awaitable[Response]]:
            async def respond(request: Request, caller: Caller, **given: Any) -> Response:
                with engine_errors():
                    access = CollectionAccess(request, caller, None, given[id[0]])
                    return json_response(await read(access))

            _describe(respond, read, {**self._taken(self.caller), id[0]: id[1]})
            found = {200: success(self.item, description), **problems(422)}
            path = f"{self.path}/{{{id[0]}}}"
            self.router.get(path, operation_id=operation, responses=found)(respond)
            return respond

        return declare

    def creates(
        self,
        operation: str,
        body: type[BaseModel],
        title: str,
        caller: Any,
        *statuses: int,
        responses: dict[int | str, dict[str, Any]],
    ) -> Callable[
        [Callable[[CollectionAccess], Awaitable[Created]]], Callable[..., Awaitable[Response]]
    ]:
        """Return a decorator: its function makes an entry of a `body`; `statuses` are those of its problems."""

        def declare(
            create: Callable[[CollectionAccess], Awaitable[Created]],
        ) -> Callable[..., Awaitable[Response]]:
            async def respond(request: Request, caller: Caller, **_: object) -> Response:
                given = validated(body, await document(request))
                with engine_errors():
                    made = await create(CollectionAccess(request, caller, body=given))
                return made.response()

            _describe(respond, create, self._taken(caller))
            self.router.post(
                self.path,
                operation_id=operation,
                status_code=201 if list(responses) == [201] else None,
                responses={**responses, **problems(*statuses)},
                openapi_extra=takes(title, json=body),
            )(respond)
            return respond

        return declare

    def deletes(
        self,
        operation: str,
        id: tuple[str, Any],
        description: str,
        caller: Any,
        *statuses: int,
        query: type[BaseModel] | None = None,
    ) -> Callable[
        [Callable[[CollectionAccess], Awaitable[None]]], Callable[..., Awaitable[Response]]
    ]:
        """Return a decorator: its function deletes one entry; `statuses` are those of its problems."""

        def declare(
            delete: Callable[[CollectionAccess], Awaitable[None]],
        ) -> Callable[..., Awaitable[Response]]:
            async def respond(request: Request, caller: Caller, **given: Any) -> Response:
                with engine_errors():
                    found = CollectionAccess(request, caller, given.get("query"), given[id[0]])
                    await delete(found)
                return Response(status_code=204)

            asked = {} if query is None else {"query": Annotated[query, Query()]}
            _describe(respond, delete, {**self._taken(caller), id[0]: id[1], **asked})
            self.router.delete(
                f"{self.path}/{{{id[0]}}}",
                operation_id=operation,
                status_code=204,
                responses={204: {"description": description}, **problems(*statuses)},
            )(respond)
            return respond

        return declare

    def paged(
        self,
        access: CollectionAccess,
        entries: Iterable[Entry],
        key: Callable[[Entry], SortKey],
        shown: Callable[[Entry], Any] = lambda entry: entry,
    ) -> Page:
        """Return the page of entries that the query selects, and the cursor of the next page."""
        page, following = page_of(entries, key, access.query)
        return {self.name: [shown(each) for each in page]}, following

    def _taken(self, caller: Any) -> dict[str, Any]:
        of_model = {"model": ModelId} if "{model}" in self.path else {}
        return {**of_model, "request": Request, "caller": caller}

    def _page(self) -> type[BaseModel]:
        name = self.name.title().replace("_", "") + "Response"
        entries: Any = (list[self.item], ...)  # type: ignore[name-defined]
        return create_model(
            name, __base__=ListPage, __doc__=f"{self.title}.", **{self.name: entries}
        )


async def document(request: Request) -> dict[str, Any]:
    """Return the JSON object that a request has as its body."""
    ingest = request.app.state.ingest
    with ingest.admission.hold() as hold:
        body = await read_body(request, ingest.settings, hold, (JSON,))
        return object_of(read_json(body.data, MAX_OBJECTS))


def _describe(respond: Any, function: Any, taken: dict[str, Any]) -> None:
    """Give a route the name and summary of its function, and its parameters."""
    respond.__name__, respond.__doc__ = function.__name__, function.__doc__
    defaults = {"if_none_match": None}
    respond.__signature__ = Signature(
        [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=defaults.get(name, Parameter.empty),
                annotation=annotation,
            )
            for name, annotation in taken.items()
        ]
    )
