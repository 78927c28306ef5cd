"""What the members of an export's lines are: looked at before the store is asked for anything.

A name that is no text, or a time beyond all times, would not be refused by the store but by its client, at every attempt:
the entry could never be merged, and the entries behind it would wait for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workers.entries import EntryError
from workers.windows import LAST_SECOND

_SHAPES: dict[str, dict[str, Any]] = {
    "marks": {"marks": dict},
    "pane": {"slice": str, "start": int, "version": str, "packed": dict},
    "baseline": {"name": str, "holds": dict},
    "record": {"id": str, "packed": str},
    "unit": {"unit": str, "ids": str},
    "tallies": {"tallies": dict},
}
_HELD = {"slice": (str, type(None)), "clock": str, "window": list, "created_ms": int, "counts": dict}


def shaped(line: dict[str, Any]) -> dict[str, Any]:
    """A line as it is, once its members are seen to be what they should be.

    Raises
    ------
    EntryError
        One is not; the message says which.
    """
    kind = line["type"]
    _check(line, _SHAPES.get(kind, {}) if isinstance(kind, str) else {"type": str}, "any")
    if kind == "pane" and not 0 <= line["start"] <= LAST_SECOND:
        raise EntryError(f"a pane starts between 0 and {LAST_SECOND}")
    if kind == "baseline":
        _check(line["holds"], _HELD, kind)
        window = line["holds"]["window"]
        if len(window) != 2 or not all(type(each) is int and 0 <= each <= LAST_SECOND for each in window):
            raise EntryError("the window of a baseline is two whole seconds")
    return line


def _check(found: Mapping[str, Any], shape: Mapping[str, Any], kind: str) -> None:
    for name, wanted in shape.items():
        if not isinstance(found[name], wanted) or isinstance(found[name], bool):
            raise EntryError(f"{name} of a {found.get('type', kind)} line cannot be {json.dumps(found[name])[:40]}")
