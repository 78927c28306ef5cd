"""Confidence histograms regrouped into coarse bins, and their gaps.

Fine bins are regrouped by their centres. Coarse bins with fewer than 50 samples (mass, where predictions are
weighted; label histograms count each sample once per class) are discarded. The discarded mass is returned,
and errors are weighted by the remaining or by the full mass, as requested.

Source
------
Kock, Thielke et al., eq. 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, ratio
from calibrant.core.cells import equal_mass_groups
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError, check_one_of, check_range
from calibrant.segmentation.class_histograms import ConfidenceHistogram, coarse_bins

BINS = 20
LEAST = 50
DENOMINATORS = ("kept", "full")
BINNINGS = ("equal_width", "equal_mass")


@dataclass(frozen=True)
class CoarseTable:
    """Regrouped histogram.

    Attributes
    ----------
    mass, confidence, correct_ratings : float64 (n_bins,); Σ weight, Σ weight · centre, weight with r = 1
    lower, upper : float64 (n_bins,), bounds of the bins
    kept : bool (n_bins,), whether a bin reaches the minimum
    """

    mass: Floats
    confidence: Floats
    correct_ratings: Floats
    lower: Floats
    upper: Floats
    kept: NDArray[np.bool_]

    @property
    def mean(self) -> Floats:
        """Mean centre of each bin, nan if it is empty."""
        return ratio(self.confidence, self.mass, np.nan)

    @property
    def rate(self) -> Floats:
        """Share with r = 1 of each bin, nan if it is empty."""
        return ratio(self.correct_ratings, self.mass, np.nan)

    def errors(self, denominator: str = "kept", ideal: Floats | None = None) -> Result:
        """Return calibration errors over the remaining bins.

        Parameters
        ----------
        denominator : "kept" (eq. 2) or "full" (the published code)
        ideal : expected rate, (n_bins,). Default: the mean confidence.

        Returns
        -------
        dict with `ece` (weighted), `mce` (maximum), `ace` (unweighted), all None if no bins remain; `mass`,
        `discarded_mass`, `n_bins_kept`.
        """
        total = float(self.mass.sum())
        kept = self.kept & (self.mass > 0)
        about = {
            "mass": total,
            "discarded_mass": total - float(self.mass[kept].sum()),
            "n_bins_kept": int(kept.sum()),
            "denominator": denominator,
        }
        if not kept.any():
            return {"ece": None, "mce": None, "ace": None} | about
        gap = np.abs(self.rate - (self.mean if ideal is None else ideal))[kept]
        mass = self.mass[kept]
        under = total if denominator == "full" else mass.sum()
        return {
            "ece": float((mass * gap).sum() / under),
            "mce": float(gap.max()),
            "ace": float(gap.mean()),
        } | about


def coarse_table(
    histogram: ConfidenceHistogram,
    kind: str = "prediction",
    bins: int = BINS,
    *,
    label: int | None = None,
    binning: str = "equal_width",
    least: float = LEAST,
) -> CoarseTable:
    """Regroup a histogram into coarse bins.

    Parameters
    ----------
    kind : "prediction", "uncertainty", "label" (with `label`), or "all" for every label in one
    bins : number of coarse bins, at most that of fine ones
    binning : "equal_width" by centre, or "equal_mass" (fine bins are never cut, so there can be fewer bins)
    least : minimum of samples, or of mass if predictions are weighted, for a bin to remain

    Raises
    ------
    CalibrationInputError
        An option outside its range, or a kind that was not filled.
    """
    check_range("bins", bins, 1, histogram.n_bins)
    check_one_of("binning", binning, BINNINGS)
    return regrouped(
        fine_table(histogram, kind, label), histogram.centres, bins, binning=binning, least=least
    )


def regrouped(
    table: Floats,
    centres: Floats,
    bins: int = BINS,
    *,
    binning: str = "equal_width",
    least: float = LEAST,
) -> CoarseTable:
    """Regroup fine bins (2, n_fine) by their increasing centres, as `coarse_table`."""
    mass = table.sum(axis=0)
    n = len(centres)
    if binning == "equal_mass":
        filled = np.flatnonzero(mass > 0)
        group = equal_mass_groups(mass[filled], bins)
        place = np.zeros(n, np.int64)
        place[filled] = group
        size = int(group[-1]) + 1 if len(group) else 0
        starts = filled[np.searchsorted(group, np.arange(size))]
        lower = np.concatenate([[0.0], starts[1:] / n]) if size else np.zeros(0)
        upper = np.concatenate([lower[1:], [1.0]]) if size else np.zeros(0)
    else:
        place, size = coarse_bins(n, bins), bins
        lower, upper = np.arange(bins) / bins, np.arange(1, bins + 1) / bins
    if not size:
        nothing = np.zeros(0)
        return CoarseTable(nothing, nothing, nothing, lower, upper, np.zeros(0, bool))
    total, confidence, correct_ratings = (
        np.bincount(place, values, size).astype(np.float64)
        for values in (mass, mass * centres, table[1])
    )
    return CoarseTable(
        total, confidence, correct_ratings, lower, upper, (total >= least) & (total > 0)
    )


def fine_table(histogram: ConfidenceHistogram, kind: str, label: int | None) -> Floats:
    """Return the fine bins of a kind, (2, n_bins), as named in `coarse_table`.

    Raises
    ------
    CalibrationInputError
        An unknown kind or label, or one that was not filled.
    """
    if kind == "all":
        return np.asarray(histogram.label.sum(axis=0))
    if kind == "label":
        if label is None or not 0 <= label < histogram.n_classes:
            raise CalibrationInputError.at(
                "/label",
                "class_range",
                f"Received label {label}; expected 0 to {histogram.n_classes - 1}.",
            )
        return np.asarray(histogram.label[label])
    if kind not in ("prediction", "uncertainty"):
        raise CalibrationInputError.at(
            "/kind",
            "one_of",
            f"Received kind {kind!r}; expected prediction, uncertainty, label or all.",
        )
    if not histogram.knows(kind):
        raise CalibrationInputError.at("/kind", "not_in_histogram", f"{kind} was not filled")
    return histogram.prediction if kind == "prediction" else histogram.uncertainty
