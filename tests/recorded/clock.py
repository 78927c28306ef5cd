"""A clock that does not run, for every module of the server.

The server reads the time as `time.time()` and `datetime.now(UTC)`. Waits use `time.monotonic()`, which runs.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, tzinfo
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import calibrant_server

# In the past of every recording: the store's clock runs, and no time of the server is after it.
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class _OfAnyKind(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, datetime)


class FixedDatetime(datetime, metaclass=_OfAnyKind):
    """A `datetime` whose present is `NOW`."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        """Return `NOW`, as an ordinary `datetime`."""
        return NOW.astimezone(tz)


def _fixed_time() -> float:
    return NOW.timestamp()


def _replacement(value: Any) -> Any:
    if value is time:
        return SimpleNamespace(**{**vars(time), "time": _fixed_time})
    if value is time.time:
        return _fixed_time
    return FixedDatetime if value is datetime else None


def _modules() -> Iterator[ModuleType]:
    for each in pkgutil.walk_packages(calibrant_server.__path__, "calibrant_server."):
        if not each.name.endswith("__main__"):
            yield importlib.import_module(each.name)


@contextmanager
def fixed_clock() -> Iterator[None]:
    """Let no time pass for the server while the block runs."""
    patches = [
        patch.object(module, name, replacement)
        for module in _modules()
        for name, value in list(vars(module).items())
        if (replacement := _replacement(value)) is not None
    ]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
