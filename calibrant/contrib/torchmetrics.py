"""A torchmetrics `Metric` whose state is a pane: exact over batches, epochs and ranks.

The average of the calibration errors of ranks is not the error of all predictions. Here each rank holds one packed pane in a
tensor of bytes; ranks gather the panes and merge them, which gives the same result as one process with all predictions.

    metric = CalibrationMetric(n_classes=10, metrics="ece,brier")
    for batch in loader:
        metric.update(model(batch.x).softmax(-1), batch.y)
    metric.compute()  # {"ece": tensor(0.0312), "brier": tensor(0.1120)}; metric.report() adds intervals
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrant.contrib.extras import missing
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec
from calibrant.results import Report

try:
    import torch
    from torchmetrics import Metric
except ModuleNotFoundError as error:
    raise missing(error, "torchmetrics") from error


class CalibrationMetric(Metric):
    """Calibration metrics of all predictions of an epoch, of one or several ranks.

    Parameters
    ----------
    n_classes : 2 for binary models
    metrics : slugs, as in `calibrant.evaluate`. Default: the metrics of a report
    task : "binary", "multiclass" or "segmentation". Default: binary for two classes, else multiclass
    is_logits : whether predictions are logits
    ignore_index : label of a rating that is absent
    options : further options of `calibrant.Pane.evaluate`, such as `bins` or `raters`
    kwargs : of `torchmetrics.Metric`
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = True
    panes: list[torch.Tensor]

    def __init__(
        self,
        n_classes: int,
        metrics: str | Sequence[str] | None = None,
        *,
        task: str | None = None,
        is_logits: bool = False,
        ignore_index: int = -100,
        options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spec = PaneSpec(task or ("binary" if n_classes == 2 else "multiclass"), n_classes)
        self.metrics, self.is_logits, self.ignore_index = metrics, is_logits, ignore_index
        self.options = dict(options or {})
        # A list, since panes differ in size. It always holds one tensor: each element is one collective call, and a rank
        # with fewer would skip calls that others wait for.
        self.add_state("panes", default=[], dist_reduce_fx=None)
        self.reset()

    def update(self, preds: torch.Tensor, target: torch.Tensor, units: Any = None) -> None:
        """Add predictions.

        Parameters
        ----------
        preds : (n, n_classes), (n,) for P(class 1), or (n, n_classes, ...) with pixels
        target : classes, (n,) or (n, ...); or (n, n_raters), one class per rater; `ignore_index` where there is none
        units : (n,), what is independent of the rest. A unit must be complete in one call.
        """
        scores, ratings = _rows(preds, target)
        pane = Pane.fill(
            None if self.is_logits else scores,
            logits=scores if self.is_logits else None,
            label_counts=_label_counts(ratings, self.spec.n_classes, self.ignore_index),
            units=units,
            spec=self.spec,
        )
        self.panes = [_packed(self.pane() + pane, self.device)]

    def compute(self) -> dict[str, torch.Tensor]:
        """Return the value of each metric; NaN where there is none, as `report` explains."""
        report = self.report()
        values = {name: each.value for name, each in report.items()}
        return {
            name: torch.tensor(float("nan") if value is None else value, device=self.device)
            for name, value in values.items()
            if value is None or isinstance(value, (int, float))
        }

    def report(self) -> Report:
        """Return the estimates with intervals and null references, of the predictions of this rank or, once synced, of all."""
        return self.pane().evaluate(self.metrics, **self.options)

    def pane(self) -> Pane:
        """Return the pane of the predictions so far, to store or to post to a service."""
        panes = [Pane.from_bytes(each.cpu().numpy().tobytes()) for each in self.panes]
        return sum(panes[1:], panes[0])

    def reset(self) -> None:
        """Forget all predictions."""
        super().reset()
        self.panes = [_packed(Pane(self.spec), self.device)]


def _packed(pane: Pane, device: torch.device) -> torch.Tensor:
    return torch.frombuffer(bytearray(pane.to_bytes()), dtype=torch.uint8).to(device)


def _rows(
    preds: torch.Tensor, target: torch.Tensor
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return scores (n, n_classes) or (n,), and ratings (n, n_raters), with one row per prediction or pixel."""
    scores = preds.detach().to(torch.float64).cpu().numpy()
    ratings = target.detach().cpu().numpy()
    if scores.ndim > 2:  # pixels: classes last
        scores = np.moveaxis(scores, 1, -1).reshape(-1, scores.shape[1])
        ratings = ratings.reshape(-1)
    ratings = ratings.reshape(len(ratings), -1)
    if len(ratings) != len(scores):
        raise ValueError(f"Received {len(scores)} predictions and {len(ratings)} targets.")
    return scores, ratings


def _label_counts(
    ratings: np.ndarray[Any, Any], n_classes: int, ignore_index: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the ratings per class of each row, (n, n_classes)."""
    is_rating = ratings != ignore_index
    given = ratings[is_rating]
    if given.size and not (given.min() >= 0 and given.max() < n_classes):
        raise ValueError(
            f"Received target {given.min()} to {given.max()}; expected 0 to {n_classes - 1}, or {ignore_index}."
        )
    rows = np.nonzero(is_rating)[0]
    flat = np.bincount(
        rows * n_classes + given.astype(np.int64), minlength=len(ratings) * n_classes
    )
    return flat.reshape(len(ratings), n_classes)
