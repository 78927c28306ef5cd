"""Sums of rows under softmax(beta z) by the kernel, against a naive second version in float64."""

import numpy as np
import pytest

import calibrant as cal
from calibrant.accumulators.temperature import BETAS, STEPS_PER_OCTAVE
from calibrant.core.grid import equal_width_bin
from calibrant.kernel import tempered
from calibrant.kernel.tempered import WITH_BRIER_DERIVATIVES, TemperedRows
from tests.oracle.derived import derived_bin

BINS = 10
# Largest error of a sum as a share of its largest absolute value over the betas.
EXACT, NARROW = 1e-13, 2e-6


def relative_logits(scores, is_logits):
    if is_logits:
        return scores - scores.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        return np.log(scores) - np.log(scores.max(axis=1, keepdims=True))


def naive_sums(z, row, class_index, weight, beta):
    possible = np.isfinite(z)
    finite = np.where(possible, z, 0.0)
    power = np.exp(beta * z)
    p = power / power.sum(axis=1, keepdims=True)
    mean, n = (p * finite).sum(axis=1), len(z)
    variance = (p * finite**2).sum(axis=1) - mean**2
    all_weight = np.bincount(row, weight, n)
    counted = weight * possible[row, class_index]
    slope = np.bincount(row, counted, n) * mean - np.bincount(
        row, counted * finite[row, class_index], n
    )
    losses = np.bincount(row, counted, n) * np.log(power.sum(axis=1)) - beta * np.bincount(
        row, counted * finite[row, class_index], n
    )
    square, first, second = ((p**2 * finite**order).sum(axis=1) for order in range(3))
    own, away = p[row, class_index] * weight, finite[row, class_index] - mean[row]
    brier = all_weight * (1.0 + square) - 2.0 * np.bincount(row, own, n)
    brier_slope = 2.0 * (all_weight * (first - square * mean) - np.bincount(row, own * away, n))
    curve = 2.0 * (second - 2.0 * mean * first + mean**2 * square) - square * variance
    rated_curve = np.bincount(row, own * (away**2 - variance[row]), n)
    brier_curve = 2.0 * (all_weight * curve - rated_curve)
    columns = (
        losses, slope, np.bincount(row, counted, n) * variance, slope**2,
        brier, brier_slope, brier_curve, brier_slope**2,
    )  # fmt: skip
    return np.array([column.sum() for column in columns])


def drawn(n, n_classes, is_logits, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, n_classes)) * 3.0
    if not is_logits:
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores[rng.random(scores.shape) < 0.05] = 0.0
        scores[:, 0] += 1e-3
        scores /= scores.sum(axis=1, keepdims=True)
    row = np.sort(rng.integers(0, n, 3 * n))
    return scores, row, rng.integers(0, n_classes, 3 * n), rng.random(3 * n)


@pytest.fixture(params=[True, False], ids=["exact", "narrow"])
def tolerance(request, monkeypatch):
    monkeypatch.setattr(tempered, "MANY_SCORES", 1 << 60 if request.param else 1)
    return EXACT if request.param else NARROW


@pytest.mark.parametrize("is_logits", [True, False])
@pytest.mark.parametrize(("n", "n_classes"), [(1, 2), (7, 3), (500, 2), (1003, 10), (50, 100)])
def test_sums_equal_the_naive_ones(n, n_classes, is_logits, tolerance):
    scores, row, class_index, weight = drawn(n, n_classes, is_logits)
    rows = TemperedRows(scores, row, class_index, weight, is_logits=is_logits, is_binary=False)
    z = relative_logits(scores, is_logits)
    expected = np.array([naive_sums(z, row, class_index, weight, beta) for beta in BETAS])
    scale = np.abs(expected).max(axis=0) + 1e-12
    for doubles_every in (0, STEPS_PER_OCTAVE):
        found = rows.sums(BETAS, WITH_BRIER_DERIVATIVES, doubles_every=doubles_every).sums
        assert (np.abs(found - expected) / scale).max() < tolerance
    exact = rows.sums(BETAS, WITH_BRIER_DERIVATIVES, is_exact=True).sums
    assert (np.abs(exact - expected) / scale).max() < EXACT
    assert rows.n_impossible == int((z[row, class_index] == -np.inf).sum())
    assert rows.weight_all == pytest.approx(weight.sum(), rel=1e-6)


