"""The stored definition of a baseline, which the engine writes and the service reads."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class BaselineRecord(TypedDict):
    """A baseline. `window` has its start and end in seconds, `counts` is of the frozen pane.

    `content` is the digest of posted predictions or panes, whose window is that of their event times, or empty.
    """

    slice: str | None
    clock: str
    window: list[int]
    created_ms: int
    counts: dict[str, int]
    content: NotRequired[str]
