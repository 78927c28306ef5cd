"""The training losses of posted cases: naive versions, finite differences, and what a request may set."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError
from calibrant.report import score_batch
from calibrant.segmentation.training_loss import l1_ace_loss
from calibrant.segmentation.voxel_losses import cross_entropy_loss, dice_loss
from calibrant.segmentation.weighted_loss import LossWeights
from tests.calibrant.case_rows import batch_of, naive_errors, rows


def served(batch: Batch, **params: object) -> dict:
    given = {"metrics": ["ece"], "include": ["losses"], "bins": 10} | params
    return score_batch(batch, given)["losses"]


def softmax(z: np.ndarray) -> np.ndarray:
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def naive_dice(p: np.ndarray, y: np.ndarray) -> float:
    terms = []
    for k in range(p.shape[1]):
        both = sum(a * b for a, b in zip(p[:, k], y[:, k], strict=True))
        terms.append(1 - (2 * both + 1e-5) / (sum(p[:, k]) + sum(y[:, k]) + 1e-5))
    return float(np.mean(terms))


def test_dice_and_cross_entropy_equal_the_naive_versions() -> None:
    p, labels = rows(1, 50)
    y, p = np.eye(3)[labels], 0.9 * p + 0.1 / 3
    assert dice_loss(p, y).value == pytest.approx(naive_dice(p, y), abs=1e-12)
    naive = np.mean([-np.log(row[label]) for row, label in zip(p, labels, strict=True)])
    assert cross_entropy_loss(p, y).value == pytest.approx(naive, abs=1e-12)


@pytest.mark.parametrize("loss", [dice_loss, cross_entropy_loss, l1_ace_loss])
def test_weights_are_repetitions(loss) -> None:
    p, labels = rows(2, 40)
    y, p, times = np.eye(3)[labels], 0.9 * p + 0.1 / 3, np.arange(40) % 3
    repeated = loss(np.repeat(p, times, axis=0), np.repeat(y, times, axis=0))
    weighted = loss(p, y, weights=times.astype(float))
    assert weighted.value == pytest.approx(repeated.value, abs=1e-12)
    summed = np.zeros_like(p)
    np.add.at(summed, np.repeat(np.arange(40), times), repeated.gradient)
    np.testing.assert_allclose(weighted.gradient, summed, atol=1e-14)


@pytest.mark.parametrize("loss", [dice_loss, cross_entropy_loss])
def test_gradients_are_those_of_finite_differences(loss) -> None:
    p, labels = rows(3, 12)
    y, p, w = np.eye(3)[labels], 0.9 * p + 0.1 / 3, np.linspace(0.5, 2.0, 12)
    found, step = loss(p, y, weights=w).gradient, 1e-6
    for at in np.ndindex(p.shape):
        up, down = p.copy(), p.copy()
        up[at] += step
        down[at] -= step
        change = loss(up, y, weights=w).value - loss(down, y, weights=w).value
        assert found[at] == pytest.approx(change / (2 * step), abs=1e-7)


def test_limits_of_dice_and_cross_entropy() -> None:
    y = np.eye(3)[[0, 1, 1]]
    assert dice_loss(y, y).value == 0.0 == cross_entropy_loss(y, y).value
    assert cross_entropy_loss(1.0 - y, y).value == np.inf
    for loss in (dice_loss, cross_entropy_loss):
        assert np.isnan(loss(np.zeros((0, 3)), np.zeros((0, 3))).value)
        with pytest.raises(CalibrationInputError, match="weights"):
            loss(y, y, weights=np.array([1.0, -1.0, 1.0]))


@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_losses_of_cases_are_means_over_images(membership: str) -> None:
    parts = {name: rows(i, 40 + 10 * i, sharp=1.2) for i, name in enumerate(("a", "b"))}
    parts = {name: (0.9 * p + 0.1 / 3, labels) for name, (p, labels) in parts.items()}
    found = served(
        batch_of(parts), membership=membership, loss_weights={"ace": 4.0, "cross_entropy": 0.5}
    )
    expected = {"hl1_ace": [], "sl1_ace": [], "dice": [], "cross_entropy": []}
    for p, labels in parts.values():
        y = np.eye(3)[labels]
        for name, kind in (("hl1_ace", "hard"), ("sl1_ace", "soft")):
            classes = [naive_errors(p[:, k], labels == k, 10, kind)["ace"] for k in range(3)]
            expected[name].append(np.mean(classes))
        expected["dice"].append(naive_dice(p, y))
        expected["cross_entropy"].append(-np.log(p[np.arange(len(p)), labels]).mean())
    for name, values in expected.items():
        assert found[name] == pytest.approx(np.mean(values), abs=1e-9), name
        assert [case[name] for case in found["cases"]] == pytest.approx(values, abs=1e-9)
    ace = found["hl1_ace" if membership == "hard" else "sl1_ace"]
    total = 4.0 * ace + found["dice"] + 0.5 * found["cross_entropy"]
    assert found["weighted_sum"] == pytest.approx(total, abs=1e-12)
    assert found["weights"] == {"ace": 4.0, "dice": 1.0, "cross_entropy": 0.5}


def test_gradients_by_logits_are_those_of_finite_differences() -> None:
    rng = np.random.default_rng(8)
    z, labels = rng.normal(scale=2.0, size=(14, 3)), rng.integers(0, 3, 14)
    columns = {"labels": labels.tolist(), "cases": ["a"] * 6 + ["b"] * 8}

    def losses(logits: np.ndarray, **params: object) -> dict:
        batch = Batch.from_columns(columns | {"logits": logits}, task="segmentation").batch
        return served(batch, membership="soft", **params)

    found = losses(z, gradients="logits")["gradients"]
    assert found["by"] == "logits"
    numeric, step = {name: np.empty_like(z) for name in ("sl1_ace", "weighted_sum")}, 1e-6
    for at in np.ndindex(z.shape):
        up, down = z.copy(), z.copy()
        up[at] += step
        down[at] -= step
        above, below = losses(up), losses(down)
        for name, slopes in numeric.items():
            slopes[at] = (above[name] - below[name]) / (2 * step)
    for name, slopes in numeric.items():
        np.testing.assert_allclose(found[name], slopes, atol=2e-8)


def test_raters_of_a_pixel() -> None:
    """Pooled ratings count each; unlabelled rows have a gradient of 0."""
    p = softmax(np.random.default_rng(2).normal(size=(9, 3)))
    labels = [[0, 0, 1], [1], [2, 2], [0], [1, 0], [2], [1, 1], None, [0]]
    batch = Batch.from_columns(
        {"probabilities": p, "labels": labels, "cases": ["a"] * 9}, task="segmentation"
    ).batch
    single = [
        (row, class_index) for row, classes in enumerate(labels) for class_index in classes or ()
    ]
    expanded = l1_ace_loss(p[[row for row, _ in single]], np.eye(3)[[k for _, k in single]], 10)
    found = served(batch, gradients="probabilities")
    assert found["sl1_ace"] == pytest.approx(expanded.value, abs=1e-12)
    assert found["gradients"]["sl1_ace"][7] == [0.0, 0.0, 0.0]
    majority = np.eye(3)[[0, 1, 2, 0, 0, 2, 1, 0]]
    kept = [row for row, classes in enumerate(labels) if classes]
    expected = dice_loss(p[kept], majority).value
    assert served(batch, raters="majority")["dice"] == pytest.approx(expected, abs=1e-12)


def test_a_rated_class_of_probability_zero() -> None:
    columns = {"labels": [1, 0], "cases": ["a", "a"]}
    batch = Batch.from_columns(
        columns | {"probabilities": [[1.0, 0.0], [0.5, 0.5]]}, task="segmentation"
    ).batch
    found = served(batch, gradients="probabilities")
    assert (found["cross_entropy"], found["weighted_sum"]) == (None, None)
    assert found["reason"] == "zero_probability"
    assert found["gradients"]["weighted_sum"] is None
    assert found["gradients"]["hl1_ace"] is not None
    apart = served(batch, loss_weights={"cross_entropy": 0.0})
    assert apart["weighted_sum"] == pytest.approx(apart["hl1_ace"] + apart["dice"])
    # Logits say how improbable the class is.
    far = Batch.from_columns(columns | {"logits": [[900.0, 0.0], [0.0, 0.0]]}, task="segmentation")
    exact = served(far.batch, gradients="logits")
    assert exact["cross_entropy"] == pytest.approx((900.0 + np.log(2)) / 2)
    assert exact["gradients"]["weighted_sum"] is not None


@pytest.mark.parametrize(
    ("params", "pointer"),
    [
        ({"loss_weights": {"focal": 1.0}}, "/loss_weights/focal"),
        ({"loss_weights": {"ace": -1.0}}, "/loss_weights/ace"),
        ({"loss_weights": {"ace": float("nan")}}, "/loss_weights/ace"),
        ({"loss_weights": {"ace": True}}, "/loss_weights/ace"),
        ({"gradients": "weights"}, "/gradients"),
        ({"membership": "spline"}, "/membership"),
    ],
)
def test_what_is_no_loss_is_rejected(params: dict, pointer: str) -> None:
    with pytest.raises(CalibrationInputError) as rejected:
        served(batch_of({"a": rows(1, 9)}), **params)
    assert rejected.value.violations[0].pointer == pointer


def test_bounds_and_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    p, labels = rows(1, 9)
    bare = Batch.from_columns({"probabilities": p, "labels": labels.tolist()}, task="multiclass")
    assert served(bare.batch)["reason"] == "no_cases"
    monkeypatch.setattr("calibrant.segmentation.weighted_loss.MAX_GRADIENT_VALUES", 26)
    with pytest.raises(CalibrationInputError, match="at most 26"):
        served(batch_of({"a": (p, labels)}), gradients="logits")
    assert LossWeights.read(None) == LossWeights(1.0, 1.0, 1.0)
