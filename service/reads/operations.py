"""Operations, each declared once: method, path, caller, query, body and responses; and what each is given of its request.

Parameters, checks of the body, errors of the engine and the document follow from the declaration. A function returns a document, a page, what it
has made (`Created`), nothing, or a response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeVar, cast

import orjson
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import BaseModel

from calibrant_server.service.engine import Connection, model_of
from calibrant_server.service.http.bodies import JSON, Body, read_body
from calibrant_server.service.http.json_bodies import json_response, read_json
from calibrant_server.service.http.lists import list_response
from calibrant_server.service.http.parameters import (
    IdempotencyKey,
    IfMatch,
    IfNoneMatch,
    ModelId,
    Prefer,
)
from calibrant_server.service.http.problem_responses import validated
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest.parsed_batch import object_of
from calibrant_server.service.ingest.service import IngestAccess, IngestService
from calibrant_server.service.openapi.schema import problems, takes
from calibrant_server.service.reads.queries import WindowQuery, reject_unread, resolved_query
from calibrant_server.service.reads.read_query import ReadQuery, comparison_of
from calibrant_server.service.reads.service import ReadService
from calibrant_server.service.security.keys import Caller, needs
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.queries.kind import Against
from calibrant_server.workers.queries.query import Query as PaneQuery
from calibrant_server.workers.store.key_names import model_key
from calibrant_server.workers.store.model_config import ModelConfig

T = TypeVar("T")
MAX_OBJECTS = 1000
ANYONE = Caller("", frozenset())

Reader = Annotated[Caller, Depends(needs("read"))]
MapReader = Annotated[Caller, Depends(needs("maps:read", "read"))]
Scorer = Annotated[Caller, Depends(needs("read", "ingest"))]
Admin = Annotated[Caller, Depends(needs("admin"))]
Ingester = Annotated[Caller, Depends(needs("ingest"))]
LastEventId = Annotated[
    str | None, Header(description="Continue after this event.", max_length=4000)
]
HEADERS: Mapping[str, Any] = {
    "if_match": IfMatch,
    "if_none_match": IfNoneMatch,
    "prefer": Prefer,
    "idempotency_key": IdempotencyKey,
    "last_event_id": LastEventId,
}


# Not frozen: one is made for each request, which takes a frozen dataclass several times as long.
@dataclass
class Access:
    """One request of a caller, and the services that respond to it.

    Attributes
    ----------
    query : its parameters, checked
    id : the entry in the path; None if the path has none
    body : its document, checked, if the operation declares one
    """

    request: Request
    caller: Caller
    query: Any = None
    id: Any = None
    body: Any = None

    @property
    def model(self) -> str:
        """Id of the model in the path."""
        return str(self.request.path_params["model"])

    @property
    def settings(self) -> Settings:
        """Settings of the service."""
        return cast("Settings", self.request.app.state.settings)

    @property
    def connection(self) -> Connection:
        """Connection to the engine."""
        return cast("Connection", self.request.app.state.connection)

    @property
    def inbox(self) -> Inbox:
        """The engine's entrance."""
        return self.connection.inbox

    @property
    def reads(self) -> ReadService:
        """Service of results."""
        return cast("ReadService", self.request.app.state.reads)

    @property
    def ingest(self) -> IngestService:
        """Service of batches."""
        return cast("IngestService", self.request.app.state.ingest)

    @property
    def sender(self) -> IngestAccess:
        """The request as one that sends to a model."""
        return IngestAccess(self.ingest, self.request, self.caller, self.model)

    async def config(self) -> ModelConfig:
        """Return the model in the path, or raise ModelUnknown."""
        return await model_of(self.connection, self.caller, self.model)

    async def usable_config(self) -> ModelConfig:
        """Return the model; reject an unknown one, and one whose batches were rejected a moment ago."""
        self.ingest.admission.check(model_key(self.caller.tenant, self.model))
        return await self.config()

    async def document(self) -> dict[str, Any]:
        """Return the JSON object that the request has as its body."""
        with self.ingest.admission.hold() as hold:
            body = await read_body(self.request, self.settings, hold, (JSON,))
            return object_of(read_json(body.data, MAX_OBJECTS))

    async def computed(
        self,
        compute: Callable[..., T],
        *arguments: object,
        takes: Sequence[str] = (JSON,),
    ) -> T:
        """Return what `compute` makes of the body and further arguments, in a thread."""
        with self.ingest.admission.hold() as hold:
            body: Body = await read_body(self.request, self.settings, hold, takes)
            return await in_thread(compute, body, *arguments)

    async def read_query(
        self, parameters: PaneQuery, shown: tuple[str | None, ...] = ()
    ) -> ReadQuery:
        """Return the query of a read's parameters, with its window and the other side of a comparison.

        `shown` is the part of the result that a figure shows.
        """
        config = await self.config()
        query = resolved_query(parameters, config)
        against: Against | None = getattr(parameters, "compared_with", None)
        comparison = None
        if against is not None:
            comparison = await comparison_of(against, config, self.caller, self.connection)
        view = cast("WindowQuery", parameters)
        return ReadQuery(query, config, view, comparison=comparison, shown=shown)


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


