"""Conversion of confidence histograms: from the arrays of a request, and to updates of `POST histograms`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.errors import CalibrationInputError
from calibrant.core.histogram import Histogram
from calibrant.core.histogram_fields import UNCERTAINTY_CELLS
from calibrant.core.spec import PaneSpec
from calibrant.segmentation.class_histograms import (
    EXACT,
    MAX_FINE_BINS,
    ConfidenceHistogram,
    coarse_bins,
)

FIELDS = ("label", "prediction", "uncertainty")
MASS_TOLERANCE = 1e-6
MAX_MASS = 2.0**53


def read_arrays(
    fields: Mapping[str, Any], n_classes: int | None = None, pointer: str = ""
) -> ConfidenceHistogram:
    """Check a confidence histogram given as arrays.

    Parameters
    ----------
    fields : `label` (n_classes, 2, n_bins): mass of each class's probability if it is not and if it is the
        reference; `prediction` and `uncertainty` (2, n_bins): of the top class, incorrect and correct; for two classes
        `prediction` follows from `label`; `exact`: the sums named in `EXACT`, of all samples
    n_classes : of the model, if there is one
    pointer : location of the fields in the request

    Raises
    ------
    CalibrationInputError
        An array of another shape, a negative or infinite mass, or masses or sums that contradict each other.
    """
    label = _array(fields.get("label"), f"{pointer}/label", None)
    if n_classes is not None and len(label) != n_classes:
        detail = f"Received {len(label)} pairs of histograms; expected one for each of the model's {n_classes} classes."
        raise CalibrationInputError.at(f"{pointer}/label", "shape", detail)
    histogram = ConfidenceHistogram.empty(len(label), label.shape[2])
    histogram.label = label
    _check_label(label, f"{pointer}/label")
    given = {name: fields[name] for name in FIELDS[1:] if fields.get(name) is not None}
    for name, rows in given.items():
        table = _array(rows, f"{pointer}/{name}", histogram.n_bins)
        _same_mass(float(table.sum()), histogram.mass, f"{pointer}/{name}")
        setattr(histogram, name, table)
    if "prediction" not in given and histogram.n_classes == 2:
        histogram.prediction = prediction_of_two(label, f"{pointer}/prediction")
    histogram.has_predictions = False
    if fields.get("exact") is not None:
        histogram.exact = _sums(fields["exact"], histogram.mass, f"{pointer}/exact")
    histogram.n_samples = round(histogram.mass)
    histogram.is_weighted = bool((label != np.floor(label)).any())
    return histogram


def prediction_of_two(label: Floats, pointer: str = "/prediction") -> Floats:
    """Return the top class's histogram of two classes, which is in the upper half of both of theirs; (2, n_bins).

    Raises
    ------
    CalibrationInputError
        An odd number of bins, or indistinguishable predictions in the bin above 1/2: one of exactly 1/2 would
        count twice, and then the two halves have more than all predictions.
    """
    half = label.shape[2] // 2
    table = np.zeros((2, label.shape[2]))
    table[:, half:] = label[:, :, half:].sum(axis=0)
    if label.shape[2] % 2:
        raise CalibrationInputError.at(
            pointer,
            "required",
            "Received no prediction; expected it: with an odd number of bins it does not follow from label.",
        )
    _same_mass(float(table.sum()), float(label[0].sum()), pointer)
    return table


def updates_of(
    histogram: ConfidenceHistogram, spec: PaneSpec, raters: str = "pooled", **of: Any
) -> list[Histogram]:
    """Return the histogram as updates of `POST histograms`: one per class, and of top label and uncertainty if filled.

    For two classes, class 1 is also sent as `positive`. Bins are regrouped by their centres to the model's grid and
    Σ confidence is of centres, so a mean is off by at most 1 / (2 n_bins). Scores in a fine bin that an edge of the
    grid cuts can be in the neighbouring bin; no bin is cut if n_bins is a multiple of the grid (14400 of 3600).
    Edges are "left".

    Parameters
    ----------
    of : `case`, `unit` or `n_units` of every update

    Raises
    ------
    CalibrationInputError
        The spec has another number of classes, or its grid is finer than the histogram.
    """
    finest = max(spec.top_grid.cells, spec.class_grid.cells)
    if spec.n_classes != histogram.n_classes or finest > histogram.n_bins:
        detail = (
            f"Received {histogram.n_classes} classes and {histogram.n_bins} fine bins; expected {spec.n_classes} classes and "
            f"at least {finest} fine bins."
        )
        raise CalibrationInputError.at("/label", "shape", detail)
    class_cells, top_cells = spec.class_grid.cells, spec.top_grid.cells
    made = [
        _update(table, "class", k, class_cells, raters, of)
        for k, table in enumerate(histogram.label)
    ]
    if spec.n_classes == 2:
        made.append(_update(histogram.label[1], "positive", None, top_cells, raters, of))
    if histogram.knows("prediction"):
        made.append(_update(histogram.prediction, "top_label", None, top_cells, raters, of))
    if histogram.knows("uncertainty") and histogram.n_bins >= UNCERTAINTY_CELLS:
        uncertain = histogram.uncertainty
        made.append(_update(uncertain, "uncertainty", None, UNCERTAINTY_CELLS, raters, of))
    return made


def _update(
    table: Floats,
    kind: str,
    class_index: int | None,
    cells: int,
    raters: str,
    of: Mapping[str, Any],
) -> Histogram:
    n = table.shape[1]
    place, centres = coarse_bins(n, cells), (np.arange(n) + 0.5) / n
    count, confidence, correct = (
        np.bincount(place, values, cells).astype(np.float64)
        for values in (table.sum(axis=0), table.sum(axis=0) * centres, table[1])
    )
    return Histogram(kind, class_index, raters, cells, "left", count, confidence, correct, **of)


def _array(value: Any, pointer: str, n_bins: int | None) -> Floats:
    """Read a list of numbers as float64, (n_classes, 2, n_bins) if `n_bins` is not given, else (2, n_bins)."""
    wanted = (
        "(classes, 2, bins), at least two classes and two bins"
        if n_bins is None
        else f"(2, {n_bins})"
    )
    try:
        found = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if n_bins is None:
        fits = (
            found.ndim == 3
            and found.shape[1] == 2
            and found.shape[0] >= 2 <= found.shape[2] <= MAX_FINE_BINS
        )
    else:
        fits = found.shape == (2, n_bins)
    if not fits:
        detail = f"Received the shape {found.shape}; expected {wanted}: for each of incorrect and correct one number per fine bin."
        raise CalibrationInputError.at(pointer, "shape", detail)
    if not (np.isfinite(found).all() and (found >= 0.0).all() and (found <= MAX_MASS).all()):
        raise CalibrationInputError.at(
            pointer,
            "number",
            "Received another value; expected a number from 0 to 2^53 for every mass.",
        )
    return found


def _sums(value: Any, mass: float, pointer: str) -> Floats:
    """Read the sums named in `EXACT`, of samples of this mass; float64 (4,)."""
    named = set(value) == set(EXACT) if isinstance(value, Mapping) else False
    try:
        found = np.array([value[name] for name in EXACT] if named else [], np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.shape != (len(EXACT),) or not (np.isfinite(found).all() and (found >= 0.0).all()):
        raise CalibrationInputError.at(
            pointer, "number", f"Received other sums; expected {', '.join(EXACT)}, each at least 0."
        )
    _same_mass(
        float(found[EXACT.index("nll_weight")] + found[EXACT.index("zero_probability_weight")]),
        mass,
        pointer,
    )
    return found


def _check_label(label: Floats, pointer: str) -> None:
    """Raise unless every class counts every sample, and every sample has one reference class."""
    mass = label.sum(axis=(1, 2))
    for class_index, own in enumerate(mass):
        _same_mass(float(own), float(mass[0]), f"{pointer}/{class_index}")
    _same_mass(float(label[:, 1].sum()), float(mass[0]), pointer)


def _same_mass(found: float, expected: float, pointer: str) -> None:
    if abs(found - expected) > MASS_TOLERANCE * max(found, expected):
        once = "every sample counts once in each class, once as reference, once as prediction"
        detail = f"Received masses {found:.17g} and {expected:.17g}; expected equal ones: {once}."
        raise CalibrationInputError.at(pointer, "mass", detail)
