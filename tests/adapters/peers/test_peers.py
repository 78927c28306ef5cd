"""Every value of `calibrant.peers` against the library itself, to 1e-6."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

from calibrant.peers import PEERS, ScoredRows
from tests.calibrant.peer_rows import CASES, rows_of

TOLERANCE = 1e-6
# `importorskip` ignores warnings, which modules of `netcal` raise where the installer has not compiled them.
for name in (
    "torch",
    "torchmetrics",
    "netcal.metrics",
    "sklearn",
    "monai",
    "calibration",
    "relplot",
):
    pytest.importorskip(name, reason=f"{name} is installed by `make test-adapters`")

import calibration  # noqa: E402
import netcal.metrics  # noqa: E402
import relplot  # noqa: E402
import torch  # noqa: E402
from monai.metrics import CalibrationErrorMetric  # noqa: E402
from sklearn.calibration import calibration_curve  # noqa: E402
from sklearn.metrics import brier_score_loss, log_loss  # noqa: E402
from torchmetrics.functional.classification import (  # noqa: E402
    binary_calibration_error,
    multiclass_calibration_error,
)


def of_torchmetrics(rows: ScoredRows, bins: int) -> dict[str, float]:
    label = torch.tensor(rows.labels)
    found = {}
    for norm in ("l1", "l2", "max"):
        if rows.one_class:
            value = binary_calibration_error(torch.tensor(rows.score), label, bins, norm)
            found[f"binary_calibration_error(norm='{norm}')"] = float(value)
        else:
            p = torch.tensor(rows.probabilities)
            value = multiclass_calibration_error(p, label, p.shape[1], bins, norm)
            found[f"multiclass_calibration_error(norm='{norm}')"] = float(value)
    return found


def of_netcal(rows: ScoredRows, bins: int) -> dict[str, float | None]:
    p = rows.score if rows.one_class else rows.probabilities
    found: dict[str, float | None] = {
        name: getattr(netcal.metrics, name)(bins).measure(p, rows.labels)
        for name in ("ECE", "ACE", "MCE")
    }
    name = "ECE(equal_intervals=False)"
    try:
        found[name] = netcal.metrics.ECE(bins, equal_intervals=False).measure(p, rows.labels)
    except ValueError:
        found[name] = None
    return found


def of_scikit_learn(rows: ScoredRows, bins: int) -> dict[str, float]:
    found = {}
    for strategy in ("uniform", "quantile"):
        true, predicted = calibration_curve(
            rows.outcome, rows.score, n_bins=bins, strategy=strategy
        )
        found[f"calibration_curve(strategy='{strategy}')"] = float(np.abs(true - predicted).mean())
    p = rows.probabilities
    classes = list(range(p.shape[1]))
    if rows.one_class:
        found["brier_score_loss"] = brier_score_loss(rows.labels, p[:, 1])
    else:
        found["brier_score_loss"] = brier_score_loss(rows.labels, p, labels=classes)
    found["log_loss"] = log_loss(rows.labels, p, labels=classes)
    return found


def of_monai(rows: ScoredRows, bins: int) -> dict[str, float]:
    p = rows.score[:, None] if rows.one_class else rows.probabilities
    y = rows.outcome[:, None] if rows.one_class else rows.one_hot
    found = {}
    for reduction in ("expected", "average", "maximum"):
        metric = CalibrationErrorMetric(num_bins=bins, calibration_reduction=reduction)
        metric(torch.tensor(p.T[None]), torch.tensor(y.T[None]))
        name = f"CalibrationErrorMetric(calibration_reduction='{reduction}')"
        found[name] = float(metric.aggregate())
    return found


def of_uncertainty_calibration(rows: ScoredRows, bins: int) -> dict[str, float]:
    p = rows.score if rows.one_class else rows.probabilities
    bound = calibration.lower_bound_scaling_ce
    found = {
        "get_ece": calibration.get_ece(p, rows.labels, num_bins=bins),
        "get_ece_em": calibration.get_ece_em(p, rows.labels, num_bins=bins),
        "lower_bound_scaling_ce": bound(p, rows.labels, num_bins=bins, mode="top-label"),
    }
    if not rows.one_class:
        found["lower_bound_scaling_ce(mode='marginal')"] = bound(p, rows.labels, num_bins=bins)
    return found


def of_relplot(rows: ScoredRows, bins: int) -> dict[str, float]:
    return {
        "binnedECE": relplot.metrics.binnedECE(rows.score, rows.outcome, bins),
        "smECE": relplot.smECE(rows.score, rows.outcome),
    }


REFERENCES: dict[str, Callable[[ScoredRows, int], dict[str, Any]]] = {
    "torchmetrics": of_torchmetrics,
    "netcal": of_netcal,
    "scikit-learn": of_scikit_learn,
    "monai": of_monai,
    "uncertainty-calibration": of_uncertainty_calibration,
    "relplot": of_relplot,
}


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("case", CASES)
def test_every_value_is_the_peers(peer: str, case: str) -> None:
    rows, bins = rows_of(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = REFERENCES[peer](rows, bins)
    found = {name: each.value for name, each in PEERS[peer].compute(rows, bins).items()}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == (None if value is None else pytest.approx(value, abs=TOLERANCE)), name


@pytest.mark.parametrize("peer", PEERS)
def test_the_stated_version_is_the_compared_one(peer: str) -> None:
    assert version(peer) == PEERS[peer].version


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_edges_are_those_of_torch(kind: type) -> None:
    from calibrant.peers.torchmetrics import linspace

    for bins in range(1, 400):
        for end in (1.0, 1.0 + torch.finfo(torch.float32).eps):
            if kind is np.float64 and end > 1:
                continue
            dtype = torch.float32 if kind is np.float32 else torch.float64
            expected = torch.linspace(0, end, bins + 1, dtype=dtype).numpy()
            np.testing.assert_array_equal(linspace(end, bins, kind), expected, err_msg=str(bins))
