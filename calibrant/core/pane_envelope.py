"""Header of a packed pane, read before its parts are unpacked: a receiver compares specification and size with its bounds first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calibrant.core.documents import Header
from calibrant.core.packing import PackingError, described, pack, packed_length, unpack
from calibrant.core.spec import PaneSpec

# Format 2 added the digest; panes of format 1 are read without one.
FORMAT = 2
READ_FORMATS = (1, 2)
MAX_BYTES = 1 << 28


@dataclass(frozen=True)
class PaneEnvelope:
    """Specification of a pane, and each of its parts as bytes, by name."""

    spec: PaneSpec
    parts: Mapping[str, bytes]

    @property
    def content_bytes(self) -> int:
        """Bytes that the arrays of all parts take in memory once they are unpacked.

        Raises
        ------
        PackingError
            The header of a part is damaged.
        """
        return sum(described(part)[1] for part in self.parts.values())

    def pack(self) -> bytes:
        """Return the complete pane as bytes."""
        sizes = {name: len(data) for name, data in self.parts.items()}
        about = {"pane": FORMAT, "spec": self.spec.to_dict(), "parts": sizes}
        return pack({}, about) + b"".join(self.parts.values())

    @classmethod
    def read(cls, data: bytes) -> PaneEnvelope:
        """Read the specification and divide the bytes into parts.

        Raises
        ------
        PackingError
            Not a packed pane, damaged, too large or of a newer format.
        """
        if len(data) > MAX_BYTES:
            raise PackingError("a packed pane is larger than 256 MiB")
        head = packed_length(data)
        about = unpack(data[:head], largest=0)[1]
        try:
            spec, sizes = _outline(about)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            if isinstance(error, PackingError):
                raise
            raise PackingError(f"not a packed pane: {str(error)[:200]}") from error
        parts: dict[str, bytes] = {}
        for name, size in sizes.items():
            parts[name] = data[head : head + size]
            head += size
        if head != len(data) or any(size < 0 for size in sizes.values()):
            raise PackingError("the parts do not fill the bytes")
        return cls(spec, parts)


def _outline(about: Header) -> tuple[PaneSpec, dict[str, int]]:
    if about["pane"] not in READ_FORMATS:
        detail = f"pane format {str(about['pane'])[:20]} is not one that this version reads {READ_FORMATS}"
        raise PackingError(detail)
    sizes = {str(name): int(size) for name, size in about["parts"].items()}
    return PaneSpec.from_dict(about["spec"]), sizes
