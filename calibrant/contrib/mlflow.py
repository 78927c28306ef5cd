"""MLflow: calibration metrics for `mlflow.models.evaluate`, results as metrics of a run, and panes as artifacts.

log_report(pane.evaluate("ece,brier"))  # values, intervals and null references as metrics of the active run
log_pane(pane)                          # the state itself: every other result later, and merging with other runs
load_pane(run_id)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from calibrant.contrib.extras import missing
from calibrant.core.pane import Pane
from calibrant.library import evaluate
from calibrant.metrics import chosen
from calibrant.results import Report

try:
    import mlflow
    from mlflow.metrics import MetricValue
    from mlflow.models import EvaluationMetric, make_metric
except ModuleNotFoundError as error:
    raise missing(error, "mlflow") from error

ARTIFACT = "calibration.pane"


def calibration_metric(slug: str, *, name: str | None = None, **options: Any) -> EvaluationMetric:
    """Return a metric for `extra_metrics`; its column of predictions must hold probabilities.

    Parameters
    ----------
    slug : of the metric, such as "ece"
    name : in MLflow. Default: `slug`
    options : of `calibrant.evaluate`, such as `bins`

    Returns
    -------
    An MLflow metric whose aggregate results are the value, and where they exist the interval and the mean of the null.

    Raises
    ------
    CalibrationInputError
        Unknown metric.
    """
    (metric,) = chosen([slug])
    is_score = metric.direction == "higher"
    return make_metric(
        eval_fn=_eval_fn(slug, options), greater_is_better=is_score, name=name or slug
    )


def _eval_fn(slug: str, options: dict[str, Any]) -> Callable[..., MetricValue]:
    def eval_fn(predictions: Any, targets: Any, metrics: Any = None) -> MetricValue:
        report = evaluate(_scores(predictions), np.asarray(targets), slug, **options)
        return MetricValue(aggregate_results=_numbers(report, slug))

    return eval_fn


def log_report(report: Report, prefix: str = "", step: int | None = None) -> None:
    """Log the estimates as metrics of the active run: `ece`, `ece_lower`, `ece_upper`, `ece_null_mean`.

    A value that does not exist is not logged.
    """
    found = {
        f"{prefix}{slug if part == 'value' else f'{slug}_{part}'}": value
        for slug in report
        for part, value in _numbers(report, slug).items()
    }
    mlflow.log_metrics(found, step=step)


def log_pane(pane: Pane, artifact_file: str = ARTIFACT) -> None:
    """Store a pane as an artifact of the active run."""
    file = Path(artifact_file)
    with TemporaryDirectory() as folder:
        path = Path(folder) / file.name
        path.write_bytes(pane.to_bytes())
        parent = file.parent.as_posix()
        mlflow.log_artifact(str(path), None if parent == "." else parent)


def load_pane(run_id: str, artifact_file: str = ARTIFACT) -> Pane:
    """Return the pane that a run has stored."""
    with TemporaryDirectory() as folder:
        path = mlflow.artifacts.download_artifacts(
            run_id=run_id, artifact_path=artifact_file, dst_path=folder
        )
        return Pane.from_bytes(Path(path).read_bytes())


def merged_panes(run_ids: Sequence[str], artifact_file: str = ARTIFACT) -> Pane:
    """Return the pane of all predictions of several runs, as if one run had made them."""
    first, *others = (load_pane(each, artifact_file) for each in run_ids)
    return sum(others, first)


def _scores(predictions: Any) -> np.ndarray[Any, Any]:
    """Return a column of probabilities, or of lists with one per class, as an array."""
    values = [np.asarray(each, np.float64) for each in predictions]
    scores = np.stack(values) if values else np.empty(0)
    if scores.ndim == 1 and set(np.unique(scores)) - {0.0, 1.0} == set() and len(scores):
        raise ValueError(
            "Received classes as predictions; expected probabilities. Name their column as `predictions`."
        )
    return scores


def _numbers(report: Report, slug: str) -> dict[str, float]:
    """Return what exists of value, interval and mean of the null."""
    estimate = report[slug]
    lower, upper = estimate.interval or (None, None)
    found = {"value": estimate.value, "lower": lower, "upper": upper}
    found["null_mean"] = estimate.null_mean
    return {name: float(each) for name, each in found.items() if each is not None}
