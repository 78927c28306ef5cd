"""A tolerance adds a verdict to each calibration error, and what the window could have shown."""

from __future__ import annotations

import numpy as np

from calibrant import Batch, Pane
from calibrant.results.metrics import metrics as declared
from calibrant_server.workers.queries.kind import Inputs, kind_of
from calibrant_server.workers.queries.query import query_for
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import Window

DAY_S = 86_400
CONFIG = ModelConfig("default", "risk", "binary", 2)


compute = kind_of(declared).compute


def inputs(n: int, days: int) -> Inputs:
    rng = np.random.default_rng(1)
    score = rng.uniform(0.05, 0.95, n)
    columns = {"confidences": score, "labels": (rng.random(n) < score).astype(int)}
    pane = Pane(CONFIG.spec())
    pane.fill_batch(Batch.from_columns(columns).batch)
    return Inputs(CONFIG, Window(0, days * DAY_S), merged=pane)


def test_verdicts_and_sizes_are_given_with_a_tolerance_alone() -> None:
    asked = query_for(declared, metrics="ece,brier,lp_ece(order=1)", tolerance=0.06)
    found = compute(asked, inputs(4000, 30))
    metrics = found["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["ece"]["tolerance_verdict"] == "within_tolerance"
    assert metrics["lp_ece(order=1)"]["tolerance_verdict"] == "within_tolerance"
    assert "tolerance_verdict" not in metrics["brier"]
    sizes = found["detectable"]
    assert isinstance(sizes, dict)
    # 30 more days are twice the data.
    assert abs(sizes["now"]["intercept"] / sizes["in_30_days"]["intercept"] - 2**0.5) < 0.05
    assert sizes["in_90_days"]["slope"] < sizes["in_30_days"]["slope"] < sizes["now"]["slope"]
    plain = compute(query_for(declared, metrics="ece"), inputs(4000, 30))
    assert "detectable" not in plain
    assert "tolerance_verdict" not in plain["metrics"]["ece"]  # type: ignore[index]


def test_forty_patients_do_not_show_that_a_model_is_calibrated() -> None:
    found = compute(query_for(declared, metrics="ece", tolerance=0.05), inputs(40, 30))
    assert found["metrics"]["ece"]["tolerance_verdict"] == "not_shown"  # type: ignore[index]
    assert found["detectable"]["now"]["slope"] is None or found["detectable"]["now"]["slope"] > 0.5  # type: ignore[index]
