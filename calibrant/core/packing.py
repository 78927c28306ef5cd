"""Named arrays as bytes, exactly, with a format number.

Layout: the magic `CALB`, a format number, lengths of a JSON header and of a zstandard frame, the CRC-32 of all that
follows the magic except itself, the header, the frame. Integers are stored in the narrowest sufficient width, floats
that are all whole numbers likewise, an array that equals an earlier one as a reference to it. Bytes of equal
significance are adjacent, so that counts compress well. Reading restores the same bits and rejects any other bytes:
input may come from untrusted clients, so every length is compared with a bound before use.
"""

from __future__ import annotations

import json
import marshal
import struct
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from calibrant.core.documents import Header

MAGIC = b"CALB"
FORMAT = 1
_PREFIX = struct.Struct("<4sHIII")
_MAX_HEADER = 1 << 22
# Headers that are remembered: of this length at most, about 3 MB with what was read of them.
MAX_KNOWN_HEADER, KNOWN_HEADERS = 1 << 10, 512
MAX_CONTENT = 1 << 28
_MAX_SIDES = 4
_WIDTHS = (np.dtype("<i1"), np.dtype("<i2"), np.dtype("<i4"), np.dtype("<i8"))
_RANGES = [(int(np.iinfo(width).min), int(np.iinfo(width).max), width) for width in _WIDTHS]
_WHOLE = 2.0**53
_FEW = 64
_DTYPES: dict[str, np.dtype[Any]] = {
    "i": np.dtype("<i8"),
    "f": np.dtype("<f8"),
    "g": np.dtype("<f4"),
    "u": np.dtype("<u8"),
    "b": np.dtype("u1"),
}
_KINDS = {dtype: kind for kind, dtype in _DTYPES.items()}
_NARROW = {width.str: width for width in _WIDTHS}
# Allowed storage types of each kind; `pack` writes no others.
_STORED = {kind: {dtype.str: dtype} for kind, dtype in _DTYPES.items()}
_STORED["i"] |= _NARROW
_STORED["f"] |= _NARROW
_FAULTS = (
    struct.error,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    OverflowError,
    RecursionError,
    zstandard.ZstdError,
)


# Contexts that no thread uses at present: to make one takes longer than to compress a part of a pane. One that raises is dropped.
_COMPRESSORS: dict[int, list[zstandard.ZstdCompressor]] = {}
_DECOMPRESSORS: list[zstandard.ZstdDecompressor] = []
_as_json = json.JSONEncoder(separators=(",", ":")).encode
_NO_MEMORY = "not enough memory"  # the wording of the zstandard library


class PackingError(ValueError):
    """The bytes are not of this format, are damaged, or are of a newer format than this code reads."""


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
        flat = np.ascontiguousarray(array, _DTYPES[kind]).reshape(-1)
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
        raise ValueError(
            f"Received {size} bytes of arrays and {len(header)} of header; that is more than `unpack` reads."
        )
    return pack_content(header, b"".join(chunks), level=level)


def pack_content(header: bytes, content: bytes, *, level: int) -> bytes:
    """Return a header and the content that it describes as `pack` does."""
    body = compressed(content, level)
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
    try:
        text, frame = _text_and_frame(data)
        layout = layout_of(text)
        body = _content(layout, frame, min(largest, MAX_CONTENT))
        return read_arrays(layout, body), layout.described
    except PackingError:
        raise
    except _FAULTS as error:
        raise _damaged(error) from error


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
    try:
        length = _lengths(data)[0]
        layout = layout_of(data[_PREFIX.size : _PREFIX.size + length])
        return layout.described, layout.content
    except PackingError:
        raise
    except _FAULTS as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> Exception:
    if isinstance(error, zstandard.ZstdError) and _NO_MEMORY in str(error):
        # A state of the machine, not of the bytes: the same bytes can be read later.
        return MemoryError(str(error))
    return PackingError(f"damaged bytes: {str(error)[:200]}")


