"""Batches of all models, minute by minute, over connections that stay open."""

from __future__ import annotations

import asyncio

import numpy as np
import orjson

from benchmarks.requests import AUTHORIZATION, exchange, request

N_CLASSES, N_BODIES = 10, 50
_ACCEPTED, _LATER, _AFTER_REJECTION_S = (200, 201, 202), (429, 503), 1.0


def bodies(n_rows: int, n_keys: int, n_values: int) -> list[bytes]:
    """Return batches without event times: their time is that of their arrival."""
    return [_body(n_rows, n_keys, n_values, seed) for seed in range(N_BODIES)]


def _body(n_rows: int, n_keys: int, n_values: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.full(N_CLASSES, 0.3), n_rows).astype(np.float32)
    slices = {
        f"key{key}": [f"v{value}" for value in rng.integers(0, n_values, n_rows)]
        for key in range(n_keys)
    }
    columns = {
        "probabilities": scores.tolist(),
        "labels": rng.integers(0, N_CLASSES, n_rows).tolist(),
    }
    return orjson.dumps(columns | ({"slices": slices} if slices else {}))


class Traffic:
    """The clients: each has one connection and waits for a response before its next request."""

    def __init__(self, port: int, n_clients: int):
        self._loop = asyncio.new_event_loop()
        self._clients = [_Client(port) for _ in range(n_clients)]

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def declare(self, names: list[str], settings: dict[str, object]) -> None:
        """Create models."""
        body = orjson.dumps(settings)
        self._run([request("PUT", f"/v1/models/{name}", body) for name in names])

    def minute(self, names: list[str], found: list[bytes], number: int) -> None:
        """Send one batch of each model, and wait until all are accepted."""
        heads = [
            f"POST /v1/models/{name}/predictions HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZATION}"
            f"Content-Type: application/json\r\nContent-Length: "
            for name in names
        ]
        self._run(
            [
                f"{head}{len(body)}\r\n\r\n".encode() + body
                for at, head in enumerate(heads)
                for body in [found[(at + number) % N_BODIES]]
            ]
        )

    def _run(self, requests: list[bytes]) -> None:
        self._loop.run_until_complete(self._all(requests))

    async def _all(self, requests: list[bytes]) -> None:
        parts = [requests[first :: len(self._clients)] for first in range(len(self._clients))]
        await asyncio.gather(
            *(client.send(part) for client, part in zip(self._clients, parts, strict=True))
        )


class _Client:
    """A client that repeats what was not accepted, on a new connection if the service has closed the old one."""

    def __init__(self, port: int):
        self._port = port
        self._link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def close(self) -> None:
        if self._link is not None:
            self._link[1].close()
            self._link = None

    async def send(self, requests: list[bytes]) -> None:
        for each in requests:
            while not await self._is_accepted(each):
                await asyncio.sleep(_AFTER_REJECTION_S)

    async def _is_accepted(self, sent: bytes) -> bool:
        if self._link is None:
            self._link = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            status, _, body = await exchange(*self._link, sent)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return False
        if status not in (*_ACCEPTED, *_LATER):
            raise RuntimeError(f"{status} {body[:300]!r}")
        return status in _ACCEPTED
