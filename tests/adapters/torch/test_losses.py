"""The losses in PyTorch: the numbers of the library, and its gradients those of autograd."""

from __future__ import annotations

import doctest
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError
from calibrant.report import score_batch
from calibrant.segmentation.training_loss import l1_ace_loss
from calibrant.segmentation.voxel_losses import cross_entropy_loss, dice_loss
from tests.calibrant.case_rows import rows

torch = pytest.importorskip("torch", reason="PyTorch is installed by `make test-adapters`")

from calibrant.torch import CalibratedSegmentationLoss, L1ACELoss  # noqa: E402
from calibrant.torch import dice_loss as torch_dice_loss  # noqa: E402
from calibrant.torch import l1_ace_loss as torch_l1_ace_loss  # noqa: E402

N_CLASSES = 3


def images(n: int = 2, n_pixels: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Logits (n, classes, 6, n_pixels / 6), and classes (n, 6, n_pixels / 6); the last image lacks class 2."""
    rng = np.random.default_rng(4)
    logits = rng.normal(scale=2.0, size=(n, N_CLASSES, 6, n_pixels // 6))
    target = rng.integers(0, N_CLASSES, (n, 6, n_pixels // 6))
    target[-1] = np.minimum(target[-1], 1)
    return logits, target


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def by_pixel(image: np.ndarray) -> np.ndarray:
    return image.reshape(len(image), -1).T


def one_hot(target: np.ndarray) -> np.ndarray:
    return np.eye(N_CLASSES)[target.reshape(-1)]


def mean_loss(
    probabilities: np.ndarray, target: np.ndarray, **options: Any
) -> tuple[float, list[np.ndarray]]:
    """Return the mean loss of images without torch, and its gradient by each image's probabilities."""
    losses = [
        l1_ace_loss(by_pixel(image), one_hot(each), 10, **options)
        for image, each in zip(probabilities, target, strict=True)
    ]
    value = float(np.mean([loss.value for loss in losses]))
    return value, [loss.gradient / len(losses) for loss in losses]


@pytest.mark.parametrize("membership", ["hard", "soft"])
@pytest.mark.parametrize("edges", ["right", "left"])
@pytest.mark.parametrize("masked", [True, False])
def test_average_calibration_error_and_gradient(membership: str, edges: str, masked: bool) -> None:
    logits, target = images()
    given = softmax(logits)
    p = torch.tensor(given, requires_grad=True)
    options: dict[str, Any] = {"membership": membership, "edges": edges, "mask_missing": masked}
    loss = torch_l1_ace_loss(p, torch.tensor(target), 10, **options)
    loss.backward()
    value, slopes = mean_loss(given, target, **options)
    assert loss.item() == pytest.approx(value, abs=1e-12)
    for found, slope in zip(p.grad.numpy(), slopes, strict=True):
        np.testing.assert_allclose(by_pixel(found), slope, atol=1e-14)
    assert p.grad.abs().sum() > 0


@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_scores_on_edges_and_shares_of_raters(membership: str) -> None:
    p, labels = rows(3, 80)
    shares = 0.75 * np.eye(3)[labels] + 0.25 * np.eye(3)[np.roll(labels, 1)]
    tensor = torch.tensor(p.T[None].copy(), requires_grad=True)
    loss = torch_l1_ace_loss(tensor, torch.tensor(shares.T[None].copy()), 20, membership=membership)
    loss.backward()
    expected = l1_ace_loss(p, shares, 20, membership=membership)
    assert loss.item() == pytest.approx(expected.value, abs=1e-12)
    np.testing.assert_allclose(tensor.grad[0].numpy().T, expected.gradient, atol=1e-14)


def test_dice_and_cross_entropy_with_gradients() -> None:
    logits, target = images(1)
    given = softmax(logits)
    p = torch.tensor(given, requires_grad=True)
    expected = dice_loss(by_pixel(given[0]), one_hot(target))
    found = torch_dice_loss(p, torch.tensor(target))
    found.backward()
    assert found.item() == pytest.approx(expected.value, abs=1e-12)
    np.testing.assert_allclose(by_pixel(p.grad.numpy()[0]), expected.gradient, atol=1e-14)
    q = torch.tensor(given, requires_grad=True)
    entropy = torch.nn.functional.nll_loss(q.log(), torch.tensor(target))
    entropy.backward()
    expected = cross_entropy_loss(by_pixel(given[0]), one_hot(target))
    assert entropy.item() == pytest.approx(expected.value, abs=1e-12)
    np.testing.assert_allclose(by_pixel(q.grad.numpy()[0]), expected.gradient, atol=1e-14)


@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_the_weighted_sum_is_that_of_a_score(membership: str) -> None:
    """Its gradient by logits, too; one loss in training and in the service."""
    logits, target = images()
    z = torch.tensor(logits, requires_grad=True)
    module = CalibratedSegmentationLoss(0.5, 2.0, 1.0, bins=15, membership=membership)
    loss = module(z, torch.tensor(target))
    loss.backward()
    columns = {
        "logits": np.concatenate([by_pixel(image) for image in logits]),
        "labels": target.reshape(-1).tolist(),
        "cases": [f"image-{i}" for i in range(2) for _ in range(60)],
    }
    batch = Batch.from_columns(columns, task="segmentation").batch
    served = score_batch(
        batch,
        {
            "metrics": ["ece"],
            "include": ["losses"],
            "membership": membership,
            "loss_weights": {"ace": 0.5, "dice": 2.0},
            "gradients": "logits",
        },
    )["losses"]
    assert loss.item() == pytest.approx(served["weighted_sum"], abs=1e-12)
    found = np.concatenate([by_pixel(image) for image in z.grad.numpy()])
    np.testing.assert_allclose(found, served["gradients"]["weighted_sum"], atol=1e-14)


def test_the_module_takes_logits_or_probabilities_in_float32() -> None:
    logits, target = images()
    z = torch.tensor(logits, dtype=torch.float32, requires_grad=True)
    found = L1ACELoss(10)(z, torch.tensor(target))
    assert found.dtype == torch.float32
    same = L1ACELoss(10, from_logits=False)(z.softmax(1), torch.tensor(target))
    assert found.item() == pytest.approx(same.item())
    exact, _ = mean_loss(softmax(logits), target)
    assert found.item() == pytest.approx(exact, abs=1e-6)
    found.backward()
    assert z.grad.dtype == torch.float32


def test_training_with_the_loss_calibrates() -> None:
    """Logits that are three times too large become smaller by steps of the loss."""
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(1, 2, 40, 40))
    target = (softmax(truth)[:, 1] > rng.random((1, 40, 40))).astype(np.int64)
    logits = torch.tensor(3.0 * truth)
    factor = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    loss = L1ACELoss(10)
    steps = torch.optim.Adam([factor], lr=0.05)
    first = loss(logits * factor, torch.tensor(target)).item()
    for _ in range(30):
        steps.zero_grad()
        loss(logits * factor, torch.tensor(target)).backward()
        steps.step()
    assert loss(logits * factor, torch.tensor(target)).item() < 0.5 * first
    assert 0.1 < factor.item() < 0.7


