"""The demo keeps its word: its cast is what it claims, and the whole play ends well."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from demo.digits import N_CLASSES, Deployment, play_deployment
from demo.truth import raw_metrics, raw_temperature, votes_of
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return play_deployment()


def test_models_err_and_are_sure_of_it(deployment: Deployment) -> None:
    ratings = votes_of(deployment.ratings, N_CLASSES)
    for probabilities in (deployment.probabilities, deployment.logistic):
        assert 0.75 < raw_metrics(probabilities, ratings)["accuracy"] < 0.95
        assert 1.5 < raw_temperature(probabilities, ratings) < 4
        assert probabilities.min() > 0


def test_raters_are_ragged_and_disagree_on_worn_images(deployment: Deployment) -> None:
    n_ratings = np.array([len(each) for each in deployment.ratings])
    assert set(n_ratings) == {3, 4, 5}
    split = np.array([len(set(each)) > 1 for each in deployment.ratings])
    late = deployment.when >= 0.5
    assert 0.02 < split[~late].mean() < split[late].mean()


def test_deployment_repeats_itself(deployment: Deployment) -> None:
    again = play_deployment()
    assert np.array_equal(again.probabilities, deployment.probabilities)
    assert again.ratings == deployment.ratings


def test_raw_metrics_of_a_case_done_by_hand() -> None:
    probabilities = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]])
    result = raw_metrics(probabilities, votes_of([[0, 0], [1, 1, 2]], 3), bins=10)
    assert result["accuracy"] == pytest.approx(4 / 5)
    assert result["ece"] == pytest.approx((abs(2 - 1.4) + abs(2 - 2.4)) / 5)
    assert result["mce"] == pytest.approx(0.3)
    assert result["brier"] == pytest.approx((2 * 0.14 + 2 * 0.06 + 1.46) / 5)
    assert result["nll"] == pytest.approx(-np.log([0.7, 0.7, 0.8, 0.8, 0.1]).mean())


@pytest.mark.parametrize("days", [14, pytest.param(28, marks=pytest.mark.slow)])
def test_plays_to_the_end(tmp_path: Path, days: int) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    simulated = subprocess.run(
        [sys.executable, "-m", "demo", "--days", str(days)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
        check=False,
    )
    assert simulated.returncode == 0, simulated.stdout + simulated.stderr
    assert "equal to raw rows" in simulated.stdout
    output = tmp_path / "demo-output"
    assert ElementTree.parse(output / "reliability.svg").getroot().tag.endswith("svg")
    assert (output / "reliability.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert "<h2>1. Verdict</h2>" in (output / "report.html").read_text()
