"""Four bytes a score by the kernel against numpy."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from benchmarks.ablation.narrow import narrowed as by_numpy
from calibrant.core.float32 import narrow_scores


def rows(k, n=400):
    """Rows sent as float32 and divided by their sum, float32, float64, with zeros, with ties, tiny, and logits."""
    rng = np.random.default_rng(k)
    softmax = rng.dirichlet(np.full(k, 0.3), n)
    sent = softmax.astype(np.float32).astype(np.float64)
    tiny = np.full((n, k), 2.0**-140) * rng.integers(1, 9, (n, k))
    ties = np.full((n, k), 1 / k)
    off_by_a_bit = np.nextafter(sent / sent.sum(axis=1, keepdims=True), 2.0)
    probabilities = [
        *(sent / sent.sum(axis=1, keepdims=True), sent, softmax, ties, ties.astype(np.float32)),
        *(np.eye(k)[rng.integers(0, k, n)], tiny, off_by_a_bit),
    ]
    logits = rng.normal(scale=5, size=(n, k))
    both = [*probabilities, logits, logits.astype(np.float32), 1e300 * logits]
    is_logits = [np.full(n, i >= len(probabilities)) for i in range(len(both))]
    order = rng.permutation(n * len(both))
    return np.concatenate(both)[order].astype(np.float64), np.concatenate(is_logits)[order]


@pytest.mark.parametrize("k", [2, 3, 7, 8, 9, 10, 33, 129, 300])
def test_the_kernel_narrows_to_the_bits_of_numpy(k):
    scores, logits = rows(k)
    found = narrow_scores(scores, logits)
    expected = by_numpy(scores, logits)
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one, other, strict=True)
    fits, _, totals = found
    assert 0.2 < fits.mean() < 0.9 and 0.05 < (totals != 1.0).mean() < 0.5


def test_columns_that_are_not_contiguous_and_no_rows_narrow_too():
    scores, logits = rows(4, 20)
    for one, other in zip(
        narrow_scores(np.asfortranarray(scores), logits), narrow_scores(scores, logits), strict=True
    ):
        assert_array_equal(one, other)
    assert [len(each) for each in narrow_scores(np.zeros((0, 3)), np.zeros(0, np.bool_))] == [
        0,
        0,
        0,
    ]
