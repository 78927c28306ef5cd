"""The average calibration loss: value against naive rows, gradient against finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrant import CalibrationInputError
from calibrant.segmentation.training_loss import l1_ace_loss
from tests.calibrant.case_rows import batch_of, naive_errors, pane_of, rows, view_of


def one_hot(labels: np.ndarray, n_classes: int = 3) -> np.ndarray:
    return np.eye(n_classes)[labels]


@pytest.mark.parametrize("membership", ["hard", "soft"])
@pytest.mark.parametrize("bins", [1, 5, 20])
def test_value_is_the_mean_over_classes(membership: str, bins: int) -> None:
    p, labels = rows(2, 70)
    loss = l1_ace_loss(p, one_hot(labels), bins, membership=membership)
    expected = [naive_errors(p[:, k], labels == k, bins, membership)["ace"] for k in range(3)]
    assert loss.by_class == pytest.approx(expected, abs=1e-12)
    assert loss.value == pytest.approx(np.mean(expected), abs=1e-12)


@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_without_masking_it_is_the_metric_with_background(membership: str) -> None:
    from calibrant.metrics import compute_metrics

    p, labels = rows(5, 200)
    labels = np.where(labels == 2, 0, labels)
    pane = pane_of(batch_of({"a": (p, labels)}))
    metric = compute_metrics(
        view_of(pane, 20, membership=membership, background="in"), ["ml1_ace"]
    )["ml1_ace"]
    loss = l1_ace_loss(p, one_hot(labels), 20, membership=membership, mask_missing=False)
    assert loss.value == pytest.approx(metric["value"], abs=1e-9)


def test_a_missing_class_contributes_nothing_and_stays_in_the_divisor() -> None:
    p, labels = rows(5, 60)
    labels = np.where(labels == 2, 0, labels)
    masked = l1_ace_loss(p, one_hot(labels))
    full = l1_ace_loss(p, one_hot(labels), mask_missing=False)
    assert masked.by_class[2] == 0.0 < full.by_class[2]
    assert not masked.gradient[:, 2].any()
    assert masked.value == pytest.approx(full.value - full.by_class[2] / 3)


@pytest.mark.parametrize("membership", ["hard", "soft"])
@pytest.mark.parametrize("seed", range(4))
def test_gradient_is_that_of_finite_differences(membership: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, bins, step = 40, 10, 1e-6
    # Scores away from edges and centres, where the loss has kinks.
    p = (rng.integers(0, 2 * bins, (n, 3)) + rng.uniform(0.1, 0.9, (n, 3))) / (2 * bins)
    y = rng.dirichlet(np.ones(3), n) if seed % 2 else one_hot(rng.integers(0, 3, n))
    loss = l1_ace_loss(p, y, bins, membership=membership)
    numeric = np.empty_like(p)
    for at in np.ndindex(p.shape):
        up, down = p.copy(), p.copy()
        up[at] += step
        down[at] -= step
        change = (
            l1_ace_loss(up, y, bins, membership=membership).value
            - l1_ace_loss(down, y, bins, membership=membership).value
        )
        numeric[at] = change / (2 * step)
    np.testing.assert_allclose(loss.gradient, numeric, atol=2e-9)
    assert loss.gradient.any()


@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_a_step_along_the_gradient_lowers_the_loss(membership: str) -> None:
    p, labels = rows(6, 300)
    p = np.clip(p, 0.02, 0.98)
    before = l1_ace_loss(p, one_hot(labels), membership=membership)
    after = l1_ace_loss(
        np.clip(p - 0.05 * before.gradient, 0, 1), one_hot(labels), membership=membership
    )
    assert after.value < before.value


def test_limits() -> None:
    labels = np.array([0, 1, 2])
    for membership in ("hard", "soft"):
        assert l1_ace_loss(one_hot(labels), one_hot(labels), membership=membership).value == 0.0
        empty = l1_ace_loss(np.zeros((0, 3)), np.zeros((0, 3)), membership=membership)
        assert np.isnan(empty.value)
        assert empty.gradient.shape == (0, 3)
    for edges, expected in (("right", 0.5), ("left", 0.5)):
        loss = l1_ace_loss(np.array([[0.5]]), np.array([[1.0]]), 2, membership="hard", edges=edges)
        assert loss.value == expected


@pytest.mark.parametrize(
    ("p", "y", "options"),
    [
        (np.array([0.5]), np.array([1.0]), {}),
        (np.array([[0.5]]), np.array([[1.0, 0.0]]), {}),
        (np.array([[1.5]]), np.array([[1.0]]), {}),
        (np.array([[np.nan]]), np.array([[1.0]]), {}),
        (np.array([[0.5]]), np.array([[-1.0]]), {}),
        (np.array([[0.5]]), np.array([[1.0]]), {"bins": 0}),
        (np.array([[0.5]]), np.array([[1.0]]), {"membership": "fuzzy"}),
    ],
)
def test_what_cannot_be_a_loss_is_rejected(
    p: np.ndarray, y: np.ndarray, options: dict[str, Any]
) -> None:
    with pytest.raises(CalibrationInputError):
        l1_ace_loss(p, y, **options)
