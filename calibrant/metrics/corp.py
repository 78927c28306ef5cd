"""CORP: a proper score's miscalibration, discrimination and uncertainty by isotonic recalibration, without bins.

From the kept state scores are cells' means, and `error_bound` holds for any place of the scores inside their cells.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.replicates import SCORE_BINS
from calibrant.cells import Cells
from calibrant.intervals import jackknife_interval
from calibrant.isotonic import (
    SCORES,
    Decomposition,
    decompose,
    least_score,
    mean_score,
    recalibrated,
)
from calibrant.metrics.ks import few
from calibrant.metrics.reading import (
    DRAWN,
    JACKKNIFE,
    Interval,
    Reading,
    ReadMetric,
    bin_scores,
    drawn_hits,
    quantiles_of,
    scored_cells,
)
from calibrant.options import Option
from calibrant.replication import tables_for
from calibrant.view import NotAnswerable, View

Floats = NDArray[np.float64]
SCORE = Option("score", "brier", "The proper score that is taken apart; `log` in nats.", allowed=SCORES)
_N_DRAWS = 200


def parts_of(view: View) -> Decomposition | None:
    """The decomposition of the asked scope, made once a view; None without data."""
    cells = scored_cells(view)
    if not len(cells):
        return None
    score = np.clip(cells.mean, 0.0, 1.0)
    return view.once("corp", lambda: decompose(cells.weight, score, _rate(cells), SCORE.of(view.question)))


def _rate(cells: Cells) -> Floats:
    return np.clip(cells.rate, 0.0, 1.0)


def recalibration_bound(cells: Cells, kind: str) -> float:
    """Largest fall of the recalibrated score when scores lie anywhere inside their cells."""
    weight, rate = cells.weight, _rate(cells)
    divisible = (cells.upper > cells.lower) & (cells.predictions > 1)
    best = float(mean_score(weight, rate, recalibrated(weight, rate), kind))
    return max(best - least_score(weight, rate * weight, divisible, kind), 0.0)


def score_bound(cells: Cells, kind: str) -> float:
    """Largest change of the predictions' own score when scores lie anywhere inside their cells."""
    several = cells.predictions > 1
    if kind == "brier":
        spread = np.maximum((cells.upper - cells.mean) * (cells.mean - cells.lower), 0.0) * several
        return float((cells.weight * spread + 2.0 * cells.largest_covariance).sum() / cells.weight.sum())
    losses = (_log_loss(cells.correct, at) for at in (cells.lower, cells.mean, cells.upper))
    missed = np.maximum(cells.weight - cells.correct, 0.0)
    others = (_log_loss(missed, 1.0 - at) for at in (cells.lower, cells.mean, cells.upper))
    change = sum(np.maximum(np.abs(low - mean), np.abs(high - mean)) for low, mean, high in (losses, others))
    return float(np.where(several, change, 0.0).sum() / cells.weight.sum())


def _log_loss(weight: Floats, probability: Floats) -> Floats:
    """Log losses of outcomes of this weight and probability; infinite at 0, nothing where there is no weight."""
    with np.errstate(divide="ignore"):
        return np.asarray(-weight * np.log(probability, where=weight > 0, out=np.zeros(len(weight))))


def _reader(part: str) -> Callable[[View], Reading | None]:
    def read(view: View) -> Reading | None:
        parts = parts_of(view)
        if parts is None:
            return None
        value = getattr(parts, part)
        if not np.isfinite(value):
            raise NotAnswerable("zero_probability", "an outcome came that had probability 0: its log loss is infinite")
        kind = SCORE.of(view.question)
        extra: dict[str, object] = {"score": kind, "scope": view.scope}
        if part == "miscalibration":
            extra["null_assumption"] = DRAWN
        if not view.is_raw and part != "uncertainty":
            cells = scored_cells(view)
            bound = recalibration_bound(cells, kind)
            if part == "miscalibration":
                bound += score_bound(cells, kind)
            extra["error_bound"] = bound if np.isfinite(bound) else None
        return Reading(value, extra)

    return read


def _jackknife(part: str) -> Callable[[View, Reading, int], Interval]:
    """Interval from the replicates' bins, in which order is all that these parts need."""

    def interval(view: View, reading: Reading, seed: int) -> Interval:
        tables = tables_for(view, view.scope, SCORE_BINS)
        score = bin_scores(view, tables.bins)
        weight, difference = tables.weight[:, 0], tables.difference[:, 0]
        correct = difference + weight * score
        values = [
            _part_without(weight.sum(axis=0) - w, correct.sum(axis=0) - c, score, SCORE.of(view.question), part)
            for w, c in zip(weight, correct, strict=True)
        ]
        lower, upper = jackknife_interval(reading.value, np.array(values), view.question.ci)
        return Interval((max(lower, 0.0), upper), {"interval_method": JACKKNIFE, "interval_bins": tables.bins})

    return interval


def _part_without(weight: Floats, correct: Floats, score: Floats, kind: str, part: str) -> float:
    kept = weight > 1e-9 * weight.sum()
    if not kept.any():
        raise NotAnswerable("too_few_units", "one replicate holds all the weight")
    rate = np.clip(correct[kept] / weight[kept], 0.0, 1.0)
    return float(getattr(decompose(weight[kept], score[kept], rate, kind), part))


def null(view: View, reading: Reading, seed: int) -> tuple[float, float]:
    """Miscalibration of a calibrated model, from hits drawn group by group."""
    kind = SCORE.of(view.question)
    cells = few(scored_cells(view))
    score = np.clip(cells.mean, 0.0, 1.0)
    found = np.empty(_N_DRAWS)
    for i, hits in enumerate(drawn_hits(cells, _N_DRAWS, seed)):
        rate = np.clip(hits / cells.weight, 0.0, 1.0)
        best = mean_score(cells.weight, rate, recalibrated(cells.weight, rate), kind)
        found[i] = mean_score(cells.weight, rate, score, kind) - best
    return quantiles_of(found)


METRICS = (
    ReadMetric(
        slug="corp_miscalibration",
        title="Miscalibration (CORP)",
        unit="score",
        range=(0.0, None),
        direction="lower",
        needs=("scope",),
        source="Dimitriadis, Gneiting, Jordan (PNAS 2021)",
        options=("scope",),
        own_options=(SCORE,),
        read=_reader("miscalibration"),
        null=null,
    ),
    ReadMetric(
        slug="corp_discrimination",
        title="Discrimination (CORP)",
        unit="score",
        range=(0.0, None),
        direction="higher",
        needs=("scope",),
        source="Dimitriadis, Gneiting, Jordan (PNAS 2021)",
        options=("scope",),
        own_options=(SCORE,),
        read=_reader("discrimination"),
        interval=_jackknife("discrimination"),
        no_null="not_a_gap_metric",
    ),
    ReadMetric(
        slug="corp_uncertainty",
        title="Uncertainty (CORP)",
        unit="score",
        range=(0.0, None),
        direction="lower",
        needs=("scope",),
        source="Dimitriadis, Gneiting, Jordan (PNAS 2021)",
        options=("scope",),
        own_options=(SCORE,),
        read=_reader("uncertainty"),
        interval=_jackknife("uncertainty"),
        no_null="not_a_gap_metric",
    ),
)
