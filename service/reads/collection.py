"""Collections, each declared once: path, form of an entry, caller, and functions that list, return and delete entries.

Pages with their cursors, links and ETags, conditional requests and the document follow from the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel, create_model

from calibrant_server.service.http.lists import (
    NOT_MODIFIED,
    PAGE_HEADERS,
    ListPage,
    PageQuery,
    SortKey,
    page_of,
)
from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.reads.operations import (
    Access,
    Declare,
    Id,
    Page,
    Responses,
    operation,
)

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Collection:
    """Entries under one path.

    Attributes
    ----------
    router : gets the routes
    path : of the collection; with `{model}` if each model has one
    name : member of a page that has its entries
    item : form of an entry in a page, and alone
    caller : who lists and reads entries
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

    def lists(self, name: str, media_types: Iterable[str] = ()) -> Declare:
        """Return a decorator: its function returns a page (`paged`), or a response in another media type."""
        found = success(self.page or self._page(), self.title, **PAGE_HEADERS)
        found["content"] |= {each: {"schema": {"type": "string"}} for each in media_types}
        responses = {200: found, 304: NOT_MODIFIED, **problems(422)}
        headers = ("if_none_match",)
        declare = self._operation("GET", name, self.caller, responses)
        return declare(query=self.query, headers=headers)

    def returns(self, name: str, id: Id, description: str) -> Declare:
        """Return a decorator: its function returns one entry. `id`: its name in the path, and annotation."""
        found: Responses = {200: success(self.item, description), **problems(422)}
        return self._operation("GET", name, self.caller, found, id)(id=id)

    def creates(
        self,
        name: str,
        body: type[BaseModel],
        title: str,
        caller: Any,
        *statuses: int,
        responses: Responses,
    ) -> Declare:
        """Return a decorator: its function makes an entry of a `body`; `statuses` are those of its problems."""
        found = {**responses, **problems(*statuses)}
        return self._operation("POST", name, caller, found)(body=(title, body))

    def deletes(
        self,
        name: str,
        id: Id,
        description: str,
        caller: Any,
        *statuses: int,
        query: type[BaseModel] | None = None,
    ) -> Declare:
        """Return a decorator: its function deletes one entry; `statuses` are those of its problems."""
        found: Responses = {204: {"description": description}, **problems(*statuses)}
        return self._operation("DELETE", name, caller, found, id)(id=id, query=query)

    def paged(
        self,
        access: Access,
        entries: Iterable[Entry],
        key: Callable[[Entry], SortKey],
        shown: Callable[[Entry], Any] = lambda entry: entry,
    ) -> Page:
        """Return the page of entries that the query selects, and the cursor of the next page."""
        page, following = page_of(entries, key, access.query)
        return {self.name: [shown(each) for each in page]}, following

    def _operation(
        self, method: str, name: str, caller: Any, responses: Responses, id: Id | None = None
    ) -> Callable[..., Declare]:
        path = self.path if id is None else f"{self.path}/{{{id[0]}}}"
        return partial(operation, self.router, f"{method} {path}", name, caller, responses)

    def _page(self) -> type[BaseModel]:
        name = self.name.title().replace("_", "") + "Response"
        entries: Any = (list[self.item], ...)  # type: ignore[name-defined]
        return create_model(
            name, __base__=ListPage, __doc__=f"{self.title}.", **{self.name: entries}
        )
