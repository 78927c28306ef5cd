"""Collections, each declared once: path, form of an entry, caller, and functions that list, return and delete entries.

Pages with their cursors, links and ETags, conditional requests and the document follow from the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, create_model

from calibrant_server.service.http.lists import (
    PAGE_HEADERS,
    ListPage,
    PageQuery,
    SortKey,
    page_of,
)
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.operations import (
    Access,
    Declare,
    Id,
    Operations,
    Page,
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

    router: Operations
    path: str
    name: str
    item: type[BaseModel]
    caller: Any
    title: str
    query: type[PageQuery] = PageQuery
    page: type[ListPage] | None = None

    def lists(self, media_types: Iterable[str] = ()) -> Declare:
        """Return a decorator: its function returns a page (`paged`), or a response in another media type."""
        found = success(self.page or self._page(), self.title, **PAGE_HEADERS)
        found["content"] |= {each: {"schema": {"type": "string"}} for each in media_types}
        headers = ("if_none_match",)
        return self.router.operation(f"GET {self.path}", self.caller, found, query=self.query, headers=headers)  # fmt: skip

    def returns(self, id: Id, description: str) -> Declare:
        """Return a decorator: its function returns one entry. `id`: its name in the path, and annotation."""
        found = success(self.item, description)
        return self.router.operation(f"GET {self._entry(id)}", self.caller, found, id=id)

    def creates(
        self,
        body: type[BaseModel],
        title: str,
        caller: Any,
        returns: Mapping[Any, Any],
        *statuses: int,
    ) -> Declare:
        """Return a decorator: its function makes an entry of a `body`; `statuses` are those of its problems."""
        path = f"POST {self.path}"
        return self.router.operation(path, caller, returns, *statuses, body=(title, body))

    def deletes(
        self, id: Id, description: str, caller: Any, *statuses: int, query: type[BaseModel] | None = None
    ) -> Declare:  # fmt: skip
        """Return a decorator: its function deletes one entry; `statuses` are those of its problems."""
        path, found = f"DELETE {self._entry(id)}", {204: {"description": description}}
        return self.router.operation(path, caller, found, *statuses, id=id, query=query)

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

    def _entry(self, id: Id) -> str:
        return f"{self.path}/{{{id[0]}}}"

    def _page(self) -> type[BaseModel]:
        name = self.name.title().replace("_", "") + "Response"
        entries: Any = (list[self.item], ...)  # type: ignore[name-defined]
        return create_model(
            name, __base__=ListPage, __doc__=f"{self.title}.", **{self.name: entries}
        )
