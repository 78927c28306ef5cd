"""Packed panes and histograms in requests: specification and size are compared with bounds before anything is unpacked."""

import base64
from collections.abc import Callable
from typing import Any, TypeVar

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.packing import PackingError
from calibrant_server.service.http.errors import BodyTooLarge

T = TypeVar("T")
# A pane of a batch takes 4 to 15 times its packed bytes in memory.
MAX_EXPANSION = 32
FREE_CONTENT = 24 * 1024 * 1024  # every fine bin of 64 classes: 17 MiB
MAX_PACKED = 100  # each costs milliseconds


class UnpackingBudget:
    """Packed contents of one request, and the bytes that they may take in memory, together."""

    def __init__(self) -> None:
        self.n = self.n_sent = self.n_content = 0

    def take(self, sent: bytes, content_bytes: int) -> None:
        """Count a packed content, or reject the request."""
        self.n += 1
        self.n_sent += len(sent)
        self.n_content += content_bytes
        if self.n > MAX_PACKED:
            raise BodyTooLarge(
                f"Received more than {MAX_PACKED} packed panes or histograms. Send them in several requests."
            )
        limit = max(FREE_CONTENT, MAX_EXPANSION * self.n_sent)
        if self.n_content > limit:
            raise BodyTooLarge(
                f"Received packed content of {self.n_content} bytes when unpacked; expected at most {limit} in this "
                "request. Send it in several requests."
            )


def decoded(packed: Any, pointer: str) -> bytes:
    """Return the bytes of base64; bytes, which no JSON has, are returned as they are."""
    if isinstance(packed, bytes):
        return packed
    if not isinstance(packed, str):
        raise CalibrationInputError(
            [
                Violation(
                    pointer,
                    "base64",
                    "Received another type for packed; expected a string of base64.",
                )
            ]
        )
    try:
        return base64.b64decode(packed, validate=True)
    except ValueError as error:
        raise CalibrationInputError.at(pointer, "base64", str(error)) from error


def unpacked(unpack: Callable[..., T], packed: Any, pointer: str) -> T:
    """Unpack packed content, or raise its error at `pointer`."""
    try:
        return unpack(packed)
    except PackingError as error:
        raise CalibrationInputError.at(pointer, "packed", str(error)) from error
