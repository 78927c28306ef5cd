"""Arrays of several packed bytes, read together, against reading each alone."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from calibrant.core import packed_together
from calibrant.core.packed_together import arrays_together
from calibrant.core.packing import PackingError, opened, pack, unpack
from calibrant.kernel import packed_arrays, status
from calibrant.kernel.library import library

KINDS = "bigru"


def column(rng: np.random.Generator, kind: str) -> np.ndarray:
    """Return an array that packs in one of the widths of its kind; some are empty."""
    n, reach = int(rng.integers(0, 30)), 2 ** int(rng.integers(1, 62))
    if kind == "i":
        return rng.integers(-reach, reach, n)
    if kind == "f":
        return rng.integers(-min(reach, 2**52), min(reach, 2**52), n).astype(np.float64)
    if kind == "r":
        return rng.standard_normal(n)
    if kind == "g":
        return rng.random((n, 3)).astype(np.float32)
    return rng.integers(0, 250, n).astype(np.uint8 if kind == "b" else np.uint64)


def several(seed: int) -> list[bytes]:
    """Return packed arrays of the same names, of which each has some; some equal an earlier one."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(25):
        arrays = {kind: column(rng, kind) for kind in KINDS + "f" if rng.random() < 0.8}
        if "i" in arrays:
            arrays |= {"same": arrays["i"].copy(), "last": np.array([-(2**63), 2**63 - 1, number])}
        found.append(pack(arrays, {"number": number}))
    return found


@pytest.mark.parametrize("by_kernel", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_arrays_are_those_of_each_one_after_the_other(seed: int, by_kernel: bool) -> None:
    if by_kernel and status().filled_by != "kernel":
        pytest.skip("no kernel")
    packed = several(seed)
    alone = [unpack(data)[0] for data in packed]
    with patch.object(packed_arrays, "library", library if by_kernel else lambda: None):  # fmt: skip
        found = arrays_together([opened(data) for data in packed])
    assert set(found) == {name for each in alone for name in each}
    for name, together in found.items():
        expected = np.concatenate([each[name].reshape(-1) for each in alone if name in each])
        assert_array_equal(together, expected, strict=True)


def test_nothing_packed_has_no_arrays() -> None:
    assert arrays_together([]) == {}
    assert arrays_together([opened(pack({}, {}))]) == {}


def test_arrays_of_a_name_have_one_type() -> None:
    one, other = pack({"a": np.zeros(3)}, {}), pack({"a": np.zeros(3, np.int64)}, {})
    with pytest.raises(PackingError, match="different types"):
        arrays_together([opened(one), opened(other)])


def test_long_headers_are_not_remembered() -> None:
    packed_together._known_table.cache_clear()
    arrays = {f"a{'x' * 40}{i}": np.arange(i) for i in range(40)}
    found = arrays_together([opened(pack(arrays, {}))] * 2)
    assert packed_together._known_table.cache_info().currsize == 0
    assert_array_equal(found[f"a{'x' * 40}9"], [*range(9), *range(9)])