def test_what_cannot_be_a_loss_is_rejected() -> None:
    p, target = torch.full((1, 2, 4), 0.5), torch.zeros((1, 4), dtype=torch.int64)
    for options in ({"membership": "fuzzy"}, {"edges": "both"}, {"bins": 0}):
        with pytest.raises(ValueError, match="Received"):
            torch_l1_ace_loss(p, target, **options)
    with pytest.raises(ValueError, match="Received a target of 3 pixels per image; expected 4"):
        torch_l1_ace_loss(p, target[:, :3])
    with pytest.raises(CalibrationInputError):
        l1_ace_loss(np.full((1, 2), 0.5), np.full((1, 3), 0.5))


def test_examples_of_the_docstrings() -> None:
    from calibrant.torch import average_calibration, weighted

    for module in (average_calibration, weighted):
        result = doctest.testmod(module)
        assert (result.failed, result.attempted) == (0, result.attempted)
        assert result.attempted


def test_a_training_step_of_the_example() -> None:
    path = Path(__file__).parents[3] / "docs" / "examples" / "torch_loss.py"
    spec = importlib.util.spec_from_file_location("torch_loss", path)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    torch.manual_seed(0)
    network = torch.nn.Conv2d(1, 2, 3, padding=1)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.05)
    images = torch.randn(2, 1, 12, 12)
    target = (images[:, 0] > 0).long()
    losses = [example.training_step(network, optimiser, images, target) for _ in range(20)]
    assert losses[-1] < 0.7 * losses[0]
