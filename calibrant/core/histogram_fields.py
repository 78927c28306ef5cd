"""Fields of a posted histogram, checked: a violation names the field and its rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats
from calibrant.core.errors import CalibrationInputError
from calibrant.core.label_policies import POLICIES
from calibrant.core.spec import PaneSpec
from calibrant.input.names import checked_name, invalid_name, name_of
from calibrant.input.timestamps import rejection, timestamp_us

KINDS = ("top_label", "class", "positive", "uncertainty")
FIELDS = frozenset(
    [
        *("kind", "class", "raters", "bins", "edges", "count", "sum_confidence", "sum_correct"),
        *("n_predictions", "n_units", "unit", "case", "event_time", "slice"),
    ]
)
SUM_TOLERANCE = 1e-6
UNCERTAINTY_CELLS = 240
MAX_PREDICTIONS = 10**12  # so that no number of updates approaches the end of int64


def grid_cells(kind: str, spec: PaneSpec) -> int:
    """Return the number of cells to which histograms of a kind are added."""
    if kind == "uncertainty":
        return UNCERTAINTY_CELLS
    return (spec.class_grid if kind == "class" else spec.top_grid).cells


class HistogramFields:
    """The fields of one histogram as sent, checked when they are read."""

    def __init__(self, fields: Any, spec: PaneSpec, pointer: str) -> None:
        self.fields: Mapping[str, Any] = fields
        self.spec, self.pointer = spec, pointer
        if not isinstance(fields, Mapping):
            detail = "Received another type; expected an object."
            raise CalibrationInputError.at(pointer, "object", detail)
        for name in fields:
            if name not in FIELDS:
                detail = f"Received field {str(name)[:60]!r}, which a histogram does not have. Remove it."
                self._reject(str(name), "unknown_field", detail)

    def read(self) -> dict[str, Any]:
        """Return the histogram's attributes by name."""
        kind = self._one_of("kind", KINDS, None)
        if kind == "positive" and self.spec.n_classes != 2:
            detail = "Received kind positive; it requires a model of two classes."
            self._reject("kind", "task", detail)
        class_index = self._class(kind)
        policy = self._one_of("raters", POLICIES, "pooled")
        edges = self._one_of("edges", ("right", "left"), "right")
        bins = self._bins(kind)
        count = self._column("count", bins)
        confidence = self._column("sum_confidence", bins)
        correct = self._column("sum_correct", bins)
        self._consistent(bins, count, confidence, correct)
        n_predictions = self._n_predictions(count)
        return {
            "kind": kind,
            "class_index": class_index,
            "policy": policy,
            "bins": bins,
            "edges": edges,
            "count": count,
            "sum_confidence": confidence,
            "sum_correct": correct,
            "n_predictions": n_predictions,
            "n_units": self._n_units(n_predictions),
            "unit": self._name("unit"),
            "case": self._name("case"),
            "event_time": self._event_time(),
            "slice": self._slice(),
        }

    def _reject(self, name: str, rule: str, detail: str) -> None:
        raise CalibrationInputError.at(f"{self.pointer}/{name}", rule, detail)

    def _one_of(self, name: str, known: tuple[str, ...], default: str | None) -> str:
        value = self.fields.get(name)
        if value is None:
            value = default
        if value not in known or not isinstance(value, str):
            detail = f"Received {name} {str(value)[:60]!r}; expected one of {', '.join(known)}."
            self._reject(name, "one_of", detail)
        return str(value)

    def _class(self, kind: str) -> int | None:
        class_index = self.fields.get("class")
        if kind != "class":
            if class_index is not None:
                self._reject("class", "class_index", "Received class without kind class. Omit it.")
            return None
        if type(class_index) is not int or not 0 <= class_index < self.spec.n_classes:
            detail = f"Received another class; expected its index, 0 to {self.spec.n_classes - 1}."
            self._reject("class", "class_range", detail)
        return class_index

    def _bins(self, kind: str) -> int:
        bins = self.fields.get("bins")
        cells = grid_cells(kind, self.spec)
        if type(bins) is not int or bins < 1 or bins % cells or bins > 64 * cells:
            if kind == "uncertainty":
                detail = f"Received other bins; expected {cells}, or a multiple of it."
                self._reject("bins", "bins", detail)
            detail = f"Received other bins; expected the model's grid, {cells}, or a multiple of it. Declare a coarser grid for coarse histograms."
            self._reject("bins", "bins", detail)
        return int(bins or 0)

    def _column(self, name: str, bins: int) -> Floats:
        column = self.fields.get(name)
        if not isinstance(column, list | np.ndarray) or len(column) != bins:
            detail = f"Received another value; expected a list of {bins} numbers."
            self._reject(name, "length", detail)
            raise AssertionError
        values = np.zeros(bins)
        for i, value in enumerate(column.tolist() if isinstance(column, np.ndarray) else column):
            if type(value) not in (int, float) or not abs(value) <= 2.0**53:
                detail = "Received another value; expected a finite number of at most 2^53."
                self._reject(f"{name}/{i}", "number", detail)
            if value < 0:
                detail = "Received a negative value; expected counts and sums of at least 0."
                self._reject(f"{name}/{i}", "negative_count", detail)
            values[i] = value
        return values

    def _whole_column(self, name: str, bins: int) -> NDArray[np.int64] | None:
        if self.fields.get(name) is None:
            return None
        column = self._column(name, bins)
        bad = np.flatnonzero(column != np.floor(column))
        if len(bad):
            detail = f"Received a fraction; expected integers in {name}."
            self._reject(f"{name}/{bad[0]}", "integer", detail)
        if column.sum() > MAX_PREDICTIONS:
            detail = f"Received more than {MAX_PREDICTIONS} predictions in one update. Send several updates."
            self._reject(name, "count_limit", detail)
        return column.astype(np.int64)

    def _n_predictions(self, count: Floats) -> NDArray[np.int64] | None:
        numbers = self._whole_column("n_predictions", len(count))
        bad = np.flatnonzero((numbers == 0) & (count > 0)) if numbers is not None else np.array([])
        if len(bad):
            detail = "Received a count without predictions; expected at least one prediction in a bin with a count."
            self._reject(f"n_predictions/{bad[0]}", "count_without_predictions", detail)
        return numbers

    def _consistent(self, bins: int, count: Floats, confidence: Floats, correct: Floats) -> None:
        """Raise unless confidences are in their bin and correct ratings do not exceed the count, within rounding."""
        slack = SUM_TOLERANCE * count
        lower, upper = np.arange(bins) / bins, np.arange(1, bins + 1) / bins
        outside = (confidence < count * lower - slack) | (confidence > count * upper + slack)
        if outside.any():
            i = int(np.flatnonzero(outside)[0])
            detail = f"Received a mean confidence outside bin {i}; expected one in [{lower[i]:.6g}, {upper[i]:.6g}]."
            self._reject(f"sum_confidence/{i}", "bin_mean", detail)
        if (correct > count + slack).any():
            i = int(np.flatnonzero(correct > count + slack)[0])
            detail = "Received more correct than counted; expected at most the count of the bin."
            self._reject(f"sum_correct/{i}", "correct_above_count", detail)

    def _n_units(self, n_predictions: NDArray[np.int64] | None) -> int | None:
        value = self.fields.get("n_units")
        if value is not None and (type(value) is not int or value < 1 or value > 2**53):
            detail = "Received another value for n_units; expected an integer of at least 1."
            self._reject("n_units", "integer", detail)
        if (
            value is not None
            and n_predictions is not None
            and value > max(int(n_predictions.sum()), 1)
        ):
            detail = f"Received n_units={value}; expected at most {n_predictions.sum()}, the sum of n_predictions: each unit has one or more."
            self._reject("n_units", "units_above_predictions", detail)
        return value

    def _name(self, name: str) -> str | None:
        value = self.fields.get(name)
        return None if value is None else checked_name(value, f"{self.pointer}/{name}")

    def _event_time(self) -> int | None:
        value = self.fields.get("event_time")
        if value is None:
            return None
        micros = timestamp_us(value)
        if micros is None:
            self._reject("event_time", *rejection(value))
        return micros

    def _slice(self) -> tuple[tuple[str, str], ...]:
        value = self.fields.get("slice")
        if value is None:
            return ()
        if not isinstance(value, Mapping):
            detail = "Received another value; expected an object of keys and values."
            self._reject("slice", "slice", detail)
            raise AssertionError
        found = {name_of(str(key)): name_of(text) for key, text in value.items()}
        for key, text in value.items():
            if name_of(str(key)) is None or name_of(text) is None:
                self._reject(f"slice/{key}", "name", invalid_name(text))
        return tuple(sorted((str(key), str(text)) for key, text in found.items()))
