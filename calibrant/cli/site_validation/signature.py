"""Digest and signature of the contents of a page.

The digest (SHA-256) shows that the contents are those whose digest was noted. The signature (HMAC-SHA256) shows that they were signed with a key
that the verifier has too. Everyone with the key can sign: it does not prove which person did, and it is no qualified electronic signature.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIN_KEY_BYTES = 32


class KeyFileError(ValueError):
    """A key file cannot be used."""


@dataclass(frozen=True)
class Signature:
    """Hexadecimal digest of the contents, and their HMAC; None without a key."""

    sha256: str
    hmac_sha256: str | None = None


def canonical(content: Any) -> bytes:
    """Return the bytes that are signed: JSON with sorted keys and without white space.

    >>> canonical({"b": 1, "a": None})
    b'{"a":null,"b":1}'
    """
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def read_key(path: Path) -> bytes:
    """Return the key in a file, without white space at its ends.

    Raises
    ------
    KeyFileError
        The file cannot be read, or the key is short.
    """
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise KeyFileError(f"The key file {path} cannot be read: {error.strerror}.") from error
    if len(key) < MIN_KEY_BYTES:
        raise KeyFileError(
            f"Received a key of {len(key)} bytes in {path}; expected at least {MIN_KEY_BYTES}. "
            f"Make one: openssl rand -hex 32 > {path}"
        )
    return key


def signed(content: Any, key: bytes | None) -> Signature:
    """Return digest and signature of contents."""
    data = canonical(content)
    code = None if key is None else hmac.new(key, data, hashlib.sha256).hexdigest()
    return Signature(hashlib.sha256(data).hexdigest(), code)


def faults(content: Any, stated: Signature, key: bytes | None) -> list[str]:
    """Return what is wrong with stated digest and signature; a key is compared with the signature."""
    expected = signed(content, key)
    found = []
    if not hmac.compare_digest(expected.sha256, stated.sha256):
        found.append("The digest is not that of the contents: they were changed.")
    if key is not None and stated.hmac_sha256 is None:
        found.append("The page has no signature.")
    elif key is not None and not hmac.compare_digest(
        str(expected.hmac_sha256), str(stated.hmac_sha256)
    ):
        found.append("The signature is not that of this key: the contents or the key differ.")
    return found