@pytest.mark.parametrize("layout", ["float32", "fortran", "strided", "reversed"])
def test_scores_are_read_where_they_are(layout):
    scores, row, class_index, weight = drawn(203, 5, is_logits=True)
    wide = np.full((406, 10), np.nan)
    wide[::2, ::2] = scores
    given = {
        "float32": scores.astype(np.float32),
        "fortran": np.asfortranarray(scores),
        "strided": wide[::2, ::2],
        "reversed": scores[:, ::-1].copy()[:, ::-1],
    }[layout]
    other = given.astype(np.float64).copy(order="C")
    one, two = (
        TemperedRows(each, row, class_index, weight, is_logits=True, is_binary=False)
        for each in (given, other)
    )
    beta = np.array([0.7])
    assert (one.sums(beta, 2).sums == two.sums(beta, 2).sums).all()


@pytest.mark.parametrize("is_binary", [True, False])
def test_tables_count_the_scores_at_each_beta(is_binary):
    scores, row, class_index, weight = drawn(400, 2, is_logits=False)
    rows = TemperedRows(scores, row, class_index, weight, is_logits=False, is_binary=is_binary)
    betas = np.array([0.5, 1.0, 2.0])
    tables = rows.sums(betas, 0, bins=BINS).tables
    z = relative_logits(scores, False)
    top = np.ones(400, int) if is_binary else scores.argmax(axis=1)
    for beta, table in zip(betas, tables, strict=True):
        power = np.exp(beta * z)
        score = scores if beta == 1.0 else power / power.sum(axis=1, keepdims=True)
        score = score[np.arange(400), top]
        place = equal_width_bin(score, BINS) if beta == 1.0 else derived_bin(score, BINS)
        own = np.bincount(row, weight, 400)
        correct = np.bincount(row, weight * (class_index == top[row]), 400)
        expected = [np.bincount(place, each, BINS) for each in (own, own * score, correct)]
        assert np.allclose(table.T, expected, rtol=1e-12, atol=1e-12)


def test_rows_are_summed_by_the_caller_as_the_kernel_does(tolerance):
    scores, row, class_index, weight = drawn(301, 4, is_logits=True)
    rows = TemperedRows(scores, row, class_index, weight, is_logits=True, is_binary=False)
    found = rows.sums(np.array([1.3]), WITH_BRIER_DERIVATIVES, by_row=True)
    nll, slope, brier_slope = found.rows.sum(axis=1)
    assert np.allclose(
        [nll, slope, brier_slope], found.sums[0, [0, 1, 5]], rtol=tolerance * 10, atol=1e-5
    )
    squares = (found.rows[1:] ** 2).sum(axis=1)
    assert np.allclose(squares, found.sums[0, [3, 7]], rtol=max(tolerance * 10, 1e-12))


@pytest.mark.parametrize("objective", ["nll", "brier"])
@pytest.mark.parametrize("as_logits", [True, False])
def test_the_temperature_of_many_rows_is_that_of_an_independent_search(objective, as_logits):
    """Rows so many that they are stored as float32."""
    rng = np.random.default_rng(3)
    n, n_classes = 40_000, 8
    z = rng.normal(size=(n, n_classes)) * 2.0
    assert z.size >= tempered.MANY_SCORES
    true = np.exp(z / 1.6)
    true /= true.sum(axis=1, keepdims=True)
    labels = (np.cumsum(true, axis=1) < rng.random(n)[:, None]).sum(axis=1)
    p = np.exp(z)
    p /= p.sum(axis=1, keepdims=True)
    given = {"logits": z} if as_logits else {"probabilities": p}
    found = cal.fit_temperature(labels=labels, objective=objective, **given)
    slope = 1 if objective == "nll" else 5
    row, relative = np.arange(n), relative_logits(z, True)

    def sums(beta):
        return naive_sums(relative, row, labels, np.ones(n), beta)

    beta = 1.0 / found.value
    for _ in range(3):
        at = sums(beta)
        beta -= at[slope] / at[slope + 1]
    assert found.value == pytest.approx(1.0 / beta, rel=1e-8)
    at = sums(beta)
    error = np.sqrt(at[slope + 2]) / at[slope + 1] / beta**2
    assert found.standard_error == pytest.approx(error, rel=1e-7)
    place = 0 if objective == "nll" else 4
    assert found.after[objective] == pytest.approx(at[place] / n, rel=1e-8)
    assert found.before[objective] == pytest.approx(sums(1.0)[place] / n, rel=1e-8)
