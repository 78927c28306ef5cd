"""MONAI: a metric that fills one pane per case, with one or several readers, and its Ignite handler.

    metric = CasePanesMetric(n_classes=3, metrics="ece")
    for batch in loader:
        metric(model(batch["image"]).softmax(1), batch["readers"], cases=batch["case"], units=batch["patient"])
    metric.aggregate()  # of the pixels of all cases together; metric.report() adds intervals
    metric.panes["case-7"].reliability()

MONAI's buffers are stacked and gathered as tensors of one shape. Panes differ in size, so ranks gather them as objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibrant.contrib.extras import missing
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec
from calibrant.results import Report

try:
    import torch
    from monai.handlers import IgniteMetricHandler
    from monai.metrics import CumulativeIterationMetric
except ModuleNotFoundError as error:
    raise missing(error, "monai") from error

Names = Sequence[Any] | None


class CasePanesMetric(CumulativeIterationMetric):
    """Calibration of segmentations: a pane per case, in the memory of its sums instead of its pixels.

    Parameters
    ----------
    n_classes : with the background; 2 for a binary segmentation
    metrics : slugs, as in `calibrant.evaluate`
    is_logits : whether predictions are logits
    one_hot : whether labels are one-hot, (n_classes, spatial). Default: classes, (readers, spatial), one map per reader
    ignore_index : class of a pixel that a reader has not labelled
    options : further options of `calibrant.Pane.evaluate`, such as `bins` or `raters`

    Attributes
    ----------
    panes : by case, of this rank
    """

    def __init__(
        self,
        n_classes: int,
        metrics: str | Sequence[str] = "ece",
        *,
        is_logits: bool = False,
        one_hot: bool = False,
        ignore_index: int = -1,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.spec = PaneSpec("segmentation", n_classes)
        self.metrics, self.is_logits, self.one_hot = metrics, is_logits, one_hot
        self.ignore_index, self.options = ignore_index, dict(options or {})
        self.panes: dict[str, Pane] = {}
        super().__init__()

    def reset(self) -> None:
        """Forget all cases."""
        super().reset()
        self.panes = {}

    def _compute_list(
        self, y_pred: Any, y: Any = None, cases: Names = None, units: Names = None, **_: Any
    ) -> torch.Tensor:
        return self._compute_tensor(y_pred, y, cases=cases, units=units)

    def _compute_tensor(
        self, y_pred: Any, y: Any = None, cases: Names = None, units: Names = None, **_: Any
    ) -> torch.Tensor:
        """Fill the panes of a batch; return the metrics of each image, (batch, metrics).

        Parameters
        ----------
        y_pred : (batch, channels, spatial), or a list of (channels, spatial); one channel is P(class 1) of two
        y : as `one_hot` says
        cases, units : names per image. Default: a number per case; the unit is the case
        """
        if y is None or len(y) != len(y_pred):
            raise ValueError(f"Received {len(y_pred)} predictions; expected as many labels.")
        n_cases = len(self.panes)
        rank = torch.distributed.get_rank() if _is_distributed() else 0
        found = []
        for index, (scores, labels) in enumerate(zip(y_pred, y, strict=True)):
            case = str(cases[index]) if cases is not None else f"{rank}.{n_cases + index}"
            unit = str(units[index]) if units is not None else case
            pane = self._filled(scores, labels, case, unit)
            self.panes[case] = self.panes[case] + pane if case in self.panes else pane
            found.append(self._values(pane))
        return torch.tensor(found, dtype=torch.float64)

    def _filled(self, scores: Any, labels: Any, case: str, unit: str) -> Pane:
        rows = _pixels(scores).astype(np.float64)
        if rows.shape[1] == 1:
            other = np.zeros_like(rows) if self.is_logits else 1.0 - rows
            rows = np.concatenate([other, rows], axis=1)
        label_counts = self._label_counts(_pixels(labels))
        if len(label_counts) != len(rows):
            detail = f"expected {len(label_counts)}, as labels have."
            raise ValueError(f"Received {len(rows)} pixels of case {case}; {detail}")
        return Pane.fill(
            None if self.is_logits else rows,
            logits=rows if self.is_logits else None,
            label_counts=label_counts,
            cases=np.full(len(rows), case),
            units=np.full(len(rows), unit),
            spec=self.spec,
        )

    def _label_counts(self, labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return ratings per pixel and class of labels (pixels, channels)."""
        n_classes = self.spec.n_classes
        if self.one_hot:
            if labels.shape[1] != n_classes:
                raise ValueError(f"Received {labels.shape[1]} channels; expected {n_classes}.")
            return labels.astype(np.int64)
        is_rating = labels != self.ignore_index
        if not np.isin(labels[is_rating], np.arange(n_classes)).all():
            raise ValueError(
                f"Received labels outside 0 to {n_classes - 1}; mark absent ones as {self.ignore_index}."
            )
        return np.stack([(labels == each).sum(axis=1) for each in range(n_classes)], axis=1)

    def collected(self) -> dict[str, Pane]:
        """Return the panes of all ranks. Of a case that a sampler repeats on another rank, the first counts."""
        if not _is_distributed():
            return dict(self.panes)
        packed: list[Any] = [None] * torch.distributed.get_world_size()
        own = {case: pane.to_bytes() for case, pane in self.panes.items()}
        torch.distributed.all_gather_object(packed, own)
        found: dict[str, Pane] = {}
        for panes in packed:
            found |= {
                case: Pane.from_bytes(data) for case, data in panes.items() if case not in found
            }
        return found

    def report(self) -> Report:
        """Return the estimates of all cases of all ranks, with intervals and null references."""
        panes = list(self.collected().values())
        return sum(panes, Pane(self.spec)).evaluate(self.metrics, **self.options)

    def aggregate(self) -> torch.Tensor:
        """Return the metrics of all cases together, (metrics,): of their pixels, not the average of their metrics."""
        return torch.tensor(_numbers(self.report()), dtype=torch.float64)

    def _values(self, pane: Pane) -> list[float]:
        return _numbers(pane.evaluate(self.metrics, **self.options))


