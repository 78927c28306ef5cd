"""MLflow: metrics of `evaluate`, results of a run, and panes as artifacts."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal

mlflow = pytest.importorskip("mlflow", reason="MLflow is installed by `make test-adapters`")

import pandas as pd  # noqa: E402

from calibrant.contrib.mlflow import (  # noqa: E402
    calibration_metric,
    load_pane,
    log_pane,
    log_report,
    merged_panes,
)
from tests.adapters.examples import run_example  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def data(n: int = 300, seed: int = 0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([1, 1, 1], n)
    return p, (rng.random(n)[:, None] > p.cumsum(1)).sum(1)


@pytest.fixture(autouse=True)
def tracking(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield tmp_path
    while mlflow.active_run():
        mlflow.end_run()


def test_evaluate_computes_what_the_library_computes():
    p, labels = data()
    table = pd.DataFrame({"p": list(p), "label": labels})
    metrics = [
        calibration_metric("ece", bins=10),
        calibration_metric("brier", name="calibrant_brier"),
    ]
    found = mlflow.models.evaluate(
        data=table, predictions="p", targets="label", extra_metrics=metrics, evaluators="default"
    )
    expected = cal.evaluate(p, labels, "ece", bins=10)["ece"]
    assert found.metrics["ece/value"] == pytest.approx(expected.value, abs=1e-12)
    assert found.metrics["ece/null_mean"] == pytest.approx(expected.null_mean, rel=1e-9)
    brier = float(cal.brier(p, labels))
    assert found.metrics["calibrant_brier/value"] == pytest.approx(brier, abs=1e-12)


def test_metrics_that_have_no_number_are_not_logged():
    p, labels = data()
    with mlflow.start_run() as run:
        log_report(cal.evaluate(p, labels, "ece,brier"), prefix="val_", step=3)
    logged = mlflow.get_run(run.info.run_id).data.metrics
    ece = cal.evaluate(p, labels, "ece")["ece"]
    assert logged["val_ece"] == pytest.approx(ece.value)
    assert logged["val_ece_lower"] == pytest.approx(ece.interval[0])
    assert logged["val_ece_null_mean"] == pytest.approx(ece.null_mean)
    assert "val_brier" in logged and not [each for each in logged.values() if np.isnan(each)]


@pytest.mark.parametrize("artifact", ["calibration.pane", "panes/fold-1.pane"])
def test_panes_of_runs_are_artifacts_that_merge(artifact):
    p, labels = data()
    runs, parts = [], np.array_split(np.arange(len(p)), 3)
    for rows in parts:
        with mlflow.start_run() as run:
            log_pane(cal.Pane.fill(p[rows], labels[rows]), artifact)
        runs.append(run.info.run_id)
    assert load_pane(runs[0], artifact) == cal.Pane.fill(p[parts[0]], labels[parts[0]])
    together = merged_panes(runs, artifact)
    assert together == cal.Pane.fill(p, labels)


def test_classes_instead_of_probabilities_are_refused():
    metric = calibration_metric("ece")
    with pytest.raises(ValueError, match="Received classes"):
        metric.eval_fn(pd.Series([0, 1, 1]), pd.Series([0, 1, 0]), {})


def test_the_example_of_the_documentation_runs(capsys):
    run_example("calibrant.contrib.mlflow")
    assert capsys.readouterr().out
