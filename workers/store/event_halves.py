"""Request and response of an inference, which come as two events in any order: the first waits here for the second."""

from __future__ import annotations

import time

from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.script import StorePart

WAIT_S = 120
MAX_HALF_BYTES = 256 * 1024
MAX_WAITING_BYTES = 32 * 1024 * 1024  # of one partition
REQUEST, RESPONSE = "q", "a"


class HalfTooLarge(RuntimeError):
    """A half has more bytes than may wait."""


class HalvesFull(RuntimeError):
    """So many halves wait that there is no room for another one."""

    retry_after_s = 60


class EventHalves(StorePart):
    """The halves of a store, for the event loop. They expire by themselves, joined or not."""

    async def exchange(
        self, config: ModelConfig, name: str, is_response: bool, half: bytes
    ) -> bytes | None:
        """Return the other half of the inference `name`; None if it has not come, and then `half` waits for it.

        Raises
        ------
        HalfTooLarge, HalvesFull, StoreUnavailableError
        """
        if len(half) > MAX_HALF_BYTES:
            raise HalfTooLarge(f"{len(half)} bytes; expected at most {MAX_HALF_BYTES}")
        keys = self._keys.of(config)
        own, other = (RESPONSE, REQUEST) if is_response else (REQUEST, RESPONSE)
        names = [
            keys.event_half(config.key, config.generation, name, side) for side in (other, own)
        ]
        reply = await self._retried(
            lambda: self._run(
                "join_event",
                [*names, keys.event_bytes],
                [half, WAIT_S, int(time.time()) // 60, MAX_WAITING_BYTES],
            )
        )
        if reply[0] == 2:
            raise HalvesFull(config.key)
        return bytes(reply[1]) if reply[0] == 1 else None
