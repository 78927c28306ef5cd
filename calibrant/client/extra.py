"""What needs the optional dependencies `calibrant[client]`, and what the two clients do differently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from calibrant.core.extras import pip_install

if TYPE_CHECKING:
    from calibrant.client.transport import Address

P = ParamSpec("P")
T = TypeVar("T")


def imported(name: str) -> ModuleType:
    """Return a module of this package that needs those dependencies.

    Raises
    ------
    ImportError
        httpx is not installed.
    """
    try:
        return import_module(f"calibrant.client.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("calibrant"):
            raise
        raise ImportError(
            f"The client needs {error.name}. Install it with: {pip_install('client')}"
        ) from error


def address(url: str, key: str | None, timeout: float) -> Address:
    """Return the address of a service, checked."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"Received url={url!r}; expected an address with http:// or https://.")
    found: Address = imported("transport").Address(url, key, timeout)
    return found


async def in_thread(function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Return what a function that waits returns; the event loop goes on."""
    return await asyncio.to_thread(function, *given, **named)


def in_place(function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Return what a function returns: `in_thread` of the synchronous client."""
    return function(*given, **named)
