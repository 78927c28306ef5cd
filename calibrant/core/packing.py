"""Named arrays as bytes, exactly, with a format number.

Layout: the magic `CALB`, a format number, lengths of a JSON header and of a zstandard frame, the CRC-32 of all that
follows the magic except itself, the header, the frame. Integers are stored in the narrowest sufficient width, floats
that are all whole numbers likewise, an array that equals an earlier one as a reference to it. Bytes of equal
significance are adjacent, so that counts compress well. Reading restores the same bits and rejects any other bytes:
input may come from untrusted clients, so every length is compared with a bound before use.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core import frames
from calibrant.core.documents import Header
from calibrant.core.frames import MAX_CONTENT, damage_as_error
from calibrant.core.frames import PackingError as PackingError
from calibrant.core.packed_layout import DTYPES, WIDTHS, Layout, layout_of

MAGIC = b"CALB"
FORMAT = 1
_PREFIX = struct.Struct("<4sHIII")
_MAX_HEADER = 1 << 22
_RANGES = [(int(np.iinfo(width).min), int(np.iinfo(width).max), width) for width in WIDTHS]
_WHOLE = 2.0**53
_FEW = 64
_KINDS = {dtype: kind for kind, dtype in DTYPES.items()}
_as_json = json.JSONEncoder(separators=(",", ":")).encode


def pack(arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any], *, level: int = 3) -> bytes:
    """Return named arrays and a small JSON-able description as bytes.

    Parameters
    ----------
    arrays : int64, uint64, float64, float32 or uint8, any shape of at most four dimensions
    about : JSON-able
    level : of zstandard; higher is smaller and slower.

    Returns
    -------
    bytes that `unpack` reads to the same bits.

    Raises
    ------
    ValueError
        More than `unpack` can read.
    """
    columns: list[list[Any]] = []
    chunks: list[bytes] = []
    seen: dict[tuple[str, bytes], int] = {}
    for name, array in arrays.items():
        kind = _KINDS.get(array.dtype) or _KINDS[array.dtype.newbyteorder("<")]
        flat = np.ascontiguousarray(array, DTYPES[kind]).reshape(-1)
        stored, code = _narrowed(flat, kind)
        data = stored.tobytes()
        key = (code, data)
        if data and key in seen:
            columns.append([name, kind, list(array.shape), seen[key]])
            continue
        seen[key] = len(columns)
        columns.append([name, kind, list(array.shape), code])
        chunks.append(_shuffled(data, stored.dtype.itemsize))
    header = _as_json({"about": about, "arrays": columns}).encode()
    size = sum(array.nbytes for array in arrays.values())
    if len(header) > _MAX_HEADER or size > MAX_CONTENT:
        detail = f"Received {size} bytes of arrays and {len(header)} of header; that is more than `unpack` reads."
        raise ValueError(detail)
    body = frames.compressed(b"".join(chunks), level)
    checksum = _checksum(FORMAT, header, body)
    return _PREFIX.pack(MAGIC, FORMAT, len(header), len(body), checksum) + header + body


def unpack(data: bytes, *, largest: int = MAX_CONTENT) -> tuple[dict[str, NDArray[Any]], Header]:
    """Read the arrays and the description given to `pack`.

    Parameters
    ----------
    data : bytes
    largest : maximum bytes of the arrays in memory; larger content is rejected before it is unpacked.

    Raises
    ------
    PackingError
        Another format, damaged, too large, or of a newer format.
    """
    with damage_as_error():
        text, frame = _text_and_frame(data)
        layout = layout_of(text)
        body = _content(layout, frame, min(largest, MAX_CONTENT))
        return read_arrays(layout, body), layout.described


def _text_and_frame(data: bytes) -> tuple[bytes, bytes]:
    """Return the header and the frame of packed arrays."""
    length, frame_length = _lengths(data)
    if _PREFIX.size + length + frame_length != len(data):
        raise PackingError("the bytes are shorter or longer than their header says")
    text, frame = data[_PREFIX.size : _PREFIX.size + length], data[_PREFIX.size + length :]
    if _checksum(FORMAT, text, frame) != _PREFIX.unpack_from(data)[4]:
        raise PackingError("damaged bytes: the checksum differs")
    return text, frame


def described(data: bytes) -> tuple[Header, int]:
    """Read the description given to `pack` and the bytes that the arrays take in memory, and nothing else.

    The checksum is not compared: `unpack` does that.

    Raises
    ------
    PackingError
        As `unpack`, where the header is damaged.
    """
    with damage_as_error():
        length = _lengths(data)[0]
        layout = layout_of(data[_PREFIX.size : _PREFIX.size + length])
        return layout.described, layout.content


def packed_length(data: bytes) -> int:
    """Return the length of the packed arrays at the start of `data`.

    Raises
    ------
    PackingError
        Another format, or a newer one.
    """
    return _PREFIX.size + sum(_lengths(data))


def _checksum(number: int, header: bytes, frame: bytes) -> int:
    lengths = struct.pack("<HII", number, len(header), len(frame))
    return zlib.crc32(frame, zlib.crc32(header, zlib.crc32(lengths)))


def _lengths(data: bytes) -> tuple[int, int]:
    """Return the lengths of the header and the frame."""
    if len(data) < _PREFIX.size:
        raise PackingError("damaged bytes: too short")
    magic, number, header, frame, _ = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise PackingError("these bytes do not start with CALB")
    if number != FORMAT:
        raise PackingError(f"Received format {number}; this version reads {FORMAT}.")
    if header > _MAX_HEADER:
        raise PackingError("the header is longer than any header")
    return header, frame


def _content(layout: Layout, frame: bytes, largest: int) -> bytes:
    """Return the content of a frame, after comparing its size with the bound and with the header."""
    if layout.content > largest:
        raise PackingError("the content is larger than it can be")
    body = frames.decompressed(frame, layout.content)
    if layout.length != len(body):
        is_short = layout.length > len(body)
        raise PackingError(
            "an array is longer than the content" if is_short else "content is left over"
        )
    return body


def read_arrays(layout: Layout, body: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of a layout in the content of a frame."""
    arrays: dict[str, NDArray[Any]] = {}
    made: list[NDArray[Any]] = []
    for name, shape, dtype, stored_as, n, start, same_as in layout.columns:
        if same_as >= 0:
            stored = made[same_as]
        elif not n:
            stored = np.empty(0, stored_as)
        elif stored_as.itemsize == 1:
            stored = np.frombuffer(body, stored_as, n, start)
        else:
            width = stored_as.itemsize
            raw = np.frombuffer(body, np.uint8, n * width, start).reshape(width, n)
            stored = raw.T.copy().view(stored_as).reshape(n)
        made.append(stored)
        # Its own bytes are used as they are; those of the frame or of an earlier array are copied.
        is_shared = same_as >= 0 or not stored.flags.writeable
        arrays[name] = stored.astype(dtype, copy=is_shared).reshape(shape)
    return arrays


