"""Signed ranks of paired cases where differences are equal but for rounding."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import rankdata

from calibrant.segmentation.case_comparison import compare_cases


def exact_p(tenths: np.ndarray) -> float:
    """Over all patterns of signs, with mean ranks of ties."""
    moved = tenths[tenths != 0]
    ranks = rankdata(np.abs(moved))
    middle = ranks.sum() / 2.0
    sums = np.array([np.dot(ranks, signs) for signs in product((0, 1), repeat=len(moved))])
    return float(np.mean(np.abs(sums - middle) >= abs(ranks[moved > 0].sum() - middle) - 1e-9))


def test_differences_that_rounding_parts_are_tied() -> None:
    against = np.array([3, 6, 1, 7, 2, 5, 8, 4, 9, 1])
    tenths = np.array([1, 1, 1, -1, 2, -2, 1, 3, 0, 2])
    mine = (against + tenths) / 10.0
    assert len(set(np.abs(mine - against / 10.0).tolist())) > len(set(np.abs(tenths).tolist()))
    names = [f"c{i}" for i in range(10)]
    found = compare_cases(
        dict(zip(names, mine.tolist(), strict=True)),
        dict(zip(names, (against / 10.0).tolist(), strict=True)),
    )
    assert found["wilcoxon_p"] == pytest.approx(exact_p(tenths), abs=1e-12)
