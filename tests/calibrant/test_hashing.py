"""Hashes are the same everywhere and forever, and spread evenly."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch
from calibrant.core.hashing import hash_names, hash_rows, mix, uniform
from tests.calibrant.reference import splitmix


def test_known_values() -> None:
    # The first outputs of SplitMix64 from seed 0, as published with the generator.
    assert mix(np.array([0], np.uint64))[0] == 0xE220A8397B1DCDAF
    assert [int(h) for h in mix(np.array([1, 2**64 - 1], np.uint64))] == [
        splitmix(1),
        splitmix(2**64 - 1),
    ]


def naive_name(name: str) -> int:
    data = name.encode()
    state = splitmix(len(data))
    for start in range(0, len(data), 8):
        state = splitmix(state ^ int.from_bytes(data[start : start + 8].ljust(8, b"\0"), "little"))
    return state


def test_names_hash_alone_and_together_alike() -> None:
    names = ["a", "A", "12345678", "123456789", "x" * 127, "x" * 128, "ü", "", "patient-4"]
    together = [int(h) for h in hash_names(names)]
    assert (
        together
        == [int(hash_names([name])[0]) for name in names]
        == [naive_name(name) for name in names]
    )
    assert len(set(together)) == len(names)
    assert hash_names([]).shape == (0,)


def test_rows_hash_by_value_and_place() -> None:
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [0.0, np.nextafter(1.0, 0.0)]])
    hashes = hash_rows(rows)
    assert hashes[0] == hashes[1]
    assert len(set(hashes.tolist())) == 3
    assert hash_rows(np.asfortranarray(rows)).tolist() == hashes.tolist()
    assert hash_rows(np.zeros((0, 3))).shape == (0,)


def test_uniform_stays_below_one() -> None:
    assert uniform(np.array([0, 2**64 - 1], np.uint64)).tolist() == [0.0, 1.0 - 2.0**-53]


def test_names_spread_evenly() -> None:
    hashes = hash_names([f"img-{i}" for i in range(64_000)])
    for shift in (58, 0, 20):
        parts = np.bincount(
            ((hashes >> np.uint64(shift)) & np.uint64(63)).astype(np.int64), minlength=64
        )
        chi = ((parts - 1000.0) ** 2 / 1000.0).sum()
        assert chi < 63 + 6 * np.sqrt(2 * 63)


@pytest.mark.parametrize("as_counts", [False, True])
def test_the_chosen_rating_is_fair_and_the_same_from_lists_and_counts(as_counts: bool) -> None:
    n = 30_000
    columns = {"probabilities": np.full((n, 3), 1 / 3), "ids": [f"i{k}" for k in range(n)]}
    counts = np.tile([3, 0, 1], (n, 1))
    labels = np.tile([2, 0, 0, 0], (n, 1))
    batch = Batch.from_columns(
        columns | ({"label_counts": counts} if as_counts else {"labels": labels})
    ).batch
    chosen = np.bincount(batch.chosen_rating, minlength=3)
    assert chosen[1] == 0
    assert abs(chosen[2] - n / 4) < 5 * np.sqrt(n * 3 / 16)
    # Pinned: another choice would make old panes and new ones disagree about the same predictions.
    assert chosen.tolist() == [22451, 0, 7549]


def by_numpy(values):
    state = np.zeros(len(values), np.uint64)
    for column in np.ascontiguousarray((values + 0.0).T).view(np.uint64):
        state = mix(state ^ column)
    return state


@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (1, 1), (70, 10), (9, 300)])
def test_the_kernel_hashes_rows_as_numpy_does(shape):
    values = np.random.default_rng(4).normal(size=shape)
    values.flat[:4] = (-0.0, np.nan, np.inf, 5e-324)[: values.size]
    several = (values, values[::2], np.asfortranarray(values), values[:, ::-1])
    found = [hash_rows(each).tolist() for each in several]
    assert found == [by_numpy(each).tolist() for each in several]
