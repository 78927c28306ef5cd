"""Packed panes with changed values and correct checksums."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any

import numpy as np

from calibrant import Pane
from calibrant.core import packing
from calibrant.core.pane_envelope import PaneEnvelope
from tests.calibrant.panes import SHAPE, SPECS, batches_of, pane_of
from tests.calibrant.test_forged_panes import forged
from tests.fuzzing.values import Rng, changed, chosen


@functools.cache
def panes(name: str) -> tuple[Pane, ...]:
    """Return some valid panes of a specification."""
    spec = SPECS[name]
    shapes: tuple[dict[str, Any], ...] = (
        {"seed": 1},
        {"seed": 2, "units": "cases"},
        {"seed": 3, "n": 4},
    )
    return tuple(pane_of(spec, *batches_of(spec, SHAPE | shape, 2)) for shape in shapes)


def packed_pane(rng: Rng, name: str) -> str:
    """Return a pane in base64: valid, with changed values, or with a changed header or frame."""
    first, second = chosen(rng, panes(name)), chosen(rng, panes(name))
    drawn = rng.random()
    if drawn < 0.2:
        data = first.pack()
    elif drawn < 0.6:
        try:
            data = forged(first, second, rng)
        except packing.PackingError:  # not even readable
            data = first.pack()[:-1]
    else:
        envelope = PaneEnvelope.read(first.pack())
        parts = dict(envelope.parts)
        part = chosen(rng, sorted(parts))
        parts[part] = repacked(rng, parts[part])
        data = PaneEnvelope(envelope.spec, parts).pack()
        if rng.random() < 0.3:
            data = repacked(rng, data[: packing.packed_length(data)]) + b"".join(parts.values())
    return base64.b64encode(data).decode()


def repacked(rng: Rng, data: bytes) -> bytes:
    """Return packed arrays with a changed header, a changed frame or changed arrays, and a checksum that is right."""
    length, _ = packing._lengths(data)
    head = packing._PREFIX.size
    text, frame = data[head : head + length], data[head + length :]
    drawn = rng.random()
    if drawn < 0.6:
        header = changed(rng, json.loads(text))
        text = json.dumps(header, default=str).encode()
    elif drawn < 0.75 and frame:
        at = int(rng.integers(len(frame)))
        frame = frame[:at] + bytes([int(rng.integers(256))]) + frame[at + 1 :]
    else:
        arrays, about = packing.unpack(data)
        for name in arrays:
            arrays[name] = _reshaped(rng, arrays[name]) if rng.random() < 0.2 else arrays[name]
        return packing.pack(arrays, about)
    checksum = packing._checksum(packing.FORMAT, text, frame)
    return (
        packing._PREFIX.pack(packing.MAGIC, packing.FORMAT, len(text), len(frame), checksum)
        + text
        + frame
    )


def _reshaped(rng: Rng, array: Any) -> Any:
    choices = (
        lambda: array[:-1],
        lambda: np.concatenate([array, array]),
        lambda: np.zeros(int(chosen(rng, (0, 1, 10, 1_000_000))), array.dtype),
        lambda: array.reshape(1, -1),
        lambda: array.astype(np.float64) * np.inf if array.size else array,
        lambda: array[::-1],
    )
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(chosen(rng, choices)())
