"""The accuracy to expect of predictions without a label. It is never an alarm.

A score s is mapped to s plus the mean gap of the labelled units in its bin, as by a calibration map fitted to these
labels; the expected accuracy is the mean of the mapped scores of the unlabelled units. The interval is that of the accuracy which
these units will have: it contains the noise of the gaps and that of the labels to come. It holds if, at a given score, labels are
missing by chance, and if the calibration of the unlabelled units is that of the labelled ones. It says nothing after a change.

Source: Garg et al. (ICLR 2022) for the estimation from confidences; Agresti, Coull (American Statistician 1998) for the noise
of a bin with few labels.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy

from calibrant.accumulators.units import UNIT_BINS
from calibrant.core.arrays import Floats, ratio
from calibrant.core.pane import Pane
from calibrant.drift.unit_tables import UnitTable, merged, unit_table
from calibrant.drift.unlabelled_scores import ExpectedAccuracy

# Bins of the map: with few labels, and with many. One half is an edge, so that scores of one bin decide for the same class.
FEW_BINS, MANY_BINS, MANY_LABELLED = 20, 60, 2000.0
MIN_LABELLED, MIN_UNLABELLED = 200.0, 20.0


def expected_of_panes(
    known: Iterable[Pane], asked: Iterable[Pane], ci: float = 0.95
) -> ExpectedAccuracy | None:
    """Return the accuracy to expect of the unlabelled units of panes, by the labels of the same or of earlier panes.

    known, asked : panes whose labels are used, and whose unlabelled units are described (at least one)
    """
    labels = merged((unit_table(each, "mean", UNIT_BINS) for each in known), UNIT_BINS)
    panes = list(asked)
    tables = [unit_table(each, "mean", UNIT_BINS) for each in panes]
    without = [np.maximum(each.occupancy - each.weight, 0.0) for each in tables]
    is_positive = bool(panes) and panes[0].spec.default_scope == "positive"
    return expected_accuracy(labels, np.sum(without, axis=0), is_positive, ci)


def expected_accuracy(
    labelled: UnitTable, unlabelled: Floats, is_positive: bool, ci: float = 0.95
) -> ExpectedAccuracy | None:
    """Return the accuracy to expect of unlabelled units; None with fewer than 200 labelled or 20 unlabelled units.

    Parameters
    ----------
    labelled : sums of labelled units, by 60 bins of the score
    unlabelled : float64 (60,), units without a label by bin of the score
    is_positive : whether scores are those of class 1; otherwise they are confidences of the predicted class
    ci : probability that the interval contains the accuracy

    >>> even = np.full(60, 100.0)
    >>> scores = (np.arange(60) + 0.5) / 60
    >>> known = UnitTable(even, even * scores, even * scores, even, even)
    >>> found = expected_accuracy(known, even, is_positive=False)
    >>> round(found.value, 3), found.interval[0] < 0.5 < found.interval[1]
    (0.5, True)
    """
    n, total = labelled.n_units, float(unlabelled.sum())
    if n < MIN_LABELLED or total < MIN_UNLABELLED:
        return None
    bins = MANY_BINS if n >= MANY_LABELLED else FEW_BINS
    mapped, rate, noise = _mapped(labelled, bins)
    decides_for_0 = is_positive & (np.arange(len(mapped)) < len(mapped) // 2)
    value = float(unlabelled @ np.where(decides_for_0, 1.0 - mapped, mapped) / total)
    share = unlabelled.reshape(bins, -1).sum(axis=1) / total
    variance = float(share**2 @ noise + share @ (rate * (1.0 - rate)) / total)
    reach = float(scipy.special.ndtri(0.5 + ci / 2.0)) * variance**0.5
    return ExpectedAccuracy(value, (max(value - reach, 0.0), min(value + reach, 1.0)), total, n)


def _mapped(labelled: UnitTable, bins: int) -> tuple[Floats, Floats, Floats]:
    """Return the mapped score of each of 60 bins; the rate of each bin of the map, and the variance of its mean gap.

    A label of each kind is added to the rate of a bin, so that few equal labels are no certainty.
    """
    centre = (np.arange(labelled.n_bins) + 0.5) / labelled.n_bins
    weight, correct, squared, scores = (
        each.reshape(bins, -1).sum(axis=1)
        for each in (labelled.weight, labelled.correct, labelled.squared, labelled.weight * centre)
    )
    size = ratio(weight**2, squared)
    rate = (ratio(correct, weight, 0.5) * size + 1.0) / (size + 2.0)
    mapped = np.clip(
        centre + np.repeat(ratio(correct - scores, weight), labelled.n_bins // bins), 0.0, 1.0
    )
    return mapped, rate, rate * (1.0 - rate) / np.maximum(size, 1.0)
