"""JSON and NDJSON documents: read completely, each key once, with limits on objects and on depth. The response of one.

A repeated key is rejected: parsers disagree about which value counts, and one value would be lost.
The check counts colons. Only if there are more colons than keys and strings explain, a slower
parser that reports every pair reads the body a second time.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from fastapi import Request, Response

from calibrant.core.errors import Violation
from calibrant_server.service.http.parameters import entity_tags, names
from calibrant_server.service.http.problems import BodyTooLarge, MalformedBody, escaped

POSITION = re.compile(r": line (\d+) column (\d+) \(char \d+\)$")
# No document of the API is nested deeper than 8. What follows may recurse: it never meets a deeper value.
MAX_DEPTH = 32
MAX_QUOTED = 60  # characters of a key in an error
# Objects as lists, quotes, and nothing else: the form of a document, on which its depth is counted.
_AS_LISTS = bytes.maketrans(b"{}", b"[]")
_NO_FORM = bytes(set(range(256)) - set(b'[]{}"'))
NOT_NUMBERS = re.compile(rb"NaN|-?Infinity")
_STEPS_AT_ONCE = 1 << 18
_ESCAPED, _STRING = re.compile(rb"\\."), re.compile(rb'"[^"]*"')


def json_response(value: Mapping[str, Any], status: int = 200, **headers: str) -> Response:
    """Return a document as a response that clients revalidate each time."""
    content, all_headers = orjson.dumps(value), {"Cache-Control": "no-cache", **headers}
    return Response(content, status, all_headers, "application/json")


def response_or_unchanged(request: Request, body: bytes, headers: Mapping[str, str]) -> Response:
    """Return JSON under its ETag, which is one of the headers; 304 if the client has it."""
    if names(entity_tags(request, "if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=dict(headers))
    return Response(body, 200, dict(headers), "application/json")


def read_json(data: bytes, max_objects: int) -> Any:
    """Return the JSON document in `data`."""
    form = _form(data)
    _bound_objects(form, max_objects)
    _bound_depth(data, form)
    document = _loaded(data)
    if _may_repeat_keys(data, [document]):
        _reject_repeated_keys(data, None)
    return document


def read_ndjson(data: bytes, max_objects: int) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the records in `data` and the line number of each, from 1; empty lines are skipped."""
    form = _form(data)
    _bound_objects(form, max_objects)
    numbered = [(n, line) for n, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    records = [_record(line, n) for n, line in numbered]
    # After the lines are parsed: only then do brackets that a line leaves open not count for later lines.
    _bound_depth(data, form)
    if _may_repeat_keys(data, records):
        for n, line in numbered:
            _reject_repeated_keys(line, n)
    return records, [n for n, _ in numbered]


def _form(data: bytes) -> bytes:
    """Return the brackets and quotes of a text, with objects as lists."""
    return data.translate(_AS_LISTS, _NO_FORM)


def _bound_objects(form: bytes, max_objects: int) -> None:
    """Reject text that would fill memory before parsing it: an empty list takes 2 bytes as text, 60 in memory."""
    if form.count(b"[") > max_objects:
        raise BodyTooLarge(
            f"Received more than {max_objects} lists and objects in the body. Send it in several batches."
        )


def _bound_depth(data: bytes, form: bytes) -> None:
    """Reject text nested too deeply. A JSON document is not yet parsed then: many small objects take much time."""
    if form.count(b"[") <= MAX_DEPTH:
        return
    if b"\\" in data:
        form = _form(_ESCAPED.sub(b"", data))
    # A quote that is left begins a string without an end, which the parser reports.
    brackets = _STRING.sub(b"", form).translate(None, b'"')
    # 1 for each bracket that opens, -1 for each that closes.
    steps = ord("\\") - np.frombuffer(brackets, np.int8)
    depth = 0
    for first in range(0, len(steps), _STEPS_AT_ONCE):
        depths = steps[first : first + _STEPS_AT_ONCE].cumsum(dtype=np.int32)
        if depth + int(depths.max()) > MAX_DEPTH:
            detail = f"Received values nested more than {MAX_DEPTH} deep; expected fewer levels"
            raise malformed(detail, None)
        depth += int(depths[-1])


def _loaded(data: bytes, line: int | None = None) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise malformed(_reason(data, error), line) from error


def _reason(data: bytes, error: orjson.JSONDecodeError) -> str:
    """Return what is wrong with a text; numbers that JSON does not have are named, with what to send."""
    found = NOT_NUMBERS.match(data[error.pos : error.pos + 9])
    if not found:
        return str(error)
    name = found[0].decode()
    place = f"line {error.lineno} column {error.colno} (char {error.pos})"
    return f"JSON has no {name}: {place}. Leave out predictions without a score; of values, only labels may be null"


def malformed(reason: str, line: int | None) -> MalformedBody:
    """Return the problem of text that is not JSON, with its line number."""
    if line is None:
        return MalformedBody(
            f"The body is not JSON: {reason}.", errors=[Violation("", "json", reason)]
        )
    reason = POSITION.sub(r", column \2", reason)
    detail = f"Line {line} is not JSON: {reason}."
    return MalformedBody(detail, errors=[Violation(f"/{line}", "json", reason)])


def _record(text: bytes, line: int) -> dict[str, Any]:
    record = _loaded(text, line)
    if not isinstance(record, dict):
        raise malformed("expected one object per line", line)
    return record


def _may_repeat_keys(data: bytes, documents: list[Any]) -> bool:
    """Return whether there are more colons than the parsed keys and strings explain."""
    if b"\\" in data:
        return True
    colons = data.count(b":")
    if set(map(type, documents)) == {dict} and colons == sum(map(len, documents)):
        return False  # the keys alone explain the colons
    return colons != sum(map(_colons, documents))


def _colons(value: Any) -> int:
    """Return the minimum number of colons in the text of `value`; lists of lists are not inspected."""
    if isinstance(value, dict):
        return int(len(value) + sum(key.count(":") + _colons(each) for key, each in value.items()))
    if isinstance(value, str):
        return value.count(":")
    if isinstance(value, list):
        kinds = set(map(type, value))
        if kinds == {str}:
            return "".join(value).count(":")
        return sum(map(_colons, value)) if dict in kinds else 0
    return 0


def _reject_repeated_keys(data: bytes, line: int | None) -> None:
    def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise _repeated(_first_repeated([key for key, _ in pairs]), line)
        return found

    json.loads(data, object_pairs_hook=each_once)


def _first_repeated(keys: list[str]) -> str:
    """Return the first key that an earlier one equals; at least one does."""
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            break
        seen.add(key)
    return key


def _repeated(key: str, line: int | None) -> MalformedBody:
    where = "" if line is None else f"Line {line}: "
    place = "" if line is None else f"/{line}"
    key = key if len(key) <= MAX_QUOTED else f"{key[:MAX_QUOTED]}…"
    detail = f"{where}Received key {key!r} twice in one object; expected it once."
    return MalformedBody(
        detail, errors=[Violation(f"{place}/{escaped(key)}", "repeated_key", detail)]
    )
