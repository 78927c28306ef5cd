"""A coroutine that runs at once up to its first wait, so that one that has nothing to wait for needs no timer around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """A coroutine that has begun; await it for its result, once.

    Parameters
    ----------
    function : that makes it

    Attributes
    ----------
    is_done : whether it did not have to wait; `result` is then its result
    """

    result: T

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        coroutine = function()
        assert isinstance(coroutine, Coroutine)
        self._coroutine = coroutine
        self.is_done = False
        self._step(coroutine.send, None)

    def _step(self, step: Callable[[Any], Any], value: object) -> None:
        """Continue up to the next wait, or to the end."""
        try:
            self._waits_for = step(value)
        except StopIteration as end:
            self.is_done, self.result = True, end.value

    def __await__(self) -> Generator[Any, Any, T]:
        while not self.is_done:
            try:
                sent = yield self._waits_for
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:
                # The coroutine handles it, as if it had waited itself.
                self._step(self._coroutine.throw, error)
            else:
                self._step(self._coroutine.send, sent)
        return self.result
