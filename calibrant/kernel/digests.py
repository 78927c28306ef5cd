"""BLAKE2b digests of many short texts in one call of the kernel: a call of hashlib takes a microsecond each."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from calibrant.kernel.library import library


def digests_of(texts: Sequence[bytes], size: int) -> NDArray[np.uint8]:
    """Return the digest of each text, uint8 (n, size); `size` is 1 to 64.

    >>> digests_of([b"a", b""], 2).tolist() == [list(blake2b(each, digest_size=2).digest()) for each in (b"a", b"")]
    True
    """
    ends = np.fromiter(accumulate(map(len, texts)), np.int64, len(texts))
    return digests_between(b"".join(texts), ends, size)


def digests_between(data: bytes, ends: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    """Return the same of texts that follow each other in `data` and end at `ends`."""
    if not 1 <= size <= 64:
        raise ValueError(f"Received a size of {size}; expected 1 to 64 bytes.")
    n = len(ends)
    if n and (ends[0] < 0 or ends[-1] > len(data) or (np.diff(ends) < 0).any()):
        raise ValueError("Received ends that do not increase within the data.")
    found = library()
    digests = np.empty((n, size), np.uint8)
    if found is not None:
        ends = np.ascontiguousarray(ends, np.int64)
        found.calibrant_kernel_digests(data, ends.ctypes.data, n, size, digests.ctypes.data)
        return digests
    start = 0
    for i, end in enumerate(ends.tolist()):
        own = blake2b(data[start:end], digest_size=size).digest()
        digests[i] = np.frombuffer(own, np.uint8)
        start = end
    return digests