class Column(NamedTuple):
    """Place of one array in the content of a frame.

    Attributes
    ----------
    dtype, stored_as : in memory, and in the frame
    n : number of values
    start : of its bytes in the content
    same_as : number of the earlier array that it equals; -1: it has its own bytes
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stored_as: np.dtype[Any]
    n: int
    start: int
    same_as: int


class Layout(NamedTuple):
    """Arrays of a frame, as a header describes them.

    Attributes
    ----------
    columns : in the order of the frame
    content : bytes of all arrays in memory
    length : bytes of the content of the frame
    about : the description, as `marshal` writes it: each caller receives a copy
    """

    columns: tuple[Column, ...]
    content: int
    length: int
    about: bytes

    @property
    def described(self) -> Header:
        """The description, as a copy."""
        found: Header = marshal.loads(self.about)
        return found


def layout_of(text: bytes) -> Layout:
    """Return what a header describes; headers of small arrays are alike, and reading one takes as long as its arrays."""
    return _known_layout(text) if len(text) <= MAX_KNOWN_HEADER else _read_layout(text)


def _read_layout(text: bytes) -> Layout:
    header = json.loads(text)
    about, listed = header["about"], header["arrays"]
    if not isinstance(about, dict):
        raise PackingError("the description is not an object")
    columns: list[Column] = []
    names: set[str] = set()
    content = length = 0
    for name, kind, shape, code in listed:
        if not isinstance(name, str) or name in names:
            raise PackingError("an array has no name of its own")
        names.add(name)
        n, start, same_as = _volume(shape), length, -1
        if type(code) is int:
            if not 0 <= code < len(columns):
                raise PackingError("an array refers to one that does not come before it")
            same_as, stored_as = code, _stored(kind, columns[code].stored_as.str)
            if columns[code].n != n:
                raise PackingError("an array refers to one of another length")
        else:
            stored_as = _stored(kind, code)
            length += n * stored_as.itemsize
        content += n * _DTYPES[kind].itemsize
        columns.append(Column(name, tuple(shape), _DTYPES[kind], stored_as, n, start, same_as))
    return Layout(tuple(columns), content, length, marshal.dumps(about))


_known_layout = lru_cache(maxsize=KNOWN_HEADERS)(_read_layout)


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
    body = _decompressed(frame, layout.content)
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


def _stored(kind: str, code: Any) -> np.dtype[Any]:
    if not isinstance(code, str) or code not in _STORED[kind]:
        raise PackingError(f"{str(code)[:20]!r} is not a width of kind {kind}")
    return _STORED[kind][code]


def compressed(content: bytes, level: int) -> bytes:
    """Return content as a zstandard frame with its size and a checksum."""
    free = _COMPRESSORS.setdefault(level, [])
    try:
        compressor = free.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
    body = compressor.compress(content)
    free.append(compressor)
    return body


def decompressed(frame: bytes, largest: int) -> bytes:
    """Return the content of a frame that `compressed` wrote; its size is compared with the bound before.

    Raises
    ------
    PackingError
        Damaged, or larger.
    """
    try:
        return _decompressed(frame, largest)
    except zstandard.ZstdError as error:
        raise _damaged(error) from error


def _decompressed(frame: bytes, largest: int) -> bytes:
    """Decompress the frame after comparing its size with the bound."""
    size = zstandard.frame_content_size(frame)
    if not 0 <= size <= largest:
        raise PackingError("the content's size is unknown or beyond the limit")
    if not size:
        return b""
    try:
        decompressor = _DECOMPRESSORS.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_CONTENT)
    body = decompressor.decompress(frame, allow_extra_data=False)
    _DECOMPRESSORS.append(decompressor)
    if len(body) != size:
        raise PackingError("the content is not as long as it says")
    return body


def _volume(shape: list[int]) -> int:
    if not isinstance(shape, list) or len(shape) > _MAX_SIDES:
        raise PackingError("an array has no valid shape")
    volume = 1
    for side in shape:
        if type(side) is not int or not 0 <= side <= MAX_CONTENT:
            raise PackingError("an array has no valid shape")
        volume *= side
    return volume


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
