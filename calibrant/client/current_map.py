"""The promoted calibration map as a function that follows promotions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from calibrant.client import processes
from calibrant.client.errors import ClientError, ServiceError
from calibrant.client.extra import imported
from calibrant.client.operations import Operation, model_path
from calibrant.results import CalibrationMap

# For a thread to end that is not in the middle of a request.
CLOSE_S = 1.0
logger = logging.getLogger("calibrant.client")


class CurrentMap:
    """The map that is promoted now, read again every `refresh` seconds in a thread.

    Calls never wait for the service. A new map replaces the old one in one step: a call uses one map for all its rows. While
    the service cannot be reached, the last map that was read stays in use. Before a first promotion and in observe mode,
    probabilities are returned as they are, and `version` is None.

    Parameters
    ----------
    model : name of the model
    connect : makes the connections
    refresh : seconds between two reads

    Raises
    ------
    ClientError
        The first read failed.
    """

    def __init__(self, model: str, connect: Callable[[], Any], refresh: float) -> None:
        if refresh <= 0:
            raise ValueError(f"Received refresh={refresh}; expected seconds above 0.")
        self._model, self._connect, self._every_s = model, connect, refresh
        self._transport = connect()
        self._etag: str | None = None
        self._map: CalibrationMap | None = None
        self.last_error: ClientError | None = None
        transport = imported("transport")
        try:
            transport.retried(self._read, transport.retry_wait, transport.READ_RETRIES_S)
        except ClientError:
            self._transport.close()
            raise
        self._start()
        processes.watch(self)

    @property
    def map(self) -> CalibrationMap | None:
        """The map in use, None before a first promotion."""
        return self._map

    @property
    def version(self) -> int | None:
        """Version of the map in use, None before a first promotion."""
        found = self._map
        return None if found is None else int(found.to_dict()["version"])

    def __call__(self, probabilities: Any = None, *, logits: Any = None) -> Any:
        """Return recalibrated probabilities, as `CalibrationMap` does; a torch tensor for a torch tensor."""
        given = probabilities if logits is None else logits
        if hasattr(given, "detach"):
            name = "probabilities" if logits is None else "logits"
            return _as_tensor(self(**{name: given.detach().cpu().numpy()}), given)
        found = self._map
        if found is None and logits is None:
            return np.array(probabilities, np.float64)
        return (found or CalibrationMap.from_dict(IDENTITY))(probabilities, logits=logits)

    def refresh(self) -> None:
        """Read the current map now, in this thread.

        Raises
        ------
        ClientError
            The service could not be reached, or rejected the request; the last map stays in use.
        """
        self._read()

    def close(self) -> None:
        """Stop following; the last map stays in use."""
        self._stop.set()
        self._thread.join(CLOSE_S)

    def _read(self) -> None:
        headers = {} if self._etag is None else {"If-None-Match": self._etag}
        operation = Operation(
            "GET",
            model_path(self._model, "/maps/current"),
            CalibrationMap.from_dict,
            headers=headers,
        )
        try:
            received, values = self._transport.response(operation)
        except ServiceError as error:
            if error.slug == "observe-only":
                self._map, self._etag = None, None
            elif error.slug != "map-unknown" or self._map is not None:
                raise
            return
        if values is not None:
            self._map, self._etag = CalibrationMap.from_dict(values), received.get("etag")

    def _start(self) -> None:
        self._stop = threading.Event()
        name = f"calibrant-map-{self._model}"
        self._thread = threading.Thread(
            target=self._follow, args=(self._stop, self._transport), name=name, daemon=True
        )
        self._thread.start()

    def _follow(self, stop: threading.Event, transport: Any) -> None:
        while not stop.wait(self._every_s):
            try:
                self._read()
            except ClientError as error:
                if self.last_error is None:
                    logger.warning("map_not_refreshed model=%s error=%s", self._model, error)
                self.last_error = error
            else:
                self.last_error = None
        transport.close()

    def __repr__(self) -> str:
        return f"CurrentMap({self._model!r}, version={self.version}, map={self._map!r})"

    def at_exit(self) -> None:
        """Stop the thread."""
        self.close()

    def after_fork(self) -> None:
        """Follow in the child process, too, over connections of its own."""
        self._transport = self._connect()
        self._start()


# The temperature 1 changes nothing.
IDENTITY = {"method": "temperature", "scope": "full", "parameters": {"temperature": 1.0}}


def _as_tensor(found: Any, given: Any) -> Any:
    """Return an array as a tensor of the type and place of the given one."""
    import torch

    return torch.as_tensor(found, dtype=given.dtype, device=given.device)
