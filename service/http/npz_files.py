"""Members of a `.npz` file: what the file states is bounded before a byte is decompressed, and decompression ends at what was stated.

Only the central directory is read with `zipfile`. Its place and size are checked first: `zipfile` makes an object for each entry.
Members are stored or deflated, as `numpy.savez` and `numpy.savez_compressed` write them.
"""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from typing import NoReturn
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from calibrant.core.errors import Violation
from calibrant_server.service.http.errors import BodyTooLarge, MalformedBody

MAX_ARRAYS = 64
# A name of an array takes at most some hundred bytes.
_MAX_DIRECTORY_BYTES = 64 * 1024
_END, _ZIP64_LOCATOR, _LOCAL = b"PK\x05\x06", b"PK\x06\x07", b"PK\x03\x04"
_END_BYTES, _LOCATOR_BYTES, _LOCAL_BYTES = 22, 20, 30
_IS_ENCRYPTED = 0x1
SUFFIX = ".npy"


@dataclass(frozen=True)
class NpzSizes:
    """What the arrays of a file take once decompressed."""

    n_bytes: int


def npz_sizes(data: bytes, max_rows: int, max_bytes: int) -> NpzSizes:
    """Return the bytes that a file states for its arrays.

    Raises
    ------
    MalformedBody
        It is no file of `numpy.savez`.
    BodyTooLarge
        It has too many arrays, or they take more than `max_bytes`. Rows are checked with each array's header.
    """
    n_bytes = sum(each.file_size for each in npz_members(data).values())
    if n_bytes > max_bytes:
        raise BodyTooLarge(
            f"Received arrays of {n_bytes} bytes when decompressed; expected at most {max_bytes}. Send several batches."
        )
    return NpzSizes(n_bytes)


def npz_members(data: bytes) -> dict[str, ZipInfo]:
    """Return the members of a file by the names of their arrays."""
    _check_directory(data)
    try:
        with ZipFile(io.BytesIO(data)) as file:
            entries = file.infolist()
    except (BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error) as error:
        _reject(f"its directory cannot be read ({str(error)[:120]})")
    if len(entries) > MAX_ARRAYS:
        raise BodyTooLarge(
            f"Received {len(entries)} arrays; expected at most {MAX_ARRAYS}. Leave out what is not scored."
        )
    found: dict[str, ZipInfo] = {}
    for entry in entries:
        name = entry.filename.removesuffix(SUFFIX)
        shown = repr(entry.filename[:60])
        if name == entry.filename or "/" in name:
            _reject(f"member {shown} is not an array NAME{SUFFIX}")
        if name in found:
            _reject(f"member {shown} is there more than once")
        if entry.flag_bits & _IS_ENCRYPTED:
            _reject(f"member {shown} is encrypted")
        if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            _reject(f"member {shown} is neither stored nor deflated")
        found[name] = entry
    return found


def extracted(data: bytes, member: ZipInfo) -> bytes:
    """Return the bytes of a member; reject it if they are not those that the file states.

    Raises
    ------
    MalformedBody
    """
    shown = repr(member.filename[:60])
    head = data[member.header_offset : member.header_offset + _LOCAL_BYTES]
    if member.header_offset < 0 or len(head) < _LOCAL_BYTES or not head.startswith(_LOCAL):
        _reject(f"member {shown} has no header where the directory says")
    begin = member.header_offset + _LOCAL_BYTES + sum(struct.unpack("<HH", head[26:30]))
    stored = memoryview(data)[begin : begin + member.compress_size]
    if len(stored) != member.compress_size:
        _reject(f"member {shown} ends early")
    is_deflated = member.compress_type == ZIP_DEFLATED
    found = _inflated(stored, member.file_size, shown) if is_deflated else bytes(stored)
    if len(found) != member.file_size:
        _reject(f"member {shown} has other than the {member.file_size} bytes that it states")
    if zlib.crc32(found) != member.CRC:
        _reject(f"member {shown} has another checksum than it states")
    return found


def _inflated(stored: memoryview, stated: int, shown: str) -> bytes:
    """Return the decompressed bytes, at most one more than stated."""
    stream = zlib.decompressobj(wbits=-15)
    try:
        found = stream.decompress(stored, stated + 1)
    except zlib.error as error:
        _reject(f"member {shown} cannot be decompressed ({error})")
    if len(found) <= stated and not stream.eof:
        _reject(f"member {shown} ends early")
    return found


def _check_directory(data: bytes) -> None:
    """Check that the end record is the last of the file, and states a directory of bounded size."""
    end = data[-_END_BYTES:]
    if len(end) < _END_BYTES or not end.startswith(_END) or end[-2:] != b"\x00\x00":
        _reject("it does not end with the record of a zip file without a comment")
    locator = data[-_END_BYTES - _LOCATOR_BYTES : -_END_BYTES]
    (n_bytes,) = struct.unpack("<L", end[12:16])
    if locator.startswith(_ZIP64_LOCATOR) or n_bytes > _MAX_DIRECTORY_BYTES:
        raise BodyTooLarge(
            f"Received a directory of more than {_MAX_DIRECTORY_BYTES} bytes; expected at most {MAX_ARRAYS} arrays. Leave out what is not scored."
        )


def _reject(reason: str) -> NoReturn:
    detail = f"Received a body that is not a file of numpy.savez: {reason}. Write it again, or correct Content-Type."
    raise MalformedBody(detail, errors=[Violation("", "npz", detail)])
