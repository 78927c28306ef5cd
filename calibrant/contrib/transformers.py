"""Hugging Face `Trainer`: calibration metrics of every evaluation, and the evaluated predictions as a pane.

    calibration = CalibrationMetrics(n_classes=3, metrics="ece,brier")
    trainer = Trainer(..., compute_metrics=calibration, callbacks=[CalibrationCallback(calibration, client.model("triage"))])

Callbacks receive no predictions, so `compute_metrics` fills the pane and the callback sends it, from the first process only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from calibrant.contrib.extras import missing
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec
from calibrant.results import Report

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise missing(error, "transformers") from error

NO_LABEL = -100


class CalibrationMetrics:
    """A `compute_metrics` that adds calibration metrics; with `batch_eval_metrics=True` batch by batch.

    Parameters
    ----------
    n_classes : 2 for binary models
    metrics : slugs, as in `calibrant.evaluate`
    index : of the logits, if the model returns several outputs
    also : another `compute_metrics`, whose values are added
    options : further options of `calibrant.Pane.evaluate`

    Attributes
    ----------
    pane : of the last evaluation, None before the first. Labels of -100 are left out.
    report : of the last evaluation, with intervals and null references
    """

    def __init__(
        self,
        n_classes: int,
        metrics: str | Sequence[str] = ("ece", "brier", "nll"),
        *,
        index: int = 0,
        also: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.spec = PaneSpec("binary" if n_classes == 2 else "multiclass", n_classes)
        self.metrics, self.index, self.also = metrics, index, also
        self.options = dict(options or {})
        self.pane: Pane | None = None
        self.report: Report | None = None
        self._filling: Pane | None = None

    def __call__(self, predictions: Any, compute_result: bool = True) -> dict[str, Any]:
        """Return the metrics of an `EvalPrediction`; of a batch that is not the last, nothing."""
        filled = self._pane_of(predictions)
        self._filling = filled if self._filling is None else self._filling + filled
        others: dict[str, Any] = {}
        if self.also is not None:
            is_batch = not compute_result or self._filling is not filled
            others = (
                self.also(predictions, compute_result=compute_result)
                if is_batch
                else self.also(predictions)
            ) or {}
        if not compute_result:
            return others
        self.pane, self._filling = self._filling, None
        self.report = self.pane.evaluate(self.metrics, **self.options)
        found = {name: each.value for name, each in self.report.items()}
        return others | {name: value for name, value in found.items() if value is not None}

    def _pane_of(self, predictions: Any) -> Pane:
        logits, labels = predictions.predictions, _array(predictions.label_ids)
        if isinstance(logits, tuple | list):
            logits = logits[self.index]
        logits = _array(logits).astype(np.float64)
        if logits.shape[:-1] != labels.shape or logits.shape[-1] != self.spec.n_classes:
            raise ValueError(
                f"Received logits {logits.shape} and labels {labels.shape}; expected (..., {self.spec.n_classes}) and (...)."
            )
        labels, logits = labels.reshape(-1), logits.reshape(-1, self.spec.n_classes)
        has_label = labels != NO_LABEL
        return Pane.fill(logits=logits[has_label], labels=labels[has_label], spec=self.spec)


class CalibrationCallback(TrainerCallback):
    """Sends the pane of each evaluation to the service, from the first process.

    Parameters
    ----------
    calibration : the `compute_metrics` of the trainer
    model : `client.model(name)`
    run, event_time : name and time of the run, given together: name and step make the batch id, so that an equal evaluation
        that is repeated counts once. Default: each evaluation counts, at its own time
    slice : value per slice key, of all predictions
    """

    def __init__(
        self,
        calibration: CalibrationMetrics,
        model: Any,
        *,
        run: str | None = None,
        event_time: datetime | None = None,
        slice: Mapping[str, str] | None = None,
    ) -> None:
        if (run is None) != (event_time is None):
            raise ValueError("Received one of run and event_time; expected both or none.")
        self.calibration, self.model = calibration, model
        self.run, self.event_time = run, event_time
        self.slice = dict(slice or {})

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Send the pane."""
        if not state.is_world_process_zero or self.calibration.pane is None:
            return
        batch_id = None if self.run is None else f"{self.run}.{state.global_step}"
        self.model.send_pane(
            self.calibration.pane,
            event_time=self.event_time,
            slice=self.slice or None,
            batch_id=batch_id,
        )


def _array(values: Any) -> np.ndarray[Any, Any]:
    """Return a tensor, of any device, or an array as an array."""
    if hasattr(values, "detach"):
        values = values.detach().float().cpu() if values.is_floating_point() else values.cpu()
    return np.asarray(values)
