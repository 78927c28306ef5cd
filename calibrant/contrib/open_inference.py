"""Bodies of inference servers as named arrays: KServe version 1, the Open Inference Protocol (version 2), Triton, Seldon.

Sources: `kserve/open-inference-protocol`, `specification/protocol/inference_rest.md`; `triton-inference-server/server`,
`docs/protocol/extension_binary_data.md`; `SeldonIO/seldon-core`, `proto/prediction.proto`. A version 2 body is JSON. In Triton's
extension, bytes of tensors follow it: little endian, row major, in the order of the tensors. The length of the JSON is in a header
that loggers do not forward, so its end is found here, and the sizes of the tensors must add up to the rest.

>>> from calibrant.contrib.open_inference import decode
>>> body = b'{"outputs": [{"name": "p", "datatype": "FP32", "shape": [2, 2], "data": [0.9, 0.1, 0.4, 0.6]}]}'
>>> decode(body).tensors["p"].tolist()
[[0.9, 0.1], [0.4, 0.6]]
>>> decode(b'{"predictions": [[0.9, 0.1]]}').tensors["predictions"].tolist()
[[0.9, 0.1]]
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrant.core.errors import CalibrationInputError, Violation

# Without the datatypes BYTES and BF16, which have no numpy type.
DTYPES = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
MAX_TENSORS, MAX_RANK = 100, 8
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]')
_LENGTH = 4  # bytes before each element of a BYTES tensor


@dataclass(frozen=True)
class Inference:
    """A request or response of an inference server.

    Attributes
    ----------
    tensors : arrays by name; of version 1, `predictions` or `instances`, or the members of their entries; of Seldon, `data`
    id : of Seldon, `meta.puid`
    model_name, model_version : as the body has them; None if it has none
    """

    tensors: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    id: str | None = None
    model_name: str | None = None
    model_version: str | None = None

    def numbers(self, name: str, pointer: str, n_dimensions: int = 2) -> np.ndarray[Any, Any]:
        """Return a tensor with one number per row or, with two dimensions, one per class."""
        expected = "a number per row" + (", or one per class" if n_dimensions == 2 else "")
        return _rows(self._named(name, pointer), "iuf", n_dimensions, pointer, expected)

    def texts(self, name: str, pointer: str) -> list[str]:
        """Return a tensor with one string or whole number per row as texts."""
        values = self._named(name, pointer)
        found = _rows(values, "iuO", 1, pointer, "a string or whole number per row")
        return [str(each) for each in found.tolist()]

    def _named(self, name: str, pointer: str) -> np.ndarray[Any, Any]:
        if name not in self.tensors:
            shown = ", ".join(each[:60] for each in list(self.tensors)[:10])
            detail = f"Received tensors {shown}; expected {name or 'the name of one of them'}."
            raise _error(pointer, "missing", detail)
        return self.tensors[name]


def decode(
    body: bytes | Mapping[str, Any],
    header_length: int | None = None,
    loads: Callable[[bytes], Any] = json.loads,
) -> Inference:
    """Return the arrays of a body.

    Parameters
    ----------
    body : bytes as sent, without compression; or the parsed JSON object
    header_length : value of `Inference-Header-Content-Length`; None: the JSON ends where its object does
    loads : parser of the JSON part

    Raises
    ------
    CalibrationInputError
        It is not such a body; the violation names the member.
    """
    binary = b""
    if isinstance(body, bytes):
        length = _object_length(body) if header_length is None else header_length
        if not 0 <= length <= len(body):
            raise _error("", "length", f"Received {len(body)} bytes; expected {length} of JSON.")
        document, binary = loads(body[:length]), body[length:]
    else:
        document = body
    if not isinstance(document, Mapping):
        raise _error("", "object", "Received another type; expected a JSON object.")
    names = {each: _text(document, each) for each in ("id", "model_name", "model_version")}
    for member in ("outputs", "inputs"):
        if member in document:
            return Inference(_tensors(document[member], member, binary), **names)
    for member in ("predictions", "instances"):
        if member in document:
            return Inference(_entries(document[member], member), **names)
    if isinstance(document.get("data"), Mapping):
        meta = document.get("meta")
        names["id"] = _text(meta, "puid") if isinstance(meta, Mapping) else None
        return Inference({"data": seldon_array(document["data"])}, **names)
    detail = "Received no outputs, inputs, predictions, instances or data; expected one of them."
    raise _error("", "missing", detail)


def seldon_array(data: Mapping[str, Any], pointer: str = "/data") -> np.ndarray[Any, Any]:
    """Return the array in the member `data` of Seldon's protocol: `ndarray`, or `tensor` with shape and values.

    Raises
    ------
    CalibrationInputError
        It has none of them.
    """
    tensor = data.get("tensor")
    if isinstance(tensor, Mapping):
        shape = _shape(tensor, f"{pointer}/tensor")
        values = _array(tensor.get("values"), f"{pointer}/tensor/values").reshape(-1)
        return _shaped(values, shape, f"{pointer}/tensor")
    if "ndarray" in data:
        return _array(data["ndarray"], f"{pointer}/ndarray")
    raise _error(pointer, "missing", "Received no ndarray or tensor; expected one of them.")


def seldon_classes(data: Mapping[str, Any], pointer: str = "/data") -> list[int]:
    """Return the class of each row, from classes or from rows with one 1.

    >>> seldon_classes({"ndarray": [[0, 1], [1, 0]]}), seldon_classes({"ndarray": [2, 0]})
    ([1, 0], [2, 0])
    """
    expected = "a class, or one 1, per row"
    found = _rows(seldon_array(data, pointer), "iufb", 2, pointer, expected)
    if found.ndim == 2:
        if (np.sort(found, axis=1) != np.eye(found.shape[1])[-1]).any():
            detail = "Received a row that is not zeros with one 1; expected the class as one 1."
            raise _error(pointer, "one_hot", detail)
        found = found.argmax(axis=1)
    if (found != np.floor(found)).any():
        raise _error(pointer, "integer", "Received a fraction; expected classes.")
    return [int(each) for each in found]


def _rows(
    values: np.ndarray[Any, Any], kinds: str, n_dimensions: int, pointer: str, expected: str
) -> np.ndarray[Any, Any]:
    """Return an array of these kinds with a value per row, or several; a column is one value."""
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.dtype.kind not in kinds or not 0 < values.ndim <= n_dimensions:
        detail = f"Received {values.ndim} dimensions of {values.dtype}; expected {expected}."
        raise _error(pointer, "shape", detail)
    return values


def _error(pointer: str, rule: str, detail: str) -> CalibrationInputError:
    return CalibrationInputError([Violation(pointer, rule, detail)])


def _text(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) else None


def _object_length(body: bytes) -> int:
    """Return the length of the JSON object at the beginning of a body."""
    depth = 0
    for found in _STRUCTURE.finditer(body):
        token = found[0]
        depth += (token == b"{") - (token == b"}")
        if depth == 0:
            return found.end()
    raise _error("", "json", "Received a body that is no complete JSON object. Send JSON.")


def _tensors(listed: Any, member: str, binary: bytes) -> dict[str, np.ndarray[Any, Any]]:
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_TENSORS:
        detail = f"Received no list of 1 to {MAX_TENSORS} tensors; expected one."
        raise _error(f"/{member}", "list", detail)
    found: dict[str, np.ndarray[Any, Any]] = {}
    for index, each in enumerate(listed):
        pointer = f"/{member}/{index}"
        if not isinstance(each, Mapping) or not isinstance(each.get("name"), str):
            raise _error(pointer, "object", "Received no object with a name; expected a tensor.")
        values, n_taken = _tensor(each, pointer, binary)
        if each["name"] in found:
            raise _error(f"{pointer}/name", "repeated", "Received two tensors of one name.")
        found[each["name"]] = values
        binary = binary[n_taken:]
    if binary.strip():
        detail = f"Received {len(binary)} bytes more than the tensors announce; expected none."
        raise _error(f"/{member}", "binary_data_size", detail)
    return found


def _tensor(
    each: Mapping[str, Any], pointer: str, binary: bytes
) -> tuple[np.ndarray[Any, Any], int]:
    """Return the array of a tensor, and how many of the following bytes are its own."""
    shape = _shape(each, pointer)
    datatype = each.get("datatype")
    parameters = each.get("parameters")
    size = parameters.get("binary_data_size") if isinstance(parameters, Mapping) else None
    if size is None:
        values = _array(each.get("data"), f"{pointer}/data").reshape(-1)
        return _shaped(values, shape, pointer), 0
    if type(size) is not int or not 0 <= size <= len(binary):
        detail = f"Received {len(binary)} bytes after the JSON; expected at least {size!r}."[:200]
        raise _error(f"{pointer}/parameters/binary_data_size", "binary_data_size", detail)
    if datatype == "BYTES":
        return _shaped(_strings(binary[:size], pointer), shape, pointer), size
    dtype = DTYPES.get(str(datatype))
    if dtype is None or size % np.dtype(dtype).itemsize:
        detail = (
            f"Received {str(datatype)[:40]!r} of {size} bytes; expected one of {', '.join(DTYPES)}."
        )
        raise _error(f"{pointer}/datatype", "datatype", detail)
    return _shaped(np.frombuffer(binary[:size], dtype), shape, pointer), size


def _shape(each: Mapping[str, Any], pointer: str) -> list[int]:
    shape = each.get("shape")
    if not isinstance(shape, list) or not 0 < len(shape) <= MAX_RANK or not _are_sizes(shape):
        detail = f"Received no list of 1 to {MAX_RANK} sizes; expected the shape of the tensor."
        raise _error(f"{pointer}/shape", "shape", detail)
    return shape


def _are_sizes(shape: list[Any]) -> bool:
    return all(type(size) is int and 0 <= size < 2**31 for size in shape)


def _shaped(values: np.ndarray[Any, Any], shape: list[int], pointer: str) -> np.ndarray[Any, Any]:
    if len(values) != math.prod(shape):
        detail = f"Received {len(values)} values; expected {math.prod(shape)}, by the shape."
        raise _error(f"{pointer}/data", "shape", detail)
    return values.reshape(shape)


def _strings(data: bytes, pointer: str) -> np.ndarray[Any, Any]:
    """Return the elements of a BYTES tensor: each after its length of four bytes."""
    found, place = [], 0
    while place < len(data):
        end = place + _LENGTH + int.from_bytes(data[place : place + _LENGTH], "little")
        if place + _LENGTH > len(data) or end > len(data):
            raise _error(f"{pointer}/data", "bytes", "Received a string that ends early.")
        found.append(data[place + _LENGTH : end].decode(errors="replace"))
        place = end
    return np.array(found, dtype=object)


def _array(data: Any, pointer: str) -> np.ndarray[Any, Any]:
    """Return a list, nested or flat, of numbers, strings or booleans as an array.

    Strings stay objects: as an array of text, each would take the room of the longest.
    """
    if not isinstance(data, list):
        raise _error(pointer, "list", "Received another type; expected a list of values.")
    found = np.array(data, dtype=object)
    types = set(map(type, found.reshape(-1)))
    if types <= {str}:
        return found
    try:
        if len(types) == 1 and types <= {int, bool}:
            return found.astype(np.int64 if types == {int} else np.bool_)
        if types <= {int, float}:
            return found.astype(np.float64)
    except OverflowError:
        pass
    detail = "Received mixed values, or lists of different lengths; expected numbers or strings."
    raise _error(pointer, "number", detail)


def _entries(listed: Any, member: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return the entries of version 1 as one array, or as one array per member."""
    if not isinstance(listed, list) or not listed:
        raise _error(f"/{member}", "list", "Received no entries; expected a list with one each.")
    if not isinstance(listed[0], Mapping):
        return {member: _array(listed, f"/{member}")}
    names = list(listed[0])
    if len(names) > MAX_TENSORS:
        raise _error(f"/{member}/0", "too_many", f"Received {len(names)} members in an entry.")
    for index, each in enumerate(listed):
        if not isinstance(each, Mapping) or each.keys() != listed[0].keys():
            detail = "Received another entry than the first; expected the same members."
            raise _error(f"/{member}/{index}", "object", detail)
    return {name: _array([each[name] for each in listed], f"/{member}") for name in names}
