"""Confidence histograms: mass of every class's probability by class, by whether it was the reference, and by fine bin.

    label[l, r, i]      mass of p_l in fine bin i; r = 1 if l is the reference label
    prediction[r, i]    mass of the top class's probability; r = 1 if the prediction is correct
    uncertainty[r, i]   mass of the entropy divided by log K; r as in prediction

Fine bin i contains [i / n, (i + 1) / n), the last also 1; measures use its centre. Histograms add, so one represents a
case, any subset of cases or all. They also include exact sums of NLL and Brier, because the lowest centre
bounds a histogram's NLL (at 10.397 for 2^14 bins).

Source
------
Kock, Thielke et al., Confidence Histograms for Model Reliability Analysis, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.entropy_cells import normalised_entropy
from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.errors import CalibrationInputError
from calibrant.core.grid import equal_width_bin
from calibrant.core.packing import PackingError, described, pack, unpack
from calibrant.core.query import policy_index

FORMAT = 1
FINE_BINS = 1 << 14
MAX_FINE_BINS = 1 << 20
DUST = 1e-12
ARRAYS = ("label", "prediction", "uncertainty", "exact")
EXACT = ("nll", "nll_weight", "brier", "zero_probability_weight")


@dataclass
class ConfidenceHistogram:
    """Histograms of some predictions of one model.

    Attributes
    ----------
    label : float64 (n_classes, 2, n_bins)
    prediction, uncertainty : float64 (2, n_bins)
    exact : float64 (4,), the sums named in `EXACT`; NLL is of ratings whose probability is not 0
    n_samples : ratings under `pooled`, else predictions
    is_weighted : whether predictions carried weights other than one, so that minimum counts are of mass
    has_predictions : whether `prediction`, `uncertainty` and `exact` were filled from rows; else see `knows`
    """

    label: Floats
    prediction: Floats
    uncertainty: Floats
    exact: Floats
    n_samples: int = 0
    is_weighted: bool = False
    has_predictions: bool = True

    @classmethod
    def empty(cls, n_classes: int, n_bins: int = FINE_BINS) -> Self:
        """Return the histogram of no predictions.

        Raises
        ------
        CalibrationInputError
            Fewer than 2 classes, or bins outside 2 to 2^20.
        """
        if n_classes < 2:
            raise CalibrationInputError.at(
                "/classes", "n_classes", f"Received {n_classes} classes; expected at least 2."
            )
        if not 2 <= n_bins <= MAX_FINE_BINS:
            raise CalibrationInputError.at(
                "/bins", "range", f"Received {n_bins} fine bins; expected 2 to {MAX_FINE_BINS}."
            )
        return cls(
            np.zeros((n_classes, 2, n_bins)),
            np.zeros((2, n_bins)),
            np.zeros((2, n_bins)),
            np.zeros(len(EXACT)),
        )

    @classmethod
    def of_batch(cls, batch: Batch, n_bins: int = FINE_BINS, raters: str = "pooled") -> Self:
        """Return the histogram of a batch's labelled predictions."""
        histogram = cls.empty(batch.n_classes, n_bins)
        histogram.fill(batch, raters)
        return histogram

    @property
    def n_classes(self) -> int:
        return len(self.label)

    @property
    def n_bins(self) -> int:
        return int(self.label.shape[2])

    @property
    def centres(self) -> Floats:
        """Centre (i + 1/2) / n of each fine bin, float64 (n_bins,)."""
        return (np.arange(self.n_bins) + 0.5) / self.n_bins

    @property
    def mass(self) -> float:
        """Weight of the samples."""
        return float(self.label[0].sum())

    def knows(self, kind: str) -> bool:
        """Return whether `prediction` or `uncertainty` includes every sample."""
        return self.has_predictions or (
            self.mass > 0 and bool(np.isclose(getattr(self, kind).sum(), self.mass, rtol=1e-6))
        )

    @property
    def knows_exact(self) -> bool:
        """Whether the exact sums include every sample."""
        counted = (
            self.exact[EXACT.index("nll_weight")]
            + self.exact[EXACT.index("zero_probability_weight")]
        )
        return self.has_predictions or (
            self.mass > 0 and bool(np.isclose(counted, self.mass, rtol=1e-6))
        )

    def fine_bin(self, score: Floats) -> Ints:
        """Return min(floor(p n), n - 1) with edges k / n by division, float64 (...,) to int64 (...,)."""
        return equal_width_bin(score, self.n_bins, "left")

    def fill(self, batch: Batch, raters: str = "pooled") -> None:
        """Add a batch's labelled predictions under a label policy.

        Raises
        ------
        ValueError
            The batch has another number of classes, or the policy is unknown.
        """
        if batch.n_classes != self.n_classes:
            raise ValueError(
                f"Received a batch of {batch.n_classes} classes; expected {self.n_classes}."
            )
        policy, batch_sums = policy_index(raters), BatchSums(batch)
        if not batch_sums.n:
            return
        correct_ratings, rows = batch_sums.correct_ratings, np.arange(batch_sums.n)
        weight = batch_sums.weights * (batch_sums.n_ratings if policy == 0 else 1)
        mine = batch_sums.policy_weights[policy]
        right = np.zeros((self.n_classes, batch_sums.n))
        right[correct_ratings.class_index, correct_ratings.row] = mine
        for class_index, column in enumerate(batch_sums.columns):
            self._add(self.label[class_index], self.fine_bin(column), weight, right[class_index])
        top = right[batch_sums.top_class, rows]
        self._add(self.prediction, self.fine_bin(batch_sums.confidence), weight, top)
        self._add(
            self.uncertainty,
            self.fine_bin(normalised_entropy(batch_sums.batch.probabilities)),
            weight,
            top,
        )
        finite = np.isfinite(batch_sums.log_probability)
        squares = np.einsum("kn,kn->n", batch_sums.columns, batch_sums.columns)
        brier = (
            squares[correct_ratings.row]
            - 2.0 * batch_sums.columns[correct_ratings.class_index, correct_ratings.row]
            + 1.0
        )
        loss = -np.where(finite, batch_sums.log_probability, 0.0)
        self.exact += [
            (mine * loss).sum(),
            mine[finite].sum(),
            (mine * brier).sum(),
            mine[~finite].sum(),
        ]
        self.n_samples += int(batch_sums.n_ratings.sum()) if policy == 0 else batch_sums.n
        self.is_weighted |= bool((batch_sums.weights != 1.0).any())

    def merge(self, other: ConfidenceHistogram) -> Self:
        """Add another histogram to this one and return this one.

        Raises
        ------
        ValueError
            Classes or fine bins differ.
        """
        return self._combine(other, 1)

    def subtract(self, other: ConfidenceHistogram) -> Self:
        """Subtract another histogram, whose predictions must be among these, from this one and return this one.

        A remainder of a bin below 1e-12 of its former mass is rounding and becomes 0.

        Raises
        ------
        ValueError
            Classes or fine bins differ.
        """
        return self._combine(other, -1)

    def copy(self) -> Self:
        twin = replace(self)
        for name in ARRAYS:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def pack(self) -> bytes:
        """Return the histogram as bytes; non-empty bins only."""
        flat = np.concatenate(
            [self.label.ravel(), self.prediction.ravel(), self.uncertainty.ravel()]
        )
        places = np.flatnonzero(flat)
        about = {
            "confidence_histogram": FORMAT,
            "n_classes": self.n_classes,
            "n_bins": self.n_bins,
            "n_samples": self.n_samples,
            "is_weighted": self.is_weighted,
            "has_predictions": self.has_predictions,
        }
        return pack(
            {"places": np.diff(places, prepend=0), "mass": flat[places], "exact": self.exact}, about
        )

    @staticmethod
    def packed_size(data: bytes) -> tuple[int, int]:
        """Read the number of classes and the bytes in memory of a packed histogram, without unpacking it.

        Raises
        ------
        PackingError
            As `unpack`, where the header is damaged.
        """
        about, content = described(data)
        n_classes, n_bins = about.get("n_classes"), about.get("n_bins")
        is_known = about.get("confidence_histogram") == FORMAT
        if not (is_known and type(n_classes) is int and type(n_bins) is int):
            raise PackingError(f"not a confidence histogram in format {FORMAT}")
        return n_classes, content + 8 * (2 * n_classes + 4) * n_bins

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Read a histogram that `pack` wrote.

        Raises
        ------
        PackingError
            Not a packed histogram, damaged, or of a newer format.
        """
        arrays, about = unpack(data)
        if about.get("confidence_histogram") != FORMAT:
            raise PackingError(f"not a confidence histogram in format {FORMAT}")
        try:
            histogram = cls.empty(about["n_classes"], about["n_bins"])
            histogram._read(arrays)
            histogram.n_samples = int(about["n_samples"])
            histogram.is_weighted, histogram.has_predictions = (
                about["is_weighted"],
                about["has_predictions"],
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise PackingError(f"not a confidence histogram: {error}") from error
        return histogram

    def save(self, path: str | Path) -> None:
        """Write the packed histogram to a file."""
        Path(path).write_bytes(self.pack())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a histogram that `save` wrote.

        Raises
        ------
        PackingError
            As `unpack`.
        """
        return cls.unpack(Path(path).read_bytes())

    def _add(self, table: Floats, place: Ints, weight: Floats, right: Floats) -> None:
        table[0] += np.bincount(place, weight - right, self.n_bins)
        table[1] += np.bincount(place, right, self.n_bins)

    def _combine(self, other: ConfidenceHistogram, sign: int) -> Self:
        if other.label.shape != self.label.shape:
            raise ValueError(
                "Received histograms of different classes or fine bins; expected equal ones."
            )
        for name in ARRAYS:
            mine, theirs = getattr(self, name), getattr(other, name)
            sums = mine + sign * theirs
            setattr(
                self,
                name,
                np.where(np.abs(sums) <= DUST * np.abs(mine), 0.0, sums) if sign < 0 else sums,
            )
        self.n_samples += sign * other.n_samples
        self.is_weighted |= other.is_weighted
        self.has_predictions &= other.has_predictions
        return self

    def _read(self, arrays: dict[str, NDArray[Any]]) -> None:
        flat = np.zeros(self.label.size + self.prediction.size + self.uncertainty.size)
        places = np.cumsum(arrays["places"])
        mass, exact = arrays["mass"], arrays["exact"]
        rising = len(places) == 0 or (places[0] >= 0 and (np.diff(places) > 0).all())
        if places.shape != mass.shape or exact.shape != (len(EXACT),) or not rising:
            raise ValueError("Received columns whose lengths do not match.")
        if not (np.isfinite(mass).all() and (mass >= 0).all() and np.isfinite(exact).all()):
            raise ValueError("Received a mass out of range.")
        flat[places] = mass
        label, prediction, uncertainty = np.split(
            flat, np.cumsum([self.label.size, self.prediction.size])
        )
        self.label = label.reshape(self.label.shape)
        self.prediction = prediction.reshape(self.prediction.shape)
        self.uncertainty, self.exact = uncertainty.reshape(self.uncertainty.shape), exact


def coarse_bins(n_bins: int, bins: int) -> Ints:
    """Return the equal-width coarse bin of each fine bin's centre, int64 (n_bins,), in integers so that rounding has no effect."""
    return (2 * np.arange(n_bins) + 1) * bins // (2 * n_bins)
