"""Sensitivity to λ, the weight of the average calibration loss: the table of Barfoot et al. on a synthetic set.

    make study-lambda

The set `ring-and-disc` is made here: noisy images of a disc (class 2) inside a ring (class 1) on background (class 0),
whose borders are blurred, so that pixels near them are truly uncertain. A small convolutional network is trained with
Dice + cross-entropy + λ sL1-ACE for every λ, and with λ = 0, from the same start and on the same images. Test errors are
the library's: mL1-ACE macro and micro and Dice over images, background left out. PyTorch trains; the loss and the errors are ours.

Source: Barfoot et al., Average Calibration Losses, whose table of λ has the same columns for ACDC.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics
from calibrant.torch import CalibratedSegmentationLoss

LAMBDAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
N_CLASSES, SIZE, BINS = 3, 32, 20
METRICS = ("dice", "ml1_ace", "ml1_ace(average=micro)", "ml1_ece")
Floats = NDArray[np.float64]


def ring_and_disc(n: int, seed: int) -> tuple[Any, Any]:
    """Return images (n, 1, 32, 32) and classes (n, 32, 32) of the synthetic set `ring-and-disc`."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SIZE, :SIZE]
    images, classes = np.empty((n, 1, SIZE, SIZE)), np.empty((n, SIZE, SIZE), np.int64)
    for i in range(n):
        centre, radius = rng.uniform(11, 21, 2), rng.uniform(6, 10)
        distance = np.hypot(y - centre[0], x - centre[1])
        # The border of a pixel varies by chance: near it no network can be sure.
        jitter = distance + rng.normal(scale=1.0, size=distance.shape)
        classes[i] = (jitter < radius).astype(int) + (jitter < 0.55 * radius)
        signal = 0.7 * (distance < radius) + 0.5 * (distance < 0.55 * radius)
        images[i, 0] = signal + rng.normal(scale=0.5, size=signal.shape)
    return torch.tensor(images, dtype=torch.float32), torch.tensor(classes)


def network(seed: int) -> Any:
    """Return an untrained network of four convolutions."""
    torch.manual_seed(seed)
    layers: list[Any] = []
    for width_in, width_out, dilation in ((1, 16, 1), (16, 16, 2), (16, 16, 4)):
        layers += [
            torch.nn.Conv2d(width_in, width_out, 3, padding=dilation, dilation=dilation),
            torch.nn.ReLU(),
        ]
    return torch.nn.Sequential(*layers, torch.nn.Conv2d(16, N_CLASSES, 1))


def trained(weight: float, steps: int, seed: int) -> Any:
    """Return a network trained with this λ."""
    images, classes = ring_and_disc(64, 1000 + seed)
    model, loss_of = network(seed), CalibratedSegmentationLoss(weight, bins=BINS)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    order = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(images), (8,), generator=order)
        optimiser.zero_grad()
        loss_of(model(images[chosen]), classes[chosen]).backward()
        optimiser.step()
    return model


def errors(model: Any, seed: int) -> dict[str, float]:
    """Return the library's metrics of the model's test images."""
    images, classes = ring_and_disc(32, 2000 + seed)
    with torch.no_grad():
        logits = model(images).double().movedim(1, -1).reshape(-1, N_CLASSES).numpy()
    columns = {
        "logits": logits,
        "labels": classes.reshape(-1).tolist(),
        "cases": [f"image-{i}" for i in range(len(images)) for _ in range(SIZE * SIZE)],
    }
    batch = Batch.from_columns(columns, task="segmentation").batch
    pane = Pane(PaneSpec("segmentation", N_CLASSES))
    pane.fill_batch(batch)
    found = compute_metrics(View(pane, PaneQuery(bins=BINS), batch), METRICS)
    return {slug: float(each["value"]) for slug, each in found.items()}


def study(lambdas: Sequence[float], steps: int, seeds: int) -> dict[float, dict[str, Floats]]:
    """Return, by λ, each metric of every seed."""
    found: dict[float, dict[str, Floats]] = {}
    for weight in lambdas:
        runs = [errors(trained(weight, steps, seed), seed) for seed in range(seeds)]
        found[weight] = {slug: np.array([run[slug] for run in runs]) for slug in METRICS}
    return found


def table(found: dict[float, dict[str, Floats]]) -> str:
    """Return the rows λ, Dice, macro-ACE, micro-ACE and macro-ECE: mean over seeds, ± population sd."""
    lines = ["| λ | Dice | macro-ACE | micro-ACE | macro-ECE |", "|---|---|---|---|---|"]
    for weight, metrics in found.items():
        cells = [f"{each.mean():.4f} ± {each.std():.4f}" for each in metrics.values()]
        lines.append(f"| {weight:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="of training")
    parser.add_argument("--seeds", type=int, default=2, help="networks of each λ")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"ring-and-disc, {given.steps} steps, {given.seeds} seeds, sL1-ACE, {BINS} bins")
    print(table(study(LAMBDAS, given.steps, given.seeds)))


if __name__ == "__main__":
    main()
