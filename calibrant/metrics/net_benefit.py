"""Net benefit of acting on every prediction at or above a threshold: the decision curve at one point.

With two classes one acts on class 1; with the scope `top_label` of more, on the top class. A threshold of .2 says that one treated case is
worth four treated non-cases. The net benefit is in true positives per prediction; that of treating nobody is 0, and `treat_all` is that of
treating everybody. `advantage` is what the model adds to the better of these two. Of the predictions that are acted on (a share of `acted_on`),
`observed` is the share with the outcome, and `predicted` the mean score; both are None if none is acted on.

Source: Vickers, Elkin (Medical Decision Making 2006); Vickers, Van Calster, Steyerberg (BMJ 2016).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.accumulators.replicates import SCORE_BINS
from calibrant.core.arrays import Bools, Floats
from calibrant.core.cells import Cells
from calibrant.core.query import Option
from calibrant.core.view import NoResultError, View
from calibrant.inference.intervals import JACKKNIFE, RATIO_OF, ratio_interval
from calibrant.inference.replication import tables_for
from calibrant.metrics.formula_metric import (
    FormulaMetric,
    Interval,
    MetricValue,
    bin_scores,
    outcomes_of,
    scored_cells,
)
from calibrant.metrics.weak_calibration import too_few_outcomes

_DECISIVE = 0.1
THRESHOLD = Option(
    "threshold", 0.5, "Predictions from this probability on are acted on.", low=0.001, high=0.999
)


@dataclass(frozen=True)
class Decisions:
    """Weights of the predictions at or above a threshold.

    Attributes
    ----------
    true, false : with the outcome and without it
    predicted : the weight with the outcome that the scores predict
    uncertain : weight in cells that the threshold divides
    deviation : standard deviation of the outcomes in these cells
    """

    true: float
    false: float
    predicted: float
    uncertain: float
    deviation: float

    @property
    def flagged(self) -> float:
        """Weight of the predictions at or above the threshold."""
        return self.true + self.false


def decisions(cells: Cells, threshold: float) -> Decisions:
    """Divide predictions at a threshold; a cell that it divides counts on the side of its mean."""
    acted, divided = acted_on(cells, threshold)
    true = float(cells.correct[acted].sum())
    predicted = float(cells.weight[acted] @ cells.mean[acted])
    acting, uncertain = float(cells.weight[acted].sum()), float(cells.weight[divided].sum())
    deviation = float(np.sqrt(cells.label_variance[divided].sum()))
    return Decisions(true, acting - true, predicted, uncertain, deviation)


def acted_on(cells: Cells, threshold: float) -> tuple[Bools, Bools]:
    """Return which cells are acted on, and which the threshold divides.

    A score that was rounded to float32 from the threshold is at the threshold. The mean of a cell with one prediction is its score.
    """
    least = min(threshold, float(np.float32(threshold)))
    around = (cells.lower < least) & (cells.upper > threshold)
    acted = np.where(around, cells.mean >= least, cells.lower >= least)
    return acted, around & cells.divisible


def odds(threshold: float) -> float:
    """Return how many true positives one false positive costs."""
    return threshold / (1.0 - threshold)


def scope_of(view: View) -> str:
    """Return the requested scope; of two classes class 1 where the top label was requested, because one acts on a class."""
    of_top = view.scope == "top_label" and view.spec.n_classes == 2
    return "positive" if of_top else view.scope


def read(view: View) -> MetricValue | None:
    return benefit_at(view, THRESHOLD.of(view.pane_query))


def benefit_at(view: View, threshold: float) -> MetricValue | None:
    """Return the net benefit at a threshold with what it consists of; None without data."""
    cells = scored_cells(view, scope_of(view))
    if not len(cells):
        return None
    cost, total, cases = odds(threshold), float(cells.weight.sum()), float(cells.correct.sum())
    found = decisions(cells, threshold)
    value, treat_all = (
        (found.true - cost * found.false) / total,
        (cases - cost * (total - cases)) / total,
    )
    extra = {
        "scope": scope_of(view),
        "threshold": threshold,
        "treat_all": treat_all,
        "advantage": value - max(treat_all, 0.0),
        "acted_on": found.flagged / total,
        "observed": found.true / found.flagged if found.flagged else None,
        "predicted": found.predicted / found.flagged if found.flagged else None,
    }
    if not view.is_raw:
        extra["error_bound"] = max(cost, 1.0) * found.uncertain / total
        extra["error_estimate"] = (1.0 + cost) * found.deviation / (2.0 * total)
    return MetricValue(value, extra)


def interval(view: View, reading: MetricValue, seed: int) -> Interval:
    """Return the interval of a reading, as `interval_at`."""
    return interval_at(view, reading.value, THRESHOLD.of(view.pane_query))


def interval_at(view: View, value: float, threshold: float) -> Interval:
    """Return the interval of the mean benefit by the jackknife over replicates; a bin that the threshold divides counts in part.

    Raises
    ------
    NoResultError
        Replicates do not store this scope, too few are filled, or too few independent outcomes decide the benefit.
    """
    tables = tables_for(view, scope_of(view), SCORE_BINS)
    share = np.clip(np.arange(1, tables.bins + 1) - threshold * tables.bins, 0.0, 1.0)
    weight = tables.weight[:, 0]
    true = (
        tables.difference[:, 0] + weight * bin_scores(view, tables.bins, scope_of(view))
    ) @ share
    acted = weight @ share
    false = acted - true
    _reject_few(view, np.stack([true, false, weight.sum(axis=1) - acted], axis=1), threshold)
    benefit = true - odds(threshold) * false
    total = weight.sum(axis=1)
    middle = float(benefit.sum() / total.sum())
    low, high = ratio_interval(benefit, total, view.pane_query.ci)
    bounds = (value - middle + low, value - middle + high)
    return Interval(bounds, {"interval_method": JACKKNIFE, "interval_of": RATIO_OF})


def _reject_few(view: View, observed: Floats, threshold: float) -> None:
    """Require independent predictions of each kind that decides the benefit: true positives, false ones, those not acted on.

    A kind decides if it has a tenth of the benefit's variance, by the scores or as observed; `observed` is float64 (n_replicates, 3).
    """
    cells = scored_cells(view, scope_of(view))
    acted = cells.select(acted_on(cells, threshold)[0])
    cases, total = float(acted.confidence.sum()), float(acted.weight.sum())
    expected = np.array([cases, total - cases, float(cells.weight.sum()) - total])
    shares = np.stack([expected, np.maximum(observed, 0.0).sum(axis=0)])
    shares /= shares.sum(axis=1, keepdims=True)
    values = np.array([1.0, -odds(threshold), 0.0])
    spread = shares * (values - (shares @ values)[:, None]) ** 2
    decides = (spread > _DECISIVE * spread.sum(axis=1, keepdims=True)).any(axis=0)
    few = outcomes_of(view, observed, scope_of(view))[decides]
    variance = float(acted.null_variance.sum())
    without = np.full(3, np.inf)
    likely = np.divide(
        expected**2,
        [variance, variance, 1.0],
        out=without,
        where=[variance > 0, variance > 0, True],
    )[decides]
    if not decides.any() or too_few_outcomes(float(few.min()), float(likely.min())):
        raise NoResultError(
            "few_errors", "fewer than ten independent predictions of a kind decide the benefit"
        )


METRIC = FormulaMetric(
    slug="net_benefit",
    title="Net benefit",
    unit="true positives per prediction",
    range=(None, 1.0),
    direction="higher",
    needs=("scope", "positive"),
    formula="TP/n - FP/n · t/(1 - t), acting on scores of at least t",
    search_words={"decision curve": "", "decision curve analysis": "", "clinical utility": ""},
    source="Vickers, Elkin (Medical Decision Making 2006)",
    options=("scope",),
    own_options=(THRESHOLD,),
    read=read,
    interval=interval,
    no_null="no_reference",
)