class CasePanesHandler(IgniteMetricHandler):
    """Ignite handler of `CasePanesMetric`: reads names of cases and units from the engine's batch.

    Parameters
    ----------
    metric : CasePanesMetric
    case_key, unit_key : keys of the batch, a dict of lists or a list of dicts. None: numbers of cases; the unit is the case
    output_transform, save_details : of `monai.handlers.IgniteMetricHandler`
    """

    def __init__(
        self,
        metric: CasePanesMetric,
        case_key: str | None = "case",
        unit_key: str | None = None,
        output_transform: Any = lambda output: output,
        save_details: bool = True,
    ) -> None:
        self.case_key, self.unit_key = case_key, unit_key
        super().__init__(
            metric_fn=metric, output_transform=output_transform, save_details=save_details
        )

    def update(self, output: Any) -> None:
        """Fill the panes of the engine's current batch."""
        if self._engine is None:
            raise RuntimeError("Received output of no engine. Call attach() first.")
        y_pred, y = output
        batch = self._engine.state.batch
        cases, units = _names(batch, self.case_key), _names(batch, self.unit_key)
        self._is_reduced = False
        self.metric_fn(y_pred, y, cases=cases, units=units)


def _names(batch: Any, key: str | None) -> list[Any] | None:
    if key is None:
        return None
    found = batch[key] if isinstance(batch, Mapping) else [each[key] for each in batch]
    return found.tolist() if isinstance(found, torch.Tensor) else list(found)


def _pixels(image: Any) -> np.ndarray[Any, Any]:
    """Return (channels, spatial) as (pixels, channels)."""
    array: np.ndarray[Any, Any] = torch.as_tensor(image).detach().cpu().numpy()
    return array.reshape(len(array), -1).T


def _numbers(report: Report) -> list[float]:
    """Return the value of each metric; NaN where there is none."""
    return [float("nan") if each.value is None else float(each) for each in report.values()]


def _is_distributed() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())
