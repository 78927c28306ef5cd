"""The closed form of the null of isotonic gains against drawn labels: several sizes, scores, weights and units."""

import numpy as np
import pytest

from benchmarks.isotonic_null import cells_of, compared, cumulants, scores
from calibrant import Batch, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.inference import isotonic_null as module
from calibrant.inference.isotonic_null import isotonic_null
from calibrant.inference.null_reference import independent
from calibrant.metrics import compute_metrics
from tests.calibrant.panes import pane_of

slow = pytest.mark.slow
SETTINGS = [
    ("uniform", 48_000),
    ("top of ten classes", 5000),
    pytest.param("uniform", 5000, marks=slow),
    pytest.param("top of ten classes", 48_000, marks=slow),
    pytest.param("middle", 48_000, marks=slow),
    pytest.param("confident", 5000, marks=slow),
    pytest.param("confident", 48_000, marks=slow),
    pytest.param("two decimals", 5000, marks=slow),
]
# The quantile of so many draws has a standard error of .5 % to .7 %, that of 200 draws 1.3 % to 3 %.
DRAWS = 3000


@pytest.mark.parametrize(("name", "n"), SETTINGS)
def test_mean_and_quantile_are_those_of_draws(name, n):
    mean, q95, error = compared(cells_of(scores(n, np.random.default_rng(3))[name]), DRAWS)
    assert abs(mean - 1.0) < 0.015
    assert abs(q95 - 1.0) < max(0.015, 3.0 * error)


@pytest.mark.parametrize("unit_size", [pytest.param(3, marks=slow), 20])
def test_dependent_units_are_fewer_trials(unit_size):
    score = np.random.default_rng(4).random(20_000)
    cells = independent(cells_of(score, unit_size))
    mean, q95, _ = compared(cells, DRAWS)
    assert abs(mean - 1.0) < 0.025 and abs(q95 - 1.0) < 0.03


def test_uneven_weights_are_fewer_cells():
    rng = np.random.default_rng(5)
    score, weights = rng.random(20_000), rng.lognormal(0.0, 1.0, 20_000)
    mean, q95, _ = compared(cells_of(score, weights=weights), DRAWS)
    assert abs(mean - 1.0) < 0.025 and abs(q95 - 1.0) < 0.03
    assert isotonic_null(cells_of(score, weights=weights**4)) is None


@pytest.mark.parametrize("step", [1 / 16, 2.0, pytest.param(0.01, marks=slow)])
def test_constants_are_those_of_equal_steps(step):
    n = int(60 / min(1.0, step ** (2 / 3)))
    mean, variance, _ = cumulants(step, n, 4000, np.random.default_rng(6))
    row = module._CUMULANTS[np.flatnonzero(np.isclose(module._STEPS, step))[0]]
    expected = n * min(1.0, step ** (2 / 3)) * row[1:3] + 2.0 * row[4:6]
    assert mean == pytest.approx(expected[0], rel=0.01)
    assert variance == pytest.approx(expected[1], rel=0.12)


def test_little_data_and_single_scores_are_drawn():
    rng = np.random.default_rng(7)
    assert isotonic_null(cells_of(rng.random(300))) is None
    assert isotonic_null(cells_of(np.full(5000, 0.3))) is None
    assert isotonic_null(cells_of(np.repeat([0.2, 0.4, 0.6, 0.8, 0.9], 5000))) is None
    assert isotonic_null(cells_of(np.zeros(100))) is None


@pytest.mark.parametrize(("alpha", "beta"), [(1, 100), (0.3, 20)])
def test_scores_with_a_steep_tail_are_drawn(alpha, beta):
    """The closed form was .73 and .94 of the quantile of draws: up to 19 % of calibrated models were above it."""
    assert isotonic_null(cells_of(np.random.default_rng(3).beta(alpha, beta, 100_000))) is None


def test_one_frequent_score_is_drawn():
    """Of 100,000 calibrated rows with half of the scores .4, 8 % of the models were above the closed form."""
    scores = np.random.default_rng(4).random(100_000)
    assert isotonic_null(cells_of(scores)) is not None
    scores[::2] = 0.4
    assert isotonic_null(cells_of(scores)) is None


@pytest.mark.parametrize(("n", "is_closed"), [(4000, True), (200, False)])
def test_the_metric_names_what_its_null_assumes(n, is_closed):
    rng = np.random.default_rng(8)
    score = rng.random(n)
    columns = {"confidences": score, "labels": (rng.random(n) < score).astype(int)}
    batch = Batch.from_columns(columns, task="binary", n_classes=2).batch
    pane = pane_of(PaneSpec("binary", 2), batch)
    results = [
        compute_metrics(View(pane, PaneQuery(), rows), ["corp_miscalibration"])[
            "corp_miscalibration"
        ]
        for rows in (None, batch)
    ]
    for found in results:
        assert (found["null_q95_error"] == 0.0) == is_closed
        assert ("normal" in found["null_assumption"]) == is_closed
    stored, raw = results
    assert stored["null_q95"] == pytest.approx(raw["null_q95"], rel=0.05 if is_closed else 0.3)
