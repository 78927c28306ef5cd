"""Named arrays as bytes, exactly, with a format number.

Layout: the magic `CALB`, a format number, lengths of a JSON header and of a zstandard frame, the header's CRC-32, the header, the frame. Integers are stored in
the narrowest width that holds them, floats that are all whole numbers likewise, an array that equals an earlier one as a reference
to it; bytes of equal significance lie together, so that counts cost little. Reading gives back the same bits.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

MAGIC = b"CALB"
FORMAT = 1
_PREFIX = struct.Struct("<4sHIII")
_LARGEST_HEADER = 1 << 22
LARGEST_CONTENT = 1 << 28
_WIDTHS = (np.dtype("<i1"), np.dtype("<i2"), np.dtype("<i4"), np.dtype("<i8"))
_DTYPES = {"i": np.dtype("<i8"), "f": np.dtype("<f8"), "g": np.dtype("<f4"), "u": np.dtype("<u8")}
_KINDS = {dtype: kind for kind, dtype in _DTYPES.items()}


class PackingError(ValueError):
    """The bytes are not of this format, are damaged, or are of a newer format than this code reads."""


def pack(arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any], *, level: int = 1) -> bytes:
    """Named arrays and a small JSON-able description, as bytes.

    Parameters
    ----------
    arrays : int64, uint64, float64 or float32, any shape
    about : JSON-able
    level : zstandard's; higher is smaller and slower.

    Returns
    -------
    bytes that `unpack` reads back to the same bits.
    """
    columns: list[list[Any]] = []
    chunks: list[bytes] = []
    seen: dict[bytes, int] = {}
    for name, array in arrays.items():
        kind = _KINDS[array.dtype.newbyteorder("<")]
        flat = np.ascontiguousarray(array).reshape(-1)
        stored, code = _narrowed(flat, kind)
        data = stored.tobytes()
        key = code.encode() + data
        if data and key in seen:
            columns.append([name, kind, list(array.shape), seen[key]])
            continue
        seen[key] = len(columns)
        columns.append([name, kind, list(array.shape), code])
        chunks.append(_shuffled(data, stored.dtype.itemsize))
    header = json.dumps({"about": about, "arrays": columns}, separators=(",", ":")).encode()
    body = zstandard.ZstdCompressor(level=level, write_checksum=True).compress(b"".join(chunks))
    return _PREFIX.pack(MAGIC, FORMAT, len(header), len(body), zlib.crc32(header)) + header + body


def unpack(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and the description that `pack` was given.

    Raises
    ------
    PackingError
        Not this format, damaged, too large, or of a newer format.
    """
    try:
        length, checksum = _lengths(data)[0], _PREFIX.unpack_from(data)[4]
        if packed_length(data) != len(data):
            raise PackingError("the bytes are shorter or longer than their header says")
        text = data[_PREFIX.size : _PREFIX.size + length]
        if zlib.crc32(text) != checksum:
            raise PackingError("damaged bytes: the header's checksum differs")
        header = json.loads(text)
        return _read_arrays(header["arrays"], data[_PREFIX.size + length :]), header["about"]
    except PackingError:
        raise
    except (struct.error, ValueError, KeyError, TypeError, IndexError, RecursionError, zstandard.ZstdError) as fault:
        raise PackingError(f"damaged bytes: {fault}") from fault


def packed_length(data: bytes) -> int:
    """Length of the packed arrays that `data` starts with.

    Raises
    ------
    PackingError
        Not this format, or of a newer one.
    """
    return _PREFIX.size + sum(_lengths(data))


def _lengths(data: bytes) -> tuple[int, int]:
    """Lengths of the header and the frame."""
    if len(data) < _PREFIX.size:
        raise PackingError("damaged bytes: too short")
    magic, number, header, frame, _ = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise PackingError("these bytes do not start with CALB")
    if number != FORMAT:
        raise PackingError(f"format {number} is not one that this version reads ({FORMAT})")
    if header > _LARGEST_HEADER:
        raise PackingError("the header is longer than any header")
    return header, frame


def _read_arrays(columns: list[list[Any]], frame: bytes) -> dict[str, NDArray[Any]]:
    size = zstandard.frame_content_size(frame) if frame else 0
    if size < 0 or size > LARGEST_CONTENT:
        raise PackingError("the content's size is unknown or beyond the limit")
    body = zstandard.ZstdDecompressor().decompress(frame) if size else b""
    arrays: dict[str, NDArray[Any]] = {}
    made: list[NDArray[Any]] = []
    offset = 0
    for name, kind, shape, code in columns:
        if isinstance(code, int):
            flat = made[code]
            if flat.dtype != _DTYPES[kind]:
                flat = flat.astype(_DTYPES[kind])
        else:
            stored = np.dtype(code)
            if stored not in _WIDTHS and stored not in _KINDS:
                raise PackingError(f"unknown width {code!r}")
            length = _volume(shape) * stored.itemsize
            if offset + length > len(body):
                raise PackingError("an array is longer than the content")
            flat = _unshuffled(body[offset : offset + length], stored).astype(_DTYPES[kind])
            offset += length
        made.append(flat)
        arrays[name] = flat.reshape(shape)
    if offset != len(body):
        raise PackingError("content is left over")
    return arrays


def _volume(shape: list[int]) -> int:
    volume = 1
    for side in shape:
        if not isinstance(side, int) or side < 0:
            raise PackingError("an array has no sensible shape")
        volume *= side
    return volume


def _narrowed(flat: NDArray[Any], kind: str) -> tuple[NDArray[Any], str]:
    """The values in the narrowest width that gives the same bits back, and that width's name."""
    if flat.size == 0 or kind in "gu":
        return flat, flat.dtype.str
    if kind == "f":
        whole = flat.astype(np.int64) if np.all(np.abs(flat) < 2.0**53) else None
        if whole is None or not np.array_equal(whole.astype(np.float64).view(np.int64), flat.view(np.int64)):
            return flat, "<f8"
        flat = whole
    low, high = int(flat.min()), int(flat.max())
    for width in _WIDTHS:
        if np.iinfo(width).min <= low and high <= np.iinfo(width).max:
            return flat.astype(width), width.str
    raise AssertionError("int64 holds every int64")


def _shuffled(data: bytes, itemsize: int) -> bytes:
    if itemsize == 1:
        return data
    return np.frombuffer(data, np.uint8).reshape(-1, itemsize).T.tobytes()


def _unshuffled(data: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    raw = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(raw.T).reshape(-1).view(dtype) if raw.size else np.empty(0, dtype)
