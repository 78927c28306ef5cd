"""The rule that names a bin: how often a calibrated model gets it, and that an overconfident one does."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm

from calibrant.core.documents import Row
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.inference.bin_gaps import LEVEL, widest_gap
from calibrant.inference.reliability_table import reliability
from calibrant.input.arrays import read_arrays
from calibrant.library_arguments import filled
from calibrant.metrics import accumulators_for

RUNS = 40
Logits = NDArray[np.float64]


def logits_of(kind: str, rng: np.random.Generator) -> Logits:
    """One row per unit."""
    shape = {"one bin": (300, 1), "rare": (2000, 1), "voxels": (45, 60)}[kind]
    centre, spread = {"one bin": (0.0, 2.0), "rare": (-5.0, 1.5), "voxels": (-3.0, 1.5)}[kind]
    between = rng.normal(0, 2, (shape[0], 1)) if kind == "voxels" else 0.0
    return np.asarray(centre + between + rng.normal(0, spread, shape))


def table_of(kind: str, rng: np.random.Generator, temperature: float = 1.0) -> list[Row]:
    """Labels of one unit are dependent, and each has the rate of its probability."""
    logits = logits_of(kind, rng)
    shared = rng.normal(size=(len(logits), 1))
    noise = np.sqrt(0.2) * shared + np.sqrt(0.8) * rng.normal(size=logits.shape)
    labels = (norm.cdf(noise) < expit(logits / temperature)).astype(int).ravel()
    units = np.repeat([f"unit {i}" for i in range(len(logits))], logits.shape[1]).astype(object)
    batch = read_arrays(expit(logits).ravel(), labels=labels, units=units)
    rows: list[Row] = reliability(
        View(filled(batch, accumulators_for(["ece"])), PaneQuery(), batch)
    )["table"]
    return rows


@pytest.mark.parametrize("kind", ["one bin", "rare", "voxels"])
def test_a_calibrated_model_rarely_has_such_a_bin(kind: str) -> None:
    """Even without a tolerance: at most the level plus two Monte-Carlo errors."""
    rng = np.random.default_rng(11)
    n_found = sum(widest_gap(table_of(kind, rng), 0.0) is not None for _ in range(RUNS))
    assert n_found / RUNS <= LEVEL + 2.0 * np.sqrt(LEVEL * (1.0 - LEVEL) / RUNS)


@pytest.mark.parametrize("kind", ["rare", "voxels"])
def test_an_overconfident_model_has_one_although_most_predictions_are_easy(kind: str) -> None:
    rng = np.random.default_rng(12)
    found = [widest_gap(table_of(kind, rng, 2.5), 0.02) for _ in range(10)]
    assert all(found)


def test_a_gap_within_the_tolerance_is_none() -> None:
    row = {"mean_confidence": 0.9, "accuracy": 0.86, "n_effective": 1e6}
    assert widest_gap([row], 0.05) is None and widest_gap([row], 0.03) is row
