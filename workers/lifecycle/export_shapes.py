"""Shapes of the members of an export's lines, checked before the store is queried.

The store's client, not the store, would reject a name that is not text or a time out of range, at each attempt. The entry
could never be merged, and the entries behind it would wait forever.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from calibrant.core.sampled_rows import MAX_HALVINGS
from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.lifecycle.former_exports import former_report
from calibrant_server.workers.store.watermarks import DAY_S
from calibrant_server.workers.store.windows import LAST_SECOND

# One line of an export: a JSON object whose `type` says what the others are.
Line = dict[str, Any]
_SHAPES: dict[str, dict[str, Any]] = {
    "marks": {"marks": dict},
    "pane": {"slice": str, "start": int, "version": str, "packed": dict},
    "sample": {"day": int, "halvings": int, "packed": (str, type(None))},
    "baseline": {"name": str, "holds": dict},
    "record": {"id": str, "packed": str},
    "unit": {"unit": str, "ids": str},
    "tallies": {"tallies": dict},
    "map": {"field": str, "text": str},
    "detector": {"name": str, "of": str, "packed": str},
    "looks": {"detector": str, "looks": dict},
    "gathered": {"packed": str},
    "episode": {"holds": dict},
    "alarm_summary": {"holds": dict},
    "alarm_change": {"version": str},
    "alarm_map": {"holds": dict},
    "alarm_units": {"by_cohort": dict},
    "report": {
        "number": int,
        "identity": str,
        "holds": dict,
        "page": str,
        "results": (str, type(None)),
    },
}
_NONE = type(None)
_CONTENTS: dict[str, dict[str, Any]] = {
    "baseline": {
        "slice": (str, _NONE),
        "clock": str,
        "window": list,
        "created_ms": int,
        "counts": dict,
    },
    "alarm_summary": {
        "generation": str,
        "n_detectors": int,
        "n_alarms": int,
        "cohort": (int, _NONE),
        "scope": str,
        "bins": list,
    },
    "alarm_map": {"version": (str, int, _NONE), "fitted_to_s": (int, _NONE)},
    "episode": {"id": str, "tenant": str, "model": str, "generation": str},
    "report": {
        "model": str,
        "created_at": str,
        "created_by": str,
        "note": (str, _NONE),
        "window": dict,
        "slice": (str, _NONE),
        "parameters": dict,
        "state_version": str,
        "sha256": str,
        "results_sha256": (str, _NONE),
    },
}


def shaped(line: Line) -> Line:
    """Return a line after checking its members.

    Raises
    ------
    EntryError
        A member is invalid; the message names it.
    """
    kind = line["type"]
    if not isinstance(kind, str) or kind not in _SHAPES:
        raise EntryError(f"an export has no lines of type {json.dumps(kind)[:40]}")
    if kind == "report":
        line = former_report(line)
    _check(line, _SHAPES[kind], kind)
    if kind in _CONTENTS:
        _check(line["holds"], _CONTENTS[kind], kind)
    if kind == "pane" and not 0 <= line["start"] <= LAST_SECOND:
        raise EntryError(f"a pane starts between 0 and {LAST_SECOND}")
    if kind == "sample":
        _check_sample(line)
    if kind == "baseline":
        window = line["holds"]["window"]
        if len(window) != 2 or not all(
            type(each) is int and 0 <= each <= LAST_SECOND for each in window
        ):
            raise EntryError("the window of a baseline is two whole seconds")
    if kind == "alarm_summary":
        _check_summary(line["holds"])
    return line


def _check_summary(holds: Mapping[str, Any]) -> None:
    if not _are_rows(holds["bins"]):
        raise EntryError("bins of an alarm_summary line are none, or three rows of numbers")
    p = holds.get("p", {})  # missing in exports of versions with another statistic
    if not isinstance(p, dict) or not _are_numbers(p.values()):
        raise EntryError("p of an alarm_summary line has numbers")


def _check_sample(line: Mapping[str, Any]) -> None:
    if type(line["sealed"]) is not bool:
        raise EntryError("sealed of a sample line is true or false")
    if not 0 <= line["day"] <= LAST_SECOND or line["day"] % DAY_S:
        raise EntryError(f"a sample's day starts between 0 and {LAST_SECOND}")
    if not 0 <= line["halvings"] <= MAX_HALVINGS:
        raise EntryError(f"halvings of a sample line are 0 to {MAX_HALVINGS}")


def _are_rows(bins: list[Any]) -> bool:
    """Return whether gauges can show these sums."""
    rows = [each for each in bins if isinstance(each, list) and _are_numbers(each)]
    return len(rows) == len(bins) and len(bins) in (0, 3) and len({len(each) for each in rows}) < 2


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(type(each) in (int, float) for each in values)


def _check(found: Mapping[str, Any], shape: Mapping[str, Any], kind: str) -> None:
    for name, wanted in shape.items():
        if not isinstance(found[name], wanted) or isinstance(found[name], bool):
            raise EntryError(f"{name} of a {kind} line cannot be {json.dumps(found[name])[:40]}")
