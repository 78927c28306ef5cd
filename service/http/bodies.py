"""Reading of a request body within limits: its type, its size as sent, its decompressed size.

What the headers show to be invalid is rejected before a byte is read. Memory is reserved for bytes that have arrived,
never for those that were announced, and for decompressed bytes before they are made. A decompressed body must not
exceed `max_decoded_bytes`. Beyond `FREE_EXPANSION`, it must not exceed `MAX_EXPANSION` bytes per byte sent: a larger
expansion is a decompression bomb, not a batch. Its values are bounded likewise, because a value of two bytes takes a
hundred in memory. Arrow is bounded by what it states about itself before it is decoded.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import zstandard
from anyio import from_thread
from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Message

from calibrant.core.errors import Violation
from calibrant.core.extras import pip_install
from calibrant_server.service.http.arrow_sizes import arrow_sizes
from calibrant_server.service.http.parameters import only
from calibrant_server.service.http.problems import (
    BodyTooLarge,
    CodingUnsupported,
    MalformedBody,
    MalformedRequest,
    MediaTypeUnsupported,
)
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.security.admission import Hold
from calibrant_server.service.settings import Settings

JSON = "application/json"
NDJSON = "application/x-ndjson"
MERGE_PATCH = "application/merge-patch+json"
ARROW = "application/vnd.apache.arrow.stream"
NPY = "application/x-npy"
CSV = "text/csv"
PANE = "application/x-calibrant-pane"
BINARY = (ARROW, NPY, PANE)
# Packages of the extra `ipc`; without them a service takes no Arrow streams.
ARROW_PACKAGES = ("nanoarrow", "pyarrow")
CODINGS = ("gzip", "zstd")
# Of a body of text that is parsed in a thread. One of this size takes about a millisecond, in which the event loop serves no other request.
LARGE_BYTES = 16 * 1024
FREE_EXPANSION = 4 * 1024 * 1024
# Decompressed bytes per byte sent. Numbers as text compress to a tenth. Parsing takes several times the decompressed
# bytes: at a larger expansion, a body of 1 MB would take more than 100 MB.
MAX_EXPANSION = 16
FREE_VALUES = 400_000  # beyond them, at most one value per byte sent
DECODED_STEP = 1024 * 1024  # reserved and decompressed at a time
MAX_FRAMES = 16  # consecutive gzip members or zstd frames
ZSTD_WINDOW = 8 * 1024 * 1024  # maximum of RFC 9659 for an HTTP body
ZSTD_STEP = 1024  # input bytes per step: they expand to at most 256 blocks of 128 KiB
# Types of bodies of earlier versions, and how to send the same numbers.
_REMOVED = {
    "application/vnd.apache.parquet": "read the file with `calibrant score` or pyarrow, and send an Arrow stream",
    "application/x-npz": "send the arrays one after the other as application/x-npy, or read the file with `calibrant score`",
}


@dataclass(frozen=True)
class Body:
    """A complete body, decompressed; `sent_bytes` is its size before."""

    media_type: str
    data: bytes
    sent_bytes: int = 0

    @property
    def is_large(self) -> bool:
        """Whether it is parsed in a thread; for a small body of text the thread costs more than the parsing."""
        return len(self.data) >= LARGE_BYTES or self.media_type in BINARY


async def read_body(
    request: Request,
    settings: Settings,
    hold: Hold,
    takes: Sequence[str] | None = (JSON, NDJSON),
) -> Body:
    """Return the body of `request`, or raise its problem. With `takes` None, its type is not looked at."""
    media_type = "" if takes is None else content_type(request, takes)
    coding = content_coding(request)
    announced_length(request, settings.max_body_bytes)
    hold.claim(_tenant(request))
    sent = data = await _received(request, settings, hold)
    if coding is not None:
        data = await decoded(sent, coding, settings, hold, media_type in BINARY)
    if media_type == ARROW:
        limit = decoded_limit(len(sent), settings)
        sizes = await in_thread(arrow_sizes, data, settings.max_rows, limit)
        hold.reach(hold.n_bytes + sizes.n_bytes)
    return Body(media_type, data, len(sent))


def _tenant(request: Request) -> str | None:
    """Return the tenant of a request; None without keys, where there is only one."""
    caller = request.scope.get("caller")
    return None if caller is None or request.app.state.keyring.is_open else caller.tenant


def content_type(request: Request, takes: Sequence[str]) -> str:
    """Return the media type of the body, one of `takes`."""
    media_type, _, parameters = (only(request, "content-type") or "").partition(";")
    media_type = media_type.strip().lower()
    if media_type not in takes:
        named = media_type or "no Content-Type"
        instead = f" Instead, {_REMOVED[named]}." if named in _REMOVED else ""
        raise MediaTypeUnsupported(f"Received {named}; expected {' or '.join(takes)}.{instead}")
    if media_type == ARROW and not reads_arrow():
        raise MediaTypeUnsupported(
            f"Received {media_type}, which this service cannot read without the extra `ipc`. Send JSON, or ask the "
            f"operator to install it: {pip_install('server,ipc')}"
        )
    charset = parameters.lower().replace(" ", "").partition("charset=")[2].split(";")[0].strip('"')
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        raise MediaTypeUnsupported(f"Received charset {charset}; expected UTF-8.")
    return media_type


@cache
def reads_arrow() -> bool:
    """Return whether the packages that read Arrow streams are installed."""
    return all(find_spec(name) is not None for name in ARROW_PACKAGES)


def content_coding(request: Request) -> str | None:
    """Return the coding of the body; none if it is not encoded."""
    coding = (only(request, "content-encoding") or "").strip().lower()
    if coding in ("identity", ""):
        return None
    if coding not in CODINGS:
        raise CodingUnsupported(f"Received coding {coding}; expected {' or '.join(CODINGS)}.")
    return coding


def announced_length(request: Request, limit: int) -> int:
    """Return the Content-Length, 0 if there is none; reject a body over the limit."""
    text = request.headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise MalformedRequest(
            "Received a Content-Length that is not a number of bytes. Correct the header."
        )
    if len(text) > 18 or int(text) > limit:
        raise too_large(limit)
    return int(text)


def too_large(limit: int) -> BodyTooLarge:
    """Return the problem of a body over `limit` bytes."""
    return BodyTooLarge(
        f"Received a body of more than {in_bytes(limit)}; expected at most that. Send it in several batches."
    )


def in_bytes(limit: int) -> str:
    """Return a limit in bytes, with the number of MiB if it is whole.

    >>> in_bytes(33_554_432), in_bytes(1000)
    ('33,554,432 bytes (32 MiB)', '1,000 bytes')
    """
    mebibytes, rest = divmod(limit, 2**20)
    return f"{limit:,} bytes" + ("" if rest else f" ({mebibytes} MiB)")


async def _received(request: Request, settings: Settings, hold: Hold) -> bytes:
    """Return the body as sent."""
    limit = settings.max_body_bytes
    chunks: list[bytes] = []
    size, more_body = 0, True
    while more_body:
        message = await request.receive()
        chunk, more_body = _chunk(message), message.get("more_body", False)
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        hold.reach(size)
        chunks.append(chunk)
    return b"".join(chunks)


def _chunk(message: Message) -> bytes:
    """Return the bytes of a part of a body."""
    if message["type"] == "http.disconnect":
        raise ClientDisconnect()
    chunk: bytes = message.get("body", b"")
    return chunk


async def decoded(
    sent: bytes, coding: str, settings: Settings, hold: Hold, is_binary: bool = False
) -> bytes:
    """Return a body without its coding, and hold room for it; or raise its problem."""
    n_held, limit = hold.n_bytes, decoded_limit(len(sent), settings)

    def reserve(n_decoded: int) -> None:
        from_thread.run_sync(hold.reach, n_held + n_decoded)

    return await in_thread(decompressed, sent, coding, limit, reserve, is_binary)


def decoded_limit(n_sent: int, settings: Settings) -> int:
    """Return how many bytes a compressed body of `n_sent` may become."""
    return min(settings.max_decoded_bytes, max(FREE_EXPANSION, n_sent * MAX_EXPANSION))


def decompressed(
    data: bytes,
    coding: str,
    limit: int,
    reserve: Callable[[int], None] = lambda _: None,
    is_binary: bool = False,
) -> bytes:
    """Return `data` without its coding; call `reserve` with each size before it is reached.

    The values of a text are counted by its commas.

    Raises
    ------
    BodyTooLarge
        It decompresses to more than `limit` bytes, or to more values than its size allows.
    MalformedBody
        It is not in that coding, or ends early.
    """
    step = {"gzip": _gzip_member, "zstd": _zstd_frame}[coding]
    decoded, max_values = bytearray(), max(FREE_VALUES, len(data))
    try:
        for _ in range(MAX_FRAMES):
            data = step(data, decoded, limit, reserve)
            if len(decoded) > limit:
                detail = f"Received a body of more than {in_bytes(limit)} when decompressed; expected at most that. Send several batches."
                raise BodyTooLarge(detail)
            if not data:
                return bytes(decoded) if is_binary else _of_bounded_values(decoded, max_values)
    except (zlib.error, zstandard.ZstdError) as error:
        raise undecodable(
            coding,
            f"Received a body that is not valid {coding} ({error}). Compress it again or correct Content-Encoding.",
        ) from error
    detail = f"Received more than {MAX_FRAMES} {coding} frames; expected at most {MAX_FRAMES}. Compress the body as one frame."
    raise undecodable(coding, detail)


def _of_bounded_values(decoded: bytearray, max_values: int) -> bytes:
    """Return the bytes, or reject them if they hold too many values for what was sent."""
    if decoded.count(b",") > max_values:
        detail = f"Received more than {max_values} values when decompressed; expected at most {max_values}. Send several batches."
        raise BodyTooLarge(detail)
    return bytes(decoded)


def undecodable(coding: str, detail: str) -> MalformedBody:
    """Return the problem of a body that is not in its declared coding."""
    return MalformedBody(detail, errors=[Violation("", coding, detail)])


def _gzip_member(
    data: bytes, decoded: bytearray, limit: int, reserve: Callable[[int], None]
) -> bytes:
    """Append one member to `decoded`, at most one byte over the limit; return the rest of the input."""
    member = zlib.decompressobj(wbits=31)
    while not member.eof and len(decoded) <= limit:
        size = min(DECODED_STEP, limit + 1 - len(decoded))
        reserve(len(decoded) + size)
        piece = member.decompress(data, size)
        if not piece and not member.eof:
            raise undecodable(
                "gzip",
                "Received a gzip body that ends early; expected a complete one. Send it again.",
            )
        decoded += piece
        data = member.unconsumed_tail
    return member.unused_data


def _zstd_frame(
    data: bytes, decoded: bytearray, limit: int, reserve: Callable[[int], None]
) -> bytes:
    """Append one frame to `decoded`, slightly over the limit at most; return the rest of the input."""
    frame = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
    view, reserved = memoryview(data), len(decoded)
    for start in range(0, len(data), ZSTD_STEP):
        if len(decoded) >= reserved:
            reserved = len(decoded) + DECODED_STEP
            reserve(reserved)
        decoded += frame.decompress(view[start : start + ZSTD_STEP])
        if frame.eof:
            return frame.unused_data + data[start + ZSTD_STEP :]
        if len(decoded) > limit:
            return b""
    raise undecodable(
        "zstd", "Received a zstd body that ends early; expected a complete one. Send it again."
    )