def _narrowed(flat: NDArray[Any], kind: str) -> tuple[NDArray[Any], str]:
    """Return the values in the narrowest width that restores the same bits, and that width's name."""
    if flat.size == 0 or kind in "gub":
        return flat, flat.dtype.str
    if kind == "f":
        # Most sums are not whole numbers, which their first value shows.
        if not flat[0].is_integer():
            return flat, "<f8"
        least, most = np.minimum.reduce(flat), np.maximum.reduce(flat)
        # With nan among the values neither comparison holds.
        if not (least > -_WHOLE and most < _WHOLE):
            return flat, "<f8"
        integers = flat.astype(np.int64)
        if integers.astype(np.float64).tobytes() != flat.tobytes():
            return flat, "<f8"
        flat, low, high = integers, int(least), int(most)
    elif flat.size <= _FEW:
        # numpy takes longer than Python where values are few.
        values = flat.tolist()
        low, high = min(values), max(values)
    else:
        low, high = int(np.minimum.reduce(flat)), int(np.maximum.reduce(flat))
    width = next(width for lowest, highest, width in _RANGES if lowest <= low and high <= highest)
    return flat.astype(width), width.str


def _shuffled(data: bytes, itemsize: int) -> bytes:
    if itemsize == 1:
        return data
    return np.frombuffer(data, np.uint8).reshape(-1, itemsize).T.tobytes()
