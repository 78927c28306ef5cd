"""Security headers of responses: by media type, and for pages of other sites that may embed them.

A JSON response needs nothing, so its policy allows nothing. Figures carry their own styles: under that policy a browser
would show them in black.
"""

from __future__ import annotations

from collections.abc import Sequence

Headers = list[tuple[bytes, bytes]]
SVG = b"image/svg+xml"
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}
CORS_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
CORS_REQUEST_HEADERS = (
    "Accept", "Authorization", "Content-Encoding", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match",
    "Prefer", "Traceparent", "X-Request-Id",
)  # fmt: skip
CORS_RESPONSE_HEADERS = (
    "Content-Disposition", "ETag", "Link", "Location", "Preference-Applied", "Retry-After", "Traceparent", "X-Request-Id",
)  # fmt: skip


class SecurityHeaders:
    """Headers that every response gets unless its route sets them.

    Parameters
    ----------
    allowed_origins : origins of pages that may read and embed responses
    """

    def __init__(self, allowed_origins: Sequence[str] = ()) -> None:
        ancestors = " ".join(allowed_origins).encode() or b"'none'"
        self._ancestors = b"frame-ancestors " + ancestors
        self._resources = b"cross-origin" if allowed_origins else b"same-origin"

    def added_to(self, headers: Headers) -> Headers:
        """Return the headers of a response with those that it lacks."""
        present = {name.lower(): value for name, value in headers}
        styles = b" style-src 'unsafe-inline';" if _is_svg(present) else b""
        policy = b"default-src 'none';" + styles + b" " + self._ancestors
        due = HEADERS | {
            b"content-security-policy": policy,
            b"cross-origin-resource-policy": self._resources,
        }
        return [*headers, *((name, due[name]) for name in due if name not in present)]


def _is_svg(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == SVG
