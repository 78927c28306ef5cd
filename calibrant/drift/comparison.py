"""Comparison of two windows: unit-weighted gaps by bin with intervals, and the shift of the score distribution.

A comparison on request, not an alarm: if evaluated daily, its false alarms add up. Its most severe status is
therefore "watch".
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.actions import recommendation
from calibrant.core.documents import Result, Row
from calibrant.core.pane import Pane
from calibrant.drift.occupancy_shift import NULL_LEVEL, PSI, Shift
from calibrant.drift.unit_tables import UnitTable, unit_table

Floats = NDArray[np.float64]
MIN_UNITS = 50
WATCH_P = 0.01
RECOMMENDED = {
    True: "Calibration differs between the windows: look at the bins that changed, and collect labels.",
    False: "Calibration does not differ beyond chance.",
}
ASSUMPTIONS = (
    "units are independent of each other",
    "each unit was complete in one batch of a pane; a unit that came again counts as new",
    "labels are missing independently of the outcome given the score",
    "no prediction was sent twice under different ids",
    "raters judge as they did before",
    "this is a single evaluation: of repeated ones, about one in a hundred reports watch although nothing changed",
)


def compare(
    current: Pane, reference: Pane, raters: str = "mean", bins: int = 15, ci: float = 0.95
) -> Result:
    """Compare the current window with the reference.

    Returns
    -------
    dict with status ("insufficient_data", "ok" or "watch"), the gaps by bin of both windows and their change
    with intervals, the overall change (calibration in the large), a joint test of the change, and the shift of
    scores.
    """
    now, before = unit_table(current, raters, bins), unit_table(reference, raters, bins)
    result: Result = {
        "detector": None,
        "detector_reason": "this is a comparison of two windows, not the sequential alarm",
        "raters": raters,
        "scope": current.spec.default_scope,
        "bins": bins,
        "ci": ci,
        "current": _side(current, now),
        "reference": _side(reference, before),
        "assumptions": list(ASSUMPTIONS),
    }
    units = min(_labelled_units(now), _labelled_units(before))
    shift = score_shift(now, before)
    if units < MIN_UNITS:
        needed = f"each window needs {MIN_UNITS} labelled units"
        found = window_shift(now.occupancy, before.occupancy)
        shifted = found is not None and found.is_shifted
        return result | {
            "status": "watch" if shifted else "insufficient_data",
            "reason": f"the scores shifted; calibration is not known: {needed}"
            if shifted
            else needed,
            "gaps": _gap_rows(now, before, bins, ci),
            "calibration_change": None,
            "score_shift": shift,
            "recommendation": recommendation("collect_more", f"{needed.capitalize()}.", {}),
        }
    change = _joint_change(now, before, ci)
    moved = change["p_value"] is not None and change["p_value"] < WATCH_P
    scores_moved = shift["p_value"] is not None and shift["p_value"] < WATCH_P
    return result | {
        "status": "watch" if moved or scores_moved else "ok",
        "reason": _reason(moved, scores_moved),
        "gaps": _gap_rows(now, before, bins, ci),
        "calibration_change": change,
        "score_shift": shift,
        "recommendation": recommendation(
            "collect_more" if moved else "none", RECOMMENDED[moved], {"p_value": change["p_value"]}
        ),
    }


def score_shift(now: UnitTable, before: UnitTable) -> Result:
    """Return the distance between the unit-weighted score distributions of two windows, labelled or not.

    Returns
    -------
    dict: the distances, and the p-value of a chi-squared test of equal occupancy over bins where both hold
    enough (None with too few).
    """
    distances = shift_distances(now.occupancy, before.occupancy)
    reported = distances["psi"] is not None
    return distances | {
        "p_value": _homogeneity(now.occupancy, before.occupancy) if reported else None
    }


def shift_distances(now: Floats, before: Floats) -> dict[str, float | None]:
    """Return descriptive distances between two distributions of scores over bins; None if either is empty.

    Parameters
    ----------
    now, before : float64 (n_bins,), units

    Returns
    -------
    dict: total variation, Jensen-Shannon divergence in nats, population stability index (half a unit added to
    each bin).
    """
    n, m = float(now.sum()), float(before.sum())
    if not n or not m:
        return {"total_variation": None, "jensen_shannon": None, "psi": None}
    p, q = now / n, before / m
    middle = (p + q) / 2.0
    smooth_p, smooth_q = (now + 0.5) / (n + 0.5 * len(p)), (before + 0.5) / (m + 0.5 * len(q))
    return {
        "total_variation": float(np.abs(p - q).sum() / 2.0),
        "jensen_shannon": float(
            (_relative_entropy(p, middle) + _relative_entropy(q, middle)) / 2.0
        ),
        "psi": float(((smooth_p - smooth_q) * np.log(smooth_p / smooth_q)).sum()),
    }


def _relative_entropy(p: Floats, q: Floats) -> float:
    positive = p > 0
    return float((p[positive] * np.log(p[positive] / q[positive])).sum())


def _homogeneity(now: Floats, before: Floats) -> float | None:
    """Return the p-value of equal proportions over neighbouring bins joined until 5 are expected in each."""
    total = now + before
    share = now.sum() / total.sum()
    cells: list[tuple[float, float]] = []
    joined = np.zeros(2)
    for pair in zip(now, before, strict=True):
        joined += pair
        if joined.sum() * min(share, 1.0 - share) >= 5.0:
            cells.append((joined[0], joined[1]))
            joined = np.zeros(2)
    if len(cells) < 2:
        return None
    cells[-1] = (cells[-1][0] + joined[0], cells[-1][1] + joined[1])
    table = np.array(cells)
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    return float(scipy.special.chdtrc(len(cells) - 1, statistic))


def window_shift(now: Floats, before: Floats) -> Shift | None:
    """Return the shift of the scores between two windows by test and by size: a PSI above 0.1 plus what equal windows would show.

    Parameters
    ----------
    now, before : float64 (n_bins,), units by bin of the score, labelled or not

    Returns
    -------
    Shift, or None if a window has fewer than 50 units.
    """
    if min(now.sum(), before.sum()) < MIN_UNITS:
        return None
    null = scipy.special.chdtri(max(int((now + before > 0).sum()) - 1, 1), NULL_LEVEL)
    limit = PSI + float(null) * (1.0 / now.sum() + 1.0 / before.sum())
    size, p = shift_distances(now, before)["psi"], _homogeneity(now, before)
    assert size is not None
    return Shift(p is not None and p < WATCH_P and size > limit, size, limit, 1)


def _side(pane: Pane, table: UnitTable) -> Result:
    counts = pane.counts
    weight = float(table.weight.sum())
    return {
        "n_predictions": counts["n_predictions"],
        "n_labelled": counts["n_labelled"],
        "n_ratings": counts["n_ratings"],
        "n_units": counts["n_units"],
        "mean_confidence": float(table.confidence.sum()) / weight if weight else None,
        "accuracy": float(table.correct.sum()) / weight if weight else None,
    }


def _labelled_units(table: UnitTable) -> float:
    return float(table.weight.sum())


def _gap_rows(now: UnitTable, before: UnitTable, bins: int, ci: float) -> list[Row]:
    """Return both gaps and their difference with its interval per bin; null if a window has no unit in the bin."""
    reach = scipy.special.ndtri(0.5 + ci / 2.0) * np.sqrt(now.gap_variance + before.gap_variance)
    rows = []
    for i in range(bins):
        here, there = now.weight[i] > 0, before.weight[i] > 0
        change = float(now.gap[i] - before.gap[i]) if here and there else None
        rows.append(
            {
                "lower": i / bins,
                "upper": (i + 1) / bins,
                "units": float(now.weight[i]),
                "reference_units": float(before.weight[i]),
                "gap": float(now.gap[i]) if here else None,
                "reference_gap": float(before.gap[i]) if there else None,
                "change": change,
                "interval": None
                if change is None
                else [change - float(reach[i]), change + float(reach[i])],
            }
        )
    return rows


def _joint_change(now: UnitTable, before: UnitTable, ci: float) -> Result:
    """Return the change of the mean gap with its interval, and a test that no bin's gap changed."""
    mean = [float((t.correct - t.confidence).sum() / t.weight.sum()) for t in (now, before)]
    reach = float(
        scipy.special.ndtri(0.5 + ci / 2.0)
        * np.sqrt(now.mean_gap_variance + before.mean_gap_variance)
    )
    difference = mean[0] - mean[1]
    usable = (now.weight >= 5.0) & (before.weight >= 5.0)
    spread = (now.gap_variance + before.gap_variance)[usable]
    statistic = float(((now.gap - before.gap)[usable] ** 2 / spread).sum())
    bins_used = int(usable.sum())
    return {
        "mean_gap": mean[0],
        "reference_mean_gap": mean[1],
        "change": difference,
        "interval": [difference - reach, difference + reach],
        "bins_used": bins_used,
        "statistic": statistic if bins_used else None,
        "p_value": float(scipy.special.chdtrc(bins_used, statistic)) if bins_used else None,
    }


def _reason(moved: bool, scores_moved: bool) -> str:
    if moved and scores_moved:
        return "calibration and the distribution of scores differ between the windows"
    if moved:
        return "calibration differs between the windows"
    if scores_moved:
        return "the distribution of scores differs between the windows; the available labels show no change of calibration"
    return "no difference beyond chance"
