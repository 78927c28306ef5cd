"""Random changes of JSON values and of their text."""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

Rng = np.random.Generator
ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 0.5, 1.0, 1e-320, 1e308, -0.0, 2**31, 2**53, 2**63, -(2**63)),
    *("", "a", "a b", "ä", "..", ".", "a/b", "a:b", "x" * 129, "\u0000", "2026-01-01T00:00:00Z"),
    *("2999-01-01T00:00:00Z", "1900-01-01T00:00:00Z", "binary", "pane", "P1D", "-P1D", "NaN"),
    *([], {}, [[]], [None], {"a": None}, [0, 1], ["a"], [[0.5, 0.5]], {"": ""}, {"a": {"b": ["c"]}}),
]  # fmt: skip
TEXTS = (
    b"NaN",
    b"Infinity",
    b"1e400",
    b"-",
    b"01",
    b"1.",
    b'"\\ud800"',
    b'"\xff"',
    b"//",
    b"'a'",
    b"[",
    b"}",
)


def chosen(rng: Rng, values: Any) -> Any:
    """Return one of several values."""
    return values[int(rng.integers(len(values)))]


def copied(value: Any) -> Any:
    """Return a copy of JSON values, whose parts may be changed."""
    return marshal.loads(marshal.dumps(value))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container with each of its keys; of a long list, the first and the last."""
    found: list[tuple[Any, Any]] = []
    open_: list[Any] = [value]
    while open_:
        each = open_.pop()
        keys: list[Any] = []
        if isinstance(each, dict):
            keys = list(each)
        elif isinstance(each, list):
            keys = [*range(min(len(each), 4)), *range(max(len(each) - 1, 4), len(each))]
        found += [(each, key) for key in keys]
        open_ += [each[key] for key in keys]
    return found


def n_values(value: Any, known: dict[int, int] | None = None) -> int:
    """Return how many values the text of a value has; parts that are repeated are counted once and multiplied."""
    known = {} if known is None else known
    if not isinstance(value, list | dict):
        return 1
    if id(value) not in known:
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(n_values(each, known) for each in parts)
    return known[id(value)]


def nested(rng: Rng, value: Any) -> Any:
    """Return a value inside other values."""
    for _ in range(int(chosen(rng, (1, 3, 31, 40, 300)))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def changed(rng: Rng, value: Any) -> Any:
    """Return a value with one place replaced, removed, renamed, repeated, nested or exchanged."""
    value = copied(value)
    found = places(value)
    if not found or rng.random() < 0.02:
        return chosen(rng, ODD)
    container, key = chosen(rng, found)
    old = container[key]
    other, other_key = chosen(rng, found)
    changes: list[Callable[[], Any]] = [
        lambda: container.__setitem__(key, copied(chosen(rng, ODD))),
        lambda: container.__delitem__(key),
        lambda: container.__setitem__(key, nested(rng, old)),
        lambda: container.__setitem__(key, copied(other[other_key])),
        lambda: container.__setitem__(key, [copied(old)] * int(chosen(rng, (0, 1, 2, 200)))),
        lambda: _extended(rng, container, key),
        lambda: container.__setitem__(key, _nudged(rng, old)),
    ]
    changes[int(rng.integers(len(changes)))]()
    return value


def _extended(rng: Rng, container: Any, key: Any) -> None:
    if isinstance(container, dict):
        name = chosen(
            rng, ("x", key + "s", key[:-1], key.upper(), "k" * 300, "a/b~c", "slices", "options")
        )
        container[name] = copied(container[key])
    else:
        container += [copied(container[key])] * int(chosen(rng, (1, 2, 1000)))


def _nudged(rng: Rng, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return chosen(rng, (value + 1, -value, value * 1.0005, value * 1e9, str(value), value / 3))


def text_of(value: Any) -> bytes:
    """Return a value as JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:  # integers beyond 64 bits, half a surrogate pair, deep values
        pass
    try:
        return json.dumps(value, separators=(",", ":"), default=str).encode()
    except RecursionError:
        return b'{"a":' * 2000 + b"1" + b"}" * 2000


def changed_text(rng: Rng, text: bytes) -> bytes:
    """Return a text that is cut, damaged, or says something twice."""
    if not text:
        return text
    at = int(rng.integers(len(text)))
    changes: list[Callable[[], bytes]] = [
        lambda: text[:at],
        lambda: text[:at] + bytes([int(rng.integers(256))]) + text[at + 1 :],
        lambda: text[:at] + chosen(rng, TEXTS) + text[at:],
        lambda: text[:at] + text[at // 2 : at] + text[at:],
        lambda: text.replace(b"{", b'{"a":1,"a":2,', 1),
        lambda: text.replace(b"0.5", chosen(rng, TEXTS), 1),
        lambda: text + text,
        lambda: b"\xef\xbb\xbf" + text,
        lambda: text.replace(b":", b" : \r\n", 3),
    ]
    return changes[int(rng.integers(len(changes)))]()
