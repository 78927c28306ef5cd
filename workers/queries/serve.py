"""Server of queries from the store: one queue by priority, and one of slow queries.

The priority of a query is the number of queries that its tenant has in the queue already, so that tenants take turns: a query
of a tenant that sends few waits for those that are being computed, not for those of a busy tenant that wait.

A fit of seconds must not delay fast results, nor occupy every worker when it is requested repeatedly meanwhile. So a worker
that takes a slow query without a cached result moves it to the queue of slow ones, which one thread of each process
serves. A claim ensures that one worker at a time computes a result. A client that could not wait finds it cached later.

A process sends a query again after some seconds, in case the worker was lost. On a busy machine it may still be computed: the threads of
one object do not compute it a second time for the same process, which receives the first result.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from secrets import token_hex
from typing import Any

from redis.exceptions import NoScriptError, RedisError

from calibrant_server.workers.queries.ask import (
    OK,
    REJECTED,
    QueryRequest,
    Reply,
    result_digest,
)
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.queries.query_queue import MAX_QUERIES
from calibrant_server.workers.store.connection import Store

log = logging.getLogger(__name__)

_REPLY_TTL_S = 60
# A pop ends this long before the socket's timeout: an idle server may be late by half a second.
_POP_MARGIN_S, _MIN_POP_S = 0.7, 0.2
_CLAIM_S = 30
_CACHED = (OK, REJECTED)
# More than one object has threads.
_MAX_THREADS = 64
# Results are cached under the version of their state and never become wrong: both bounds only bound the memory.
MAX_CACHED_BYTES, CACHED_S = 4 << 20, 900


class QueryServer:
    """The queues of queries of a store. One object may serve several threads."""

    def __init__(self, store: Store, compute: Compute):
        self._store = store
        self._keys = store.keys
        self._compute = compute
        self._computing: set[tuple[str, str]] = set()
        self._changing = threading.Lock()
        self._wakes = store.keys.query_wakes(token_hex(8))
        self._pop_s = max(_MIN_POP_S, store.settings.socket_timeout_s - _POP_MARGIN_S)

    def wake(self) -> None:
        """End the waits of all threads of this object at once."""
        with self._store.client.pipeline(transaction=True) as pipe:
            pipe.zadd(self._wakes, {str(i): i for i in range(_MAX_THREADS)})
            pipe.expire(self._wakes, _REPLY_TTL_S)
            pipe.execute()

    def threads(self, stop: threading.Event) -> list[threading.Thread]:
        """Return the threads that serve the queues until stopped, not started."""
        works = {"compute-0": self.run, "compute-1": self.run, "compute-slow": self.run_slow}
        return [
            threading.Thread(target=work, args=(stop,), name=name, daemon=True)
            for name, work in works.items()
        ]

    def run(self, stop: threading.Event) -> None:
        """Serve fast queries until stopped, and move slow ones to their own queue."""
        self._work_off(self._keys.queries, self._quick, stop)

    def run_slow(self, stop: threading.Event) -> None:
        """Serve slow queries until stopped."""
        self._work_off(self._keys.slow_queries, self._slow, stop)

    def _work_off(
        self,
        queue: str,
        serve: Callable[[QueryRequest], None],
        stop: threading.Event,
    ) -> None:
        while not stop.is_set():
            try:
                popped = self._store.client.bzpopmin([queue, self._wakes], self._pop_s)
                if popped is not None and popped[0] != self._wakes.encode():
                    self._serve(popped[1], serve)
            except RedisError as error:
                self._store.state.failed(error)
                stop.wait(0.2)
            except Exception:
                log.exception("query_failed")

    def _serve(self, element: bytes, serve: Callable[[QueryRequest], None]) -> None:
        """Serve one query, unless its result exists or no client waits for it."""
        pushed_us, _, raw = element.partition(b" ")
        request = QueryRequest.from_json(raw)
        cached = [self._keys.cached_result(request.digest)]
        now_us, stored = self._store.run_on(self._store.client, "read_result", cached)
        # Both times are the store's. Its clock may have been set back: then the query counts as new.
        waited_s = max(0.0, (int(now_us) - int(pushed_us)) / 1e6)
        if waited_s > request.wait_s:
            return
        if stored is not None:
            self._send(request, Reply.from_bytes(stored), is_new=False)
        else:
            serve(replace(request, wait_s=request.wait_s - waited_s))

    def _push(self, queue: str, request: QueryRequest) -> None:
        arguments = [MAX_QUERIES, request.to_json(), request.earlier]
        self._store.run_on(self._store.client, "push_query", [queue], arguments)

    def _quick(self, request: QueryRequest) -> None:
        if not self._compute.is_slow(request):
            self._reply(request)
        elif self._is_claimed(request):
            log.debug("query_claimed digest=%s", request.digest)
        else:
            self._push(self._keys.slow_queries, request)

    def _slow(self, request: QueryRequest) -> None:
        claim = self._keys.claim(request.digest)
        if self._store.run_on(self._store.client, "claim", [claim], [_CLAIM_S]):
            try:
                self._reply(request)
            finally:
                self._store.client.delete(claim)

    def _reply(self, request: QueryRequest) -> None:
        """Compute a result and send it, unless another thread computes it for the same process."""
        name = request.digest, request.reply_to
        with self._changing:
            if name in self._computing:
                log.debug("query_sent_again digest=%s", request.digest)
                return
            self._computing.add(name)
        try:
            self._send(request, self._compute.reply(request))
        finally:
            with self._changing:
                self._computing.discard(name)

    def _send(self, request: QueryRequest, reply: Reply, is_new: bool = True) -> None:
        element = request.digest.encode() + b" " + reply.to_bytes()
        call = ("push", [request.reply_to], [element, MAX_QUERIES, _REPLY_TTL_S])
        with self._store.client.pipeline(transaction=False) as pipe:
            if is_new and reply.status in _CACHED:
                self._keep(pipe, request, reply)
            self._store.queue(pipe, *call)
            # A full store has no room for a cache; the result is sent all the same.
            sent = pipe.execute(raise_on_error=False)[-1]
        if isinstance(sent, NoScriptError):
            self._store.run_on(self._store.client, *call)
        elif isinstance(sent, Exception):
            raise sent

    def _is_claimed(self, request: QueryRequest) -> bool:
        """Whether a worker computes the result; a claim that lasts longer than two claims has no owner."""
        left_ms: int = self._store.client.pttl(self._keys.claim(request.digest))
        return 0 <= left_ms <= 2000 * _CLAIM_S

    def _keep(self, pipe: Any, request: QueryRequest, reply: Reply) -> None:
        """Cache the result under the state that it depends on, which may be newer than the one named in the query."""
        raw = reply.to_bytes()
        if len(raw) <= MAX_CACHED_BYTES and reply.state_version:
            digest = result_digest(
                reply.state_version, request.kind, request.query, request.against
            )
            pipe.set(self._keys.cached_result(digest), raw, ex=CACHED_S)
