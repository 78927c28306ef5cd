"""HTTP requests by httpx, repeated where that may help: the only module that imports it."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import httpx

from calibrant.client.errors import NO_SERVICE, ClientError, ServiceError, ServiceUnreachable
from calibrant.client.operations import Operation

T = TypeVar("T")
Wait = Callable[[Exception], bool | float]
logger = logging.getLogger("calibrant.client")
READ_RETRIES_S = 30.0
MIN_PAUSE_S, MAX_PAUSE_S = 0.1, 10.0
# Clients that received the same Retry-After do not come back together.
JITTER = 0.25


@dataclass(frozen=True)
class Address:
    """Where the service is, with which key, and how long a response may take."""

    url: str
    key: str | None
    timeout_s: float

    def options(self) -> dict[str, Any]:
        """Return the options of an httpx client."""
        headers = {"Accept": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        return {
            "base_url": self.url,
            "headers": headers,
            "timeout": self.timeout_s,
            "verify": _certificates(),
        }


@cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates, read once per process.

    Reading them takes locks of OpenSSL. If a thread of the log read them while the process forks, the child would wait for such
    a lock forever. A `Client` reads them first, in the thread of its caller; its logs and forked children share them.
    """
    return httpx.create_ssl_context()


class Transport:
    """Sends requests and waits for the responses."""

    def __init__(self, address: Address) -> None:
        self._http = httpx.Client(**address.options())

    def once(self, operation: Operation[T]) -> T:
        """Send a request once."""
        return operation.read(self.response(operation)[1])

    def response(self, operation: Operation[Any]) -> tuple[Mapping[str, str], Any]:
        """Send a request once; return the headers and the JSON of the response, None for 304."""
        try:
            found = self._http.send(_request(self._http, operation))
        except httpx.TransportError as error:
            raise _unreachable(error) from None
        return found.headers, _checked(found)

    def lines(self, operation: Operation[T]) -> Iterator[T]:
        """Send a request once; read each line of the response as it arrives."""
        try:
            found = self._http.send(_request(self._http, operation), stream=True)
            try:
                if not found.is_success:
                    found.read()
                    _checked(found)
                for line in found.iter_lines():
                    yield operation.read(json.loads(line))
            finally:
                found.close()
        except httpx.TransportError as error:
            raise _unreachable(error) from None

    def run(self, operation: Operation[T]) -> T:
        """Send a request, and again while that may help and the time for it lasts."""
        return retried(lambda: self.once(operation), retry_wait, READ_RETRIES_S)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class AsyncTransport:
    """Sends requests and awaits the responses."""

    def __init__(self, address: Address) -> None:
        self._http = httpx.AsyncClient(**address.options())

    async def once(self, operation: Operation[T]) -> T:
        """Send a request once."""
        try:
            found = await self._http.send(_request(self._http, operation))
        except httpx.TransportError as error:
            raise _unreachable(error) from None
        return operation.read(_checked(found))

    async def run(self, operation: Operation[T]) -> T:
        """Send a request, and again while that may help and the time for it lasts."""
        repeats = Repeats(retry_wait, READ_RETRIES_S)
        while True:
            try:
                return await self.once(operation)
            except ClientError as error:
                pause_s = repeats.pause_s(error)
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def retry_wait(error: Exception) -> bool | float:
    """Return whether a request that failed is sent again, and after how many seconds if the service named them."""
    if isinstance(error, ServiceUnreachable):
        return True
    if not isinstance(error, ServiceError) or not error.retryable:
        return False
    if not error.retry_after_s:
        return True
    return error.retry_after_s * (1.0 + JITTER * random.random())


def retried(send: Callable[[], T], wait: Wait, timeout_s: float) -> T:
    """Return what `send` returns, called again for as long as `wait` and the timeout allow."""
    repeats = Repeats(wait, timeout_s)
    while True:
        try:
            return send()
        except ClientError as error:
            pause_s = repeats.pause_s(error)
        time.sleep(pause_s)


class Repeats:
    """Decides whether and when a request is sent again, and says so once.

    Parameters
    ----------
    wait : whether an error is worth a repeat, and after how many seconds if that is known
    timeout_s : how long the request is repeated
    """

    def __init__(self, wait: Wait, timeout_s: float) -> None:
        self._wait, self._timeout_s, self._n = wait, timeout_s, 0
        self._until = time.monotonic() + timeout_s

    def pause_s(self, error: ClientError) -> float:
        """Return the seconds until the next attempt; raise the error, without the frames of the attempts, if there is none."""
        found = self._wait(error)
        growing = MIN_PAUSE_S * 2.0 ** min(self._n, 10)
        pause = min(growing, MAX_PAUSE_S) * (1.0 + random.random()) if found is True else found
        if found is False or time.monotonic() + pause > self._until:
            raise error.with_traceback(None) from None
        if not self._n:
            text = str(error).rstrip(".")
            logger.warning("%s. Trying again%s.", text, _limit(self._timeout_s))
        self._n += 1
        return pause


def _request(http: httpx.Client | httpx.AsyncClient, operation: Operation[Any]) -> httpx.Request:
    timeout = http.timeout
    if operation.wait and timeout.read is not None:
        # A service that does what it was asked is not silent.
        read = timeout.read + operation.wait
        timeout = httpx.Timeout(timeout.connect, read=read, write=timeout.write, pool=timeout.pool)
    return http.build_request(
        operation.method,
        operation.path,
        params=dict(operation.query),
        content=operation.body,
        headers=dict(operation.headers),
        timeout=timeout,
    )


def _checked(response: httpx.Response) -> Any:
    """Return the JSON of a response, None if it has no content, or raise the problem that it describes."""
    if response.status_code in (204, 304):
        return None
    try:
        found = json.loads(response.content)
    except ValueError:
        found = None
        if response.is_success:
            kind = response.headers.get("content-type", "no content type")
            raise ServiceUnreachable(
                f"Received {kind} from {response.url}; expected JSON. Is this the address of the service?"
            ) from None
    if response.is_success:
        return found
    problem = found if isinstance(found, dict) else {}
    raise ServiceError(response.status_code, problem, response.headers.get("retry-after"))


def _unreachable(error: httpx.TransportError) -> ClientError:
    try:
        where = f" ({error.request.method} {error.request.url})"
    except RuntimeError:
        where = ""
    never_sent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
    detail = f"{type(error).__name__}: {error}{where}"
    if _is_silent(error):
        detail = f"{detail.rstrip('.')}. {NO_SERVICE}"
    return ServiceUnreachable(detail, not isinstance(error, never_sent))


def _is_silent(error: httpx.TransportError) -> bool:
    """Return whether nothing listens at the address. Where the certificate is rejected, something does."""
    return isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)) and "SSL" not in str(error)


def _limit(seconds: float) -> str:
    """Return how long a request is repeated.

    >>> _limit(30.0), _limit(43200.0)
    (' for up to 30 s', ' for up to 12 h')
    """
    return f" for up to {seconds / 3600:g} h" if seconds >= 3600 else f" for up to {seconds:g} s"
