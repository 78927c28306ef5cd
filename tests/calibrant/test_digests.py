"""Digests of many texts: those of hashlib."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest

from calibrant.kernel.digests import digests_of


@pytest.mark.parametrize("size", [1, 2, 8, 16, 20, 64])
def test_digests_are_those_of_hashlib(size):
    rng = np.random.default_rng(size)
    lengths = [*range(10), 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 0, 0]
    texts = [rng.bytes(n) for n in lengths]
    expected = [list(blake2b(text, digest_size=size).digest()) for text in texts]
    assert digests_of(texts, size).tolist() == expected
    assert digests_of([], size).shape == (0, size)


@pytest.mark.parametrize("size", [0, 65])
def test_an_invalid_size(size):
    with pytest.raises(ValueError, match="size"):
        digests_of([b"a"], size)
