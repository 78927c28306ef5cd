"""Client of queries in the event loop: any free worker takes a query, and its result returns in a list.

All tasks of one inbox share one reply list and one reader of it. Identical queries that wait at the same time share one
result. A query lost with its worker is sent again as long as its client waits; a result computed before
is then found in the cache. No time of this machine's clock goes to a worker: the clocks of machines differ.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from secrets import token_hex
from typing import Any

import orjson
from redis.exceptions import RedisError

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.workers.queries.code_version import CODE_VERSION
from calibrant_server.workers.queries.kind import Against
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.queries.versions import Versions, joined
from calibrant_server.workers.store.connection import run_async
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.keys import Keys, tenant_of
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.windows import Window

log = logging.getLogger(__name__)

# A query lost with its worker is sent again after this time; most results take less.
REASK_S = 3.0
# Number of waiting queries above which reads respond 503: by then the first ones have waited for seconds.
MAX_QUERIES = 512
# Of them, queries of one tenant from one process: the others of the tenant wait in the process, and do not delay other tenants.
MAX_QUEUED_OF_TENANT = 16
OK, REJECTED, UNKNOWN, GONE, FAILED = "ok", "refused", "unknown", "gone", "failed"
DAMAGED, UNAVAILABLE = "damaged", "unavailable"


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
        self._reply_to = keys.replies(token_hex(8))
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._shared: dict[str, asyncio.Task[Reply]] = {}
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._n_queued: Counter[str] = Counter()
        self._reader: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Cancel all waiting queries."""
        tasks = [*self._shared.values(), *([self._reader] if self._reader else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(
        self,
        query: Query,
        model: ModelConfig,
        window: Window,
        slice_: str,
        deadline_s: float,
        other: Other | None = None,
        version: str | None = None,
        is_new: bool = False,
    ) -> QueryResult:
        """Return the result of one query.

        Parameters
        ----------
        version : name of the state, where the caller has just read it
        is_new : whether the caller has just seen that no result is cached
        """
        against = None if other is None else other.against
        if version is None:
            version = await self._versions.state_version(model, slice_, window, query.needs)
            if other is not None:
                theirs = await self._versions.state_version(other.model, other.slice, other.window)
                version = joined(version, theirs)
        sent = query.to_dict()
        digest = result_digest(version, query.kind, sent, against)
        stored = None if is_new else await self._client.get(self._keys.cached_result(digest))
        if stored is not None:
            reply = Reply.from_bytes(stored)
        else:
            request = QueryRequest(
                digest,
                query.kind,
                sent,
                _side(model, slice_, window),
                self._reply_to,
                deadline_s,
                against,
                None if other is None else _side(other.model, other.slice, other.window),
            )
            reply = await self._join(request, deadline_s)
        etag = result_digest(reply.state_version, query.kind, sent, against, reply.code_version)
        return _read(reply, etag, window)

    async def _join(self, request: QueryRequest, deadline_s: float) -> Reply:
        """Share the task of an identical waiting query; leaving does not cancel it for the others."""
        task = self._shared.get(request.digest)
        if task is None:
            task = asyncio.create_task(self._until_computed(request))
            self._shared[request.digest] = task
            task.add_done_callback(lambda done: self._ended(request.digest, done))
        done, _ = await asyncio.wait([task], timeout=deadline_s)
        if not done:
            raise ResultTimeoutError("no worker replied in time")
        return task.result()

    def _ended(self, digest: str, task: asyncio.Task[Reply]) -> None:
        self._shared.pop(digest, None)
        if not task.cancelled():
            # Retrieved here, because all who waited may have left.
            task.exception()

    @asynccontextmanager
    async def _turn(self, request: QueryRequest) -> AsyncIterator[QueryRequest]:
        """Wait until fewer than `MAX_QUEUED_OF_TENANT` queries of the tenant are in the workers' queues; yield the query with their number."""
        tenant = tenant_of(request.side.model)
        turns = self._turns.setdefault(tenant, asyncio.Semaphore(MAX_QUEUED_OF_TENANT))
        try:
            async with asyncio.timeout(request.wait_s):
                await turns.acquire()
        except TimeoutError as error:
            raise ResultTimeoutError("too many queries of the tenant wait for workers") from error
        earlier, self._n_queued[tenant] = self._n_queued[tenant], self._n_queued[tenant] + 1
        try:
            yield replace(request, earlier=earlier)
        finally:
            turns.release()
            self._n_queued[tenant] -= 1
            if not self._n_queued[tenant]:
                del self._n_queued[tenant]

    async def _until_computed(self, request: QueryRequest) -> Reply:
        until_s = time.monotonic() + request.wait_s
        async with self._turn(request) as placed:
            return await self._queued(placed, until_s)

    async def _queued(self, request: QueryRequest, until_s: float) -> Reply:
        replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[request.digest] = replied
        try:
            while (left_s := until_s - time.monotonic()) > 0:
                await self._send(replace(request, wait_s=left_s))
                self._read_replies()
                done, _ = await asyncio.wait([replied], timeout=min(left_s, REASK_S))
                if done:
                    return replied.result()
            raise ResultTimeoutError("no worker replied in time")
        finally:
            self._waiting.pop(request.digest, None)

    async def _send(self, request: QueryRequest) -> None:
        queue = self._keys.more_queries if request.earlier else self._keys.first_queries
        arguments = [request.to_json(), MAX_QUERIES, request.earlier]
        if not await run_async(self._client, "push_query", [queue], arguments):
            raise ResultTimeoutError("too many queries wait for workers")

    def _read_replies(self) -> None:
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._deliver())

    async def _deliver(self) -> None:
        while self._waiting:
            try:
                popped = await self._client.blpop([self._reply_to], timeout=1)
            except RedisError as error:
                log.warning("waiting_for_results error=%s", error)
                await asyncio.sleep(0.05)
                continue
            if popped is None:
                continue
            digest, _, raw = popped[1].partition(b" ")
            waiting = self._waiting.get(digest.decode())
            if waiting is not None and not waiting.done():
                waiting.set_result(Reply.from_bytes(raw))


def _side(model: ModelConfig, slice_: str, window: Window) -> Side:
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
    if reply.status == UNAVAILABLE:
        raise FilesUnavailable(reported["detail"])
    raise ResultFailedError(reported["detail"])