Page = tuple[dict[str, Any], str | None]
Found = Mapping[str, Any] | Page | Created | Response | None
Function = Callable[[Access], Awaitable[Found]]
Declare = Callable[[Function], Function]
Responses = dict[int | str, dict[str, Any]]
NOT_MODIFIED = {"description": "The ETag is the one that If-None-Match names"}
Id = tuple[str, Any]


class Operations(APIRouter):
    """Operations of one subject, whose responses they make themselves."""

    def __init__(self, *tags: str, **options: Any) -> None:
        super().__init__(tags=[*tags], default_response_class=Response, **options)

    def operation(
        self,
        method_and_path: str,
        caller: Any,
        returns: Mapping[Any, Any],
        *statuses: int,
        id: Id | None = None,
        query: type[BaseModel] | None = None,
        headers: Sequence[str] = (),
        body: tuple[str, type[BaseModel]] | None = None,
        takes_: dict[str, Any] | None = None,
        tag: str | None = None,
    ) -> Declare:
        """Return a decorator that adds an operation; its summary and its operationId are those of its function.

        Parameters
        ----------
        method_and_path : `GET /v1/models/{model}`
        caller : who may use it, an annotation such as `Reader`; None: anyone, without a key
        returns : described success, with the status 200, or several by status
        statuses : of problems, besides those that follow from headers and body
        id : name of the entry in the path, and its annotation
        headers : of `HEADERS`, for the document
        body : title and model of a small document, which is read and checked first
        takes_ : described body of another kind, which the function reads
        tag : instead of those of the router
        """
        method, path = method_and_path.split(" ")
        taken: dict[str, Any] = {"model": ModelId} if "{model}" in path else {}
        taken |= {"request": Request} | ({} if caller is None else {"caller": caller})
        taken |= {} if id is None else {id[0]: id[1]}
        taken |= {} if query is None else {"query": Annotated[query, Query()]}
        taken |= {each: HEADERS[each] for each in headers}
        described = takes_ if body is None else takes(body[0], {JSON: body[1]})
        entry_and_body = None if id is None else id[0], None if body is None else body[1]
        found: Responses = {200: returns} if "description" in returns else {**returns}  # type: ignore[dict-item]
        succeeds = min(int(each) for each in found)
        found |= _follow(method, headers, described is not None) | problems(*statuses)

        def declare(function: Function) -> Function:
            self.add_api_route(
                path,
                Endpoint(function, taken, query, *entry_and_body),
                name=function.__name__,
                methods=[method],
                operation_id=operation_id(function),
                responses=found,
                status_code=succeeds,
                openapi_extra=described,
                tags=None if tag is None else [tag],
            )
            return function

        return declare


def operation_id(function: Callable[..., Any]) -> str:
    """Return the operationId of a function: `getModel` of `get_model`."""
    first, *others = function.__name__.split("_")
    return first + "".join(each.capitalize() for each in others)


def _follow(method: str, headers: Sequence[str], has_body: bool) -> Responses:
    """Return the responses that every operation with these headers, or with a body, may return."""
    found: Responses = {}
    if method == "GET" and "if_none_match" in headers:
        found[304] = NOT_MODIFIED
    of_body = (413, 415) if has_body else ()
    of_change = () if "if_match" not in headers else (412, 428) if has_body else (412,)
    return found | problems(*of_body, *of_change)


class Endpoint:
    """Function of a route, with the parameters that FastAPI injects; headers may be absent.

    Parameters
    ----------
    function : gets the access of a request, and returns what `response_of` takes
    taken : annotations of the parameters
    query : class of those of the query
    entry : name of the entry in the path
    body : model of a small document
    """

    def __init__(
        self,
        function: Function,
        taken: Mapping[str, Any],
        query: type[BaseModel] | None,
        entry: str | None,
        body: type[BaseModel] | None,
    ) -> None:
        self.function, self.query, self._entry, self._body = function, query, entry, body
        self.__doc__ = function.__doc__
        self.__signature__ = Signature([_parameter(*each) for each in taken.items()])

    async def __call__(
        self, *, request: Request, caller: Caller = ANYONE, query: Any = None, **given: Any
    ) -> Response:
        access = Access(request, caller, query, given.get(self._entry or ""))
        if self._body is not None:
            access.body = validated(self._body, await access.document())
        return response_of(request, await self.function(access))


def _parameter(name: str, annotation: Any) -> Parameter:
    default = None if name in HEADERS else Parameter.empty
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def response_of(request: Request, found: Found) -> Response:
    """Return the response that has what a function returned."""
    if isinstance(found, Response):
        return found
    if isinstance(found, Created):
        return found.response()
    if isinstance(found, tuple):
        return list_response(request, *found)
    return Response(status_code=204) if found is None else json_response(found)


async def only_known_parameters(request: Request) -> None:
    """Reject unknown query parameters where no key is needed; with a key, `needs` does it."""
    reject_unread(request)
