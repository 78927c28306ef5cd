"""Client of queries in the event loop: any free worker takes a query, and its result returns in a list.

Identical queries that wait at the same time share one result. A query lost with its worker is sent again as long as its
client waits; a result computed before is then found in the cache. No time of this machine's clock goes to a worker: the
clocks of machines differ.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any

import orjson

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.workers.queries.kind import Against
from calibrant_server.workers.queries.query import CODE_VERSION, Query
from calibrant_server.workers.queries.query_queue import QueryQueue, QueuedQuery, TenantTurns
from calibrant_server.workers.queries.versions import Versions, joined
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.key_names import Keys, tenant_of
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import Window

# A query lost with its worker is sent again after this time; most results take less.
REASK_S = 3.0
OK, REJECTED, UNKNOWN, GONE, FAILED = "ok", "refused", "unknown", "gone", "failed"
DAMAGED, UNAVAILABLE, CHANGING = "damaged", "unavailable", "changing"


class ResultTimeoutError(RuntimeError):
    """No worker replied in time, or too many queries wait (503)."""

    retry_after_s = 2


class ResultFailedError(RuntimeError):
    """The result could not be computed (500)."""


class WindowDamaged(RuntimeError):
    """Panes of the window cannot be read (500); `panes` names them."""

    def __init__(self, detail: str, panes: list[dict[str, str]]):
        super().__init__(detail)
        self.panes = panes


class SubjectGone(LookupError):
    """A model of the query was deleted before the result (404)."""


class UnknownQueryError(LookupError):
    """No file in `workers/queries/kinds` declares this kind."""


@dataclass(frozen=True)
class QueryResult:
    """Result: JSON, its ETag, its window, and the state that it depends on."""

    body: bytes
    etag: str
    window: Window
    state_version: str


@dataclass(frozen=True)
class Side:
    """Window of a slice of a model, as transferred."""

    model: str
    slice: str
    window: tuple[int, int]


@dataclass(frozen=True)
class QueryRequest:
    """Query on its way to a worker.

    Attributes
    ----------
    digest : identity of the result
    query : as JSON values, of the class that `kind` names
    reply_to : list that waits for the result
    against, other : the kind of comparison, and the other side
    wait_s : how long its client waits, from the time at which the query was put into a queue
    earlier : queries of the same tenant that its process had in the queues before
    """

    digest: str
    kind: str
    query: dict[str, object]
    side: Side
    reply_to: str
    wait_s: float
    against: Against | None = None
    other: Side | None = None
    earlier: int = 0

    def to_json(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, text: bytes) -> QueryRequest:
        """Return the query that `to_json` wrote; fields that only another version knows are ignored."""
        stored = {name: value for name, value in orjson.loads(text).items() if name in _FIELDS}
        for name, of in (("side", Side), ("other", Side), ("against", Against)):
            if stored[name] is not None:
                stored[name] = of(**stored[name])
        return cls(**stored)


_FIELDS = frozenset(each.name for each in fields(QueryRequest))


@dataclass(frozen=True)
class Other:
    """Other side of a comparison: a window of a slice of a model of the same tenant."""

    against: Against
    model: ModelConfig
    slice: str
    window: Window


@dataclass(frozen=True)
class Reply:
    """Reply of a worker.

    Attributes
    ----------
    state_version : the state that it depends on
    body : JSON, which depends on the status
    code_version : the code that computed it, which may be another than that of the service during an upgrade
    """

    status: str
    state_version: str
    body: bytes
    code_version: str = CODE_VERSION

    def to_bytes(self) -> bytes:
        head = f"{self.status} {self.state_version or '-'} {self.code_version}\n"
        return head.encode() + self.body

    @classmethod
    def from_bytes(cls, raw: bytes) -> Reply:
        head, _, body = raw.partition(b"\n")
        status, state_version, code_version = head.decode().split(" ")
        return cls(status, state_version, body, code_version)


def result_digest(
    state_version: str,
    kind: str,
    query: Mapping[str, object],
    against: Against | None,
    code_version: str = CODE_VERSION,
) -> str:
    """Return the identity of a result. The state version names model, slice and window."""
    made_of = [code_version, state_version, kind, query, None if against is None else str(against)]
    return blake2b(orjson.dumps(made_of, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


class QueryClient:
    """Queries of one inbox."""

    def __init__(self, client: Any, keys: Keys, versions: Versions):
        self._client = client
        self._keys = keys
        self._versions = versions
        self.queue = QueryQueue(client, keys)
        self.turns = TenantTurns()
        self._shared: dict[str, asyncio.Task[Reply]] = {}

    async def close(self) -> None:
        """Cancel all waiting queries."""
        tasks = list(self._shared.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.queue.close()

    async def ask(
        self,
        query: Query,
        model: ModelConfig,
        window: Window,
        slice_: str,
        deadline_s: float,
        other: Other | None = None,
        version: str | None = None,
    ) -> QueryResult:
        """Return the result of one query.

        Parameters
        ----------
        version : name of the state, where the caller has just read it
        """
        against = None if other is None else other.against
        if version is None:
            version = await self._versions.state_version(model, slice_, window, query.needs)
            if other is not None:
                theirs = await self._versions.state_version(other.model, other.slice, other.window)
                version = joined(version, theirs)
        sent = query.to_dict()
        digest = result_digest(version, query.kind, sent, against)
        stored = await self._client.get(self._keys.cached_result(digest))
        if stored is not None:
            reply = Reply.from_bytes(stored)
        else:
            request = QueryRequest(
                digest,
                query.kind,
                sent,
                side_of(model, slice_, window),
                self.queue.reply_to,
                deadline_s,
                against,
                None if other is None else side_of(other.model, other.slice, other.window),
            )
            reply = await self.reply(request)
        etag = result_digest(reply.state_version, query.kind, sent, against, reply.code_version)
        return _read(reply, etag, window)

    async def reply(self, request: QueryRequest) -> Reply:
        """Return the reply of a worker, shared with identical waiting queries; leaving does not cancel it for the others.

        Raises
        ------
        ResultTimeoutError
            There is none within `request.wait_s`.
        """
        task = self._shared.get(request.digest)
        if task is None:
            task = asyncio.create_task(self._until_computed(request))
            self._shared[request.digest] = task
            task.add_done_callback(lambda done: self._ended(request.digest, done))
        done, _ = await asyncio.wait([task], timeout=request.wait_s)
        if not done:
            raise ResultTimeoutError("no worker replied in time")
        return task.result()

    def _ended(self, digest: str, task: asyncio.Task[Reply]) -> None:
        self._shared.pop(digest, None)
        if not task.cancelled():
            # Retrieved here, because all who waited may have left.
            task.exception()

    async def _until_computed(self, request: QueryRequest) -> Reply:
        """Return the reply of a worker, after waiting for a turn of the tenant."""
        until_s = time.monotonic() + request.wait_s
        tenant = tenant_of(request.side.model)
        try:
            earlier = await self.turns.take(tenant, request.wait_s)
        except TimeoutError as error:
            raise ResultTimeoutError("too many queries of the tenant wait for workers") from error
        try:
            return await self._queued(replace(request, earlier=earlier), until_s)
        finally:
            self.turns.give_back(tenant)

    async def _queued(self, request: QueryRequest, until_s: float) -> Reply:
        replied = self.queue.expected(request.digest)
        try:
            while (left_s := until_s - time.monotonic()) > 0:
                body = replace(request, wait_s=left_s).to_json()
                if not await self.queue.send(QueuedQuery(body, request.earlier)):
                    raise ResultTimeoutError("too many queries wait for workers")
                done, _ = await asyncio.wait([replied], timeout=min(left_s, REASK_S))
                if done:
                    return Reply.from_bytes(replied.result())
            raise ResultTimeoutError("no worker replied in time")
        finally:
            replied.cancel()


def side_of(model: ModelConfig, slice_: str, window: Window) -> Side:
    """Return a window of a slice of a model, as transferred."""
    return Side(model.key, slice_, (window.from_s, window.to_s))


def _read(reply: Reply, etag: str, window: Window) -> QueryResult:
    if reply.status == OK:
        return QueryResult(reply.body, etag, window, reply.state_version)
    reported = json.loads(reply.body)
    if reply.status == REJECTED:
        raise CalibrationInputError(
            [Violation(**violation) for violation in reported["violations"]]
        )
    if reply.status == UNKNOWN:
        raise UnknownQueryError(reported["detail"])
    if reply.status == GONE:
        raise SubjectGone(reported["detail"])
    if reply.status == DAMAGED:
        raise WindowDamaged(reported["detail"], reported["panes"])
    if reply.status == CHANGING:
        raise ResultTimeoutError(reported["detail"])
    if reply.status == UNAVAILABLE:
        raise FilesUnavailable(reported["detail"])
    raise ResultFailedError(reported["detail"])
