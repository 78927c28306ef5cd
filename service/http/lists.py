"""Pages of a list: a limit, an opaque cursor, a link to the next page.

A cursor holds the sort key of the last entry of its page, so that entries added or removed meanwhile
neither repeat nor hide others. Every list is sorted by a key that no two entries share.
"""

import binascii
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import urlencode

import orjson
from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import Violation
from calibrant_server.service.http.json_bodies import response_or_unchanged
from calibrant_server.service.http.problems import InvalidQuery

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_CURSOR = 1024

PAGE_HEADERS = {"ETag": "The content of the page.", "Link": "The next page, with rel=next."}

Entry = TypeVar("Entry")
SortKey = list[Any]


class PageQuery(BaseModel):
    """The requested page of a list."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(
        DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Maximum number of entries per page."
    )
    cursor: str | None = Field(
        None, max_length=MAX_CURSOR, description="`next` of the previous page. Default: first page."
    )


class ListPage(BaseModel):
    """The position where a list continues."""

    next: str | None = Field(
        None, description="Cursor of the next page; null on the last page. Also in `Link`."
    )


def page_of(
    entries: Iterable[Entry], key: Callable[[Entry], SortKey], query: PageQuery
) -> tuple[list[Entry], str | None]:
    """Return the entries of the page and the cursor of the next one.

    Parameters
    ----------
    entries : in any order
    key : sort key of an entry, of JSON values; no two entries have the same

    Raises
    ------
    InvalidQuery
        This list did not return the cursor.
    """
    after = None if query.cursor is None else sort_key_of(query.cursor)
    found = sorted(entries, key=key)
    if after is not None:
        try:
            found = [each for each in found if key(each) > after]
        except TypeError as error:
            raise invalid_cursor() from error
    page = found[: query.limit]
    more = len(found) > len(page)
    return page, cursor_of(key(page[-1])) if more else None


def list_response(
    request: Request, document: dict[str, Any], next_cursor: str | None, **headers: str
) -> Response:
    """Return a page as JSON with ETag and Link; 304 if the client has it."""
    body = orjson.dumps({**document, "next": next_cursor})
    etag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    headers = {"Cache-Control": "no-cache", "Vary": "Authorization", "ETag": etag, **headers}
    if next_cursor is not None:
        headers["Link"] = link_to(request, next_cursor)
    return response_or_unchanged(request, body, headers)


def link_to(request: Request, cursor: str) -> str:
    """Return the value of `Link`: the request's own URL with another cursor."""
    query = [pair for pair in request.query_params.multi_items() if pair[0] != "cursor"]
    return f'<{request.url.path}?{urlencode([*query, ("cursor", cursor)])}>; rel="next"'


def cursor_of(key: SortKey) -> str:
    """Return the cursor of the page behind the entry with this sort key."""
    return urlsafe_b64encode(orjson.dumps(key)).rstrip(b"=").decode()


def sort_key_of(cursor: str) -> SortKey:
    """Return the sort key in a cursor.

    Raises
    ------
    InvalidQuery
        This list did not return the cursor.
    """
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        key = orjson.loads(urlsafe_b64decode(padded.encode("ascii")))
    except (binascii.Error, UnicodeEncodeError, orjson.JSONDecodeError) as error:
        raise invalid_cursor() from error
    if not isinstance(key, list) or not key:
        raise invalid_cursor()
    return key


def invalid_cursor() -> InvalidQuery:
    """Return the problem of a cursor that a list did not return."""
    detail = (
        "Received a cursor that this list did not return; expected `next` of a page of this list. "
        "Leave it out to read the first page."
    )
    return InvalidQuery(detail, errors=[Violation("/cursor", "cursor", detail)])
