"""Whether two recordings are equal.

Status, headers, structure, texts, integers, booleans and nulls: exactly. Floating-point numbers by one of four rules:

- `COPIED`: to the bit. The response returns what was sent or stored: settings, catalogues, lists.
- `SUMMED`: 1e-12 of the largest number of their column (the list that they are in), at least of 1. Every other response;
  a sum of many values depends on their order by a few units of the last place.
- `FITTED`: 1e-9 in the same way. Results of an iteration, which ends where its steps are small.
- `AMPLIFIED`: 1e-7 in the same way. Eigenvalues near 0, smooth curves and roots, which enlarge the differences between processors in the
  last place of a sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.recorded.exchanges import Exchange

COPIED, SUMMED, FITTED, AMPLIFIED = 0.0, 1e-12, 1e-9, 1e-7

# The first rule whose pattern occurs in "METHOD /path pointer" applies.
RULES = (
    (re.compile(r"^PUT /v1/models/[^/]+ |^(PATCH|DELETE) "), COPIED),
    (re.compile(r"^GET /v1/(metrics|calibrators|problems|models)( |\?|/[^/? ]+ )"), COPIED),
    (re.compile(r"^GET /v1/models/[^/]+/(batches|sources|dead-letters)\b"), COPIED),
    (
        re.compile(r"/(temperature|calibration-map|maps|posterior|disagreement|uncertainty)\b"),
        FITTED,
    ),
    (re.compile(r" /body/metrics/(skce|ici|lp_ece\(order=3\))/"), AMPLIFIED),
    (re.compile(r"temperature|recommendation|fit|p_value|e_value"), FITTED),
)

Difference = tuple[str, Any, Any]
ABSENT = "(absent)"


def differences(expected: Exchange, got: Exchange) -> Iterator[Difference]:
    """Yield the JSON Pointer of each difference, what was recorded and what came."""
    yield from _compared(expected, got, "", expected["request"], 1.0)


def _compared(
    expected: Any, got: Any, pointer: str, request: str, scale: float
) -> Iterator[Difference]:
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in expected | got:
            pair = expected.get(name, ABSENT), got.get(name, ABSENT)
            yield from _compared(*pair, f"{pointer}/{name}", request, scale)
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        scale = max([scale, *(abs(each) for each in expected if isinstance(each, float))])
        for i, pair in enumerate(zip(expected, got, strict=True)):
            yield from _compared(*pair, f"{pointer}/{i}", request, scale)
    elif not _are_equal(expected, got, f"{request} {pointer}", scale):
        yield pointer, expected, got


def _are_equal(expected: Any, got: Any, place: str, scale: float) -> bool:
    if isinstance(expected, float) and isinstance(got, float):
        return abs(expected - got) <= tolerance(place) * max(scale, abs(expected))
    return type(expected) is type(got) and bool(expected == got)


def tolerance(place: str) -> float:
    """Return the tolerance of a number: `place` is the request's line and the pointer of the number."""
    return next((found for pattern, found in RULES if pattern.search(place)), SUMMED)
