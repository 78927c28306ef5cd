"""Which rows four bytes a score restore: those that were float32, and those that are float32 divided by their sum."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from calibrant.core.float32 import BLOCK, narrow_scores


def forms(k, n=400):
    """Rows by how they were made: scores, whether these are logits, and what share of them four bytes restore."""
    rng = np.random.default_rng(k)
    softmax = rng.dirichlet(np.full(k, 0.3), n)
    sent = softmax.astype(np.float32).astype(np.float64)
    divided = sent / sent.sum(axis=1, keepdims=True)
    logits = rng.normal(scale=5, size=(n, k))
    yield "divided", divided, False, 1.0
    yield "sent", sent, False, 1.0
    yield "float64", softmax, False, 0.0
    yield "one-hot", np.eye(k)[rng.integers(0, k, n)], False, 1.0
    yield "tiny", 2.0**-140 * rng.integers(1, 9, (n, k)), False, 1.0
    yield "ties", np.full((n, k), 1 / k), False, 1.0
    yield "off by a bit", np.nextafter(divided, 2.0), False, None
    yield "logits", logits, True, 0.0
    yield "float32 logits", logits.astype(np.float32).astype(np.float64), True, 1.0
    yield "large logits", 1e300 * logits, True, 0.0


def restored(narrowed):
    fits, narrow, totals = narrowed
    return narrow[fits].astype(np.float64) / totals[fits, None]


@pytest.mark.parametrize("k", [2, 3, 7, 8, 9, 10, 33, 129, 300])
def test_four_bytes_restore_the_bits_of_what_was_float32(k):
    for name, scores, is_logits, share in forms(k):
        found = narrow_scores(scores, np.full(len(scores), is_logits))
        fits, _, totals = found
        assert share is None or abs(fits.mean() - share) < 0.05, name
        assert restored(found).tobytes() == scores[fits].tobytes(), name
        assert not is_logits or (totals == 1.0).all()
        assert (totals[~fits] == 1.0).all()


@pytest.mark.parametrize("k", [3, 10, 129])
def test_the_values_that_were_sent_are_found_with_their_sum(k):
    sent = np.random.default_rng(k).dirichlet(np.full(k, 0.3), 300).astype(np.float32)
    wide = sent.astype(np.float64)
    sums = wide.sum(axis=1)
    _, narrow, totals = narrow_scores(wide / sums[:, None], np.zeros(300, np.bool_))
    own = totals != 1.0
    assert own.mean() > 0.8
    assert_array_equal(narrow[own], sent[own])
    assert_array_equal(totals[own], sums[own])


def test_many_rows_narrow_as_each_of_them_does_and_no_rows_as_none():
    made = [(scores, is_logits) for _, scores, is_logits, _ in forms(7)]
    n_times = 2 * BLOCK // (7 * sum(len(scores) for scores, _ in made)) + 1
    scores = np.concatenate([scores for scores, _ in made] * n_times)
    logits = np.concatenate([np.full(len(each), is_logits) for each, is_logits in made] * n_times)
    order = np.random.default_rng(0).permutation(len(scores))
    together = narrow_scores(scores, logits)
    for one, other in zip(narrow_scores(scores[order], logits[order]), together, strict=True):
        assert_array_equal(one, other[order])
    contiguous = narrow_scores(np.asfortranarray(scores[:20]), logits[:20])
    for one, other in zip(contiguous, together, strict=True):
        assert_array_equal(one, other[:20])
    assert [len(each) for each in narrow_scores(np.zeros((0, 3)), np.zeros(0, np.bool_))] == [0] * 3
