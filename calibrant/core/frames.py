"""Zstandard frames with their size and a checksum, and the error of packed bytes that cannot be read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import zstandard

MAX_CONTENT = 1 << 28
# Contexts that no thread uses at present: to make one takes longer than to compress a part of a pane. One that raises is dropped.
_COMPRESSORS: dict[int, list[zstandard.ZstdCompressor]] = {}
_DECOMPRESSORS: list[zstandard.ZstdDecompressor] = []
_NO_MEMORY = "not enough memory"  # the wording of the zstandard library
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


class PackingError(ValueError):
    """The bytes are not of this format, are damaged, or are of a newer format than this code reads."""


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
    with damage_as_error():
        size = zstandard.frame_content_size(frame)
        if not 0 <= size <= largest:
            raise PackingError("the content's size is unknown or beyond the limit")
        body = _content(frame) if size else b""
        if len(body) != size:
            raise PackingError("the content is not as long as it says")
        return body


def _content(frame: bytes) -> bytes:
    try:
        decompressor = _DECOMPRESSORS.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_CONTENT)
    body = decompressor.decompress(frame, allow_extra_data=False)
    _DECOMPRESSORS.append(decompressor)
    return body


@contextmanager
def damage_as_error() -> Iterator[None]:
    """Raise what damaged bytes cause as `PackingError`; a lack of memory, which is no damage, as `MemoryError`."""
    try:
        yield
    except PackingError:
        raise
    except _FAULTS as error:
        if isinstance(error, zstandard.ZstdError) and _NO_MEMORY in str(error):
            raise MemoryError(str(error)) from error
        raise PackingError(f"damaged bytes: {str(error)[:200]}") from error
