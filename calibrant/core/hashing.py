"""Fixed 64-bit hashes of rows and names, the same on every machine and in every batch.

They choose a rating of a prediction, a replicate of a unit, and a place in the stored sample. Not for security.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from calibrant.kernel.library import library

U64 = NDArray[np.uint64]
_SEED = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_M3, _M4 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


def mix(x: U64) -> U64:
    """Apply Steele, Lea and Flood's SplitMix64 finaliser: every input bit reaches every output bit."""
    x = np.add(x, _SEED)
    x ^= x >> np.uint64(30)
    x *= _M1
    x ^= x >> np.uint64(27)
    x *= _M2
    x ^= x >> np.uint64(31)
    return x


def fmix(x: U64) -> U64:
    """Apply Appleby's MurmurHash3 finaliser: a second mixing function, for hashes of 128 bits. It maps 0 to 0."""
    x = x ^ (x >> np.uint64(33))
    x *= _M3
    x ^= x >> np.uint64(33)
    x *= _M4
    x ^= x >> np.uint64(33)
    return x


def hash_rows(values: NDArray[np.float64]) -> U64:
    """Hash each row's float64 bits; minus zero counts as zero. (n, m) to uint64 (n,)."""
    rows, found = np.ascontiguousarray(values, np.float64), np.zeros(len(values), np.uint64)
    library().calibrant_kernel_hash_rows(rows.ctypes.data, *rows.shape, found.ctypes.data)
    return found


def hash_names(names: Sequence[str]) -> U64:
    """Hash each name's UTF-8 bytes, independent of the other names of the batch. (n,) to uint64 (n,)."""
    if len(names) == 0:
        return np.zeros(0, np.uint64)
    encoded = [name.encode() for name in names]
    length = np.fromiter(map(len, encoded), np.int64, len(encoded))
    width = max(8, -(-int(length.max()) // 8) * 8)
    words = np.array(encoded, dtype=f"S{width}").view("<u8").reshape(len(encoded), width // 8)
    state = mix(length.astype(np.uint64))
    for j in range(width // 8):
        state = np.where(length > 8 * j, mix(state ^ words[:, j]), state)
    return state


def occurrences(hashes: U64) -> NDArray[np.int64]:
    """Number each value among its equals, from 0, in their order.

    >>> occurrences(np.array([7, 5, 7, 7], np.uint64)).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(hashes, kind="stable")
    first = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order][:1]) != 0)
    numbers = np.empty(len(hashes), np.int64)
    numbers[order] = np.arange(len(hashes)) - np.repeat(first, np.diff(first, append=len(hashes)))
    return numbers


def uniform(hashes: U64) -> NDArray[np.float64]:
    """Return a number in [0, 1) from each hash's upper 53 bits."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def digests_of(texts: Sequence[bytes], size: int) -> NDArray[np.uint8]:
    """Return the BLAKE2b digest of each text, uint8 (n, size); `size` is 1 to 64.

    >>> digests_of([b"a", b""], 2).shape
    (2, 2)
    """
    digests = b"".join(blake2b(text, digest_size=size).digest() for text in texts)
    return np.frombuffer(digests, np.uint8).reshape(-1, size)
