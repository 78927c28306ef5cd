"""Frozen maps in the lines of an export: read and applied before they are stored, so that each can be used."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.calibrators import apply
from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.store.frozen_maps import MAX_VERSIONS
from calibrant_server.workers.store.model_config import ModelConfig

_FIELD = re.compile(r"(n|p|f[0-9a-f]{1,64})|([vsh])([1-9][0-9]{0,8})")
_NUMBER = re.compile(r"[0-9]{1,9}")
# What lists and queries read of each, in addition to the map itself.
_MEMBERS: dict[str, dict[str, Any]] = {
    "v": {
        "method": str,
        "created_at": str,
        "created_by": str,
        "window": dict,
        "state_version": str,
    },
    "s": {"method": str, "created_at": str, "created_by": str},
    "h": {"version": int, "promoted_at": str, "promoted_by": str, "reason": str, "override": bool},
}


def check_map_line(field: str, text: str, config: ModelConfig) -> None:
    """Reject an invalid field of the frozen maps.

    Raises
    ------
    EntryError
        The name is unknown, a number or an object is invalid, a member is missing, or the map cannot be applied.
    """
    named = _FIELD.fullmatch(field)
    if named is None:
        raise EntryError(f"a map line has no field {json.dumps(field)[:40]}")
    if named[1]:
        if not _NUMBER.fullmatch(text) or (field == "n" and int(text) > MAX_VERSIONS):
            raise EntryError(f"{field} of a map line cannot be {json.dumps(text)[:40]}")
        return
    reported = _object(field, text)
    for name, wanted in _MEMBERS[named[2]].items():
        if type(reported.get(name)) is not wanted:
            raise EntryError(
                f"{name} in {field} of a map line cannot be {json.dumps(reported.get(name))[:40]}"
            )
    if named[2] == "v":
        check_map(reported, config)


def check_map(reported: Mapping[str, Any], config: ModelConfig) -> None:
    """Reject a map that cannot be applied to the model's predictions.

    Raises
    ------
    EntryError
    """
    even = {"probabilities": [[1.0 / config.n_classes] * config.n_classes]}
    batch = Batch.from_columns(even, task=config.task).batch
    try:
        with np.errstate(all="ignore"):
            applied = apply(reported, batch)
        good = applied.shape[0] == 1 and bool(np.isfinite(applied).all())
    except (
        CalibrationInputError,
        ArithmeticError,
        AssertionError,
        LookupError,
        TypeError,
        ValueError,
    ):
        good = False
    if not good:
        raise EntryError("a frozen map cannot be applied to a prediction of the model")


def _object(field: str, text: str) -> dict[str, Any]:
    try:
        reported = json.loads(text)
    except (ValueError, RecursionError):
        reported = None
    if not isinstance(reported, dict):
        raise EntryError(f"{field} of a map line is no object")
    return reported
