"""Collections, each declared once: path, form of an entry, caller, and functions that list, return and delete entries.

Parameters, pages with their cursors, links and ETags, conditional requests, errors of the store and the document follow
from the declaration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, create_model

from calibrant_server.service.engine import Connection, engine_errors, model_of
from calibrant_server.service.http.json_bodies import json_response
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
from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.store.model_config import ModelConfig

Entry = TypeVar("Entry")
Page = tuple[dict[str, Any], str | None]


@dataclass(frozen=True)
class CollectionAccess:
    """One request to a collection.

    Attributes
    ----------
    id : the entry in the path; None if the path is that of the collection
    """

    request: Request
    caller: Caller
    query: Any = None
    id: Any = None

    @property
    def connection(self) -> Connection:
        """Connection to the engine."""
        connection: Connection = self.request.app.state.connection
        return connection

    async def config(self) -> ModelConfig:
        """Return the model in the path, or raise ModelUnknown."""
        return await model_of(self.connection, self.caller, self.request.path_params["model"])


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
