"""Human-uncertainty calibration: predictions against the distribution of their ratings, each prediction counted once.

EntCE compares entropies, DistCE distributions, RankCS the order of the classes, by stable ascending argsorts: among equal shares the
lowest class comes first, and a descending order would give another value. `raters` has no effect on them: they compare with the
shares of ratings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from calibrant.accumulators.distribution_gaps import HISTOGRAM_BINS, SUMS, compare_rows
from calibrant.core.arrays import Floats
from calibrant.core.documents import Result
from calibrant.core.query import Option
from calibrant.core.view import NoResultError, View
from calibrant.inference.intervals import JACKKNIFE, ratio_interval
from calibrant.inference.mean_interval import reject_few_errors
from calibrant.inference.replication import score_columns
from calibrant.metrics.formula_metric import FormulaMetric, Interval, MetricValue

INSTANCES = Option(
    "instances",
    "no",
    "`yes` returns every prediction's own value too (raw rows only), in the order of the labelled rows.",
    allowed=("no", "yes"),
)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SHOWN_BINS = 20


def sums_of(view: View) -> dict[str, Floats]:
    """Return each sum by replicate, float64 (64,).

    Raises
    ------
    NoResultError
        The window contains plain histograms.
    """
    view.reject_histograms()
    block = view.pane["label_distribution"].blocks["sums"]
    return dict(zip(SUMS, block.sums, strict=True))


def quantile(weight: Floats, low: float, high: float, level: float) -> float:
    """Return a quantile of a histogram between low and high, linear inside bins.

    Examples
    --------
    >>> quantile(np.array([1.0, 3.0]), 0.0, 1.0, 0.5)
    0.6666666666666667
    """
    mass = np.cumsum(weight)
    wanted = level * mass[-1]
    place = int(np.searchsorted(mass, wanted))
    inside = 1.0 - (mass[place] - wanted) / weight[place]
    return float(low + (high - low) * (place + inside) / len(weight))


def spread_of(view: View, name: str, reach: float) -> Result:
    """Return quantiles and a histogram of a value per prediction that is in [-reach, reach], or in [0, 1] for the distance."""
    weight = view.pane["label_distribution"].blocks[name].sums[0]
    low = 0.0 if name == "distance" else -reach
    shown = weight.reshape(SHOWN_BINS, -1).sum(axis=1)
    edges = low + (reach - low) * np.arange(SHOWN_BINS + 1) / SHOWN_BINS
    return {
        "quantiles": {f"{level:g}": quantile(weight, low, reach, level) for level in QUANTILES},
        "quantile_error_bound": (reach - low) / HISTOGRAM_BINS,
        "histogram": {"edges": edges.tolist(), "weight": shown.tolist()},
    }


def _reader(
    column: str, more: Callable[[View, dict[str, float]], Result]
) -> Callable[[View], MetricValue | None]:
    def read(view: View) -> MetricValue | None:
        totals = {name: float(values.sum()) for name, values in sums_of(view).items()}
        if not totals["weight"]:
            return None
        extra = {"raters": "mean", **more(view, totals)}
        if INSTANCES.of(view.pane_query) == "yes":
            extra["instances"] = instances(view, column)
        return MetricValue(totals[column] / totals["weight"], extra)

    return read


def instances(view: View, column: str) -> list[Any]:
    """Return every labelled row's own value; signed for the entropies.

    Raises
    ------
    NoResultError
        There are no raw rows.
    """
    if view.batch_sums is None:
        raise NoResultError("needs_rows", "the stored state holds no individual predictions")
    found = compare_rows(view.batch_sums, slice(0, view.batch_sums.n))
    values: list[Any] = getattr(found, column.removesuffix("_absolute")).tolist()
    return values


def _interval(column: str) -> Callable[[View, MetricValue, int], Interval]:
    def interval(view: View, reading: MetricValue, seed: int) -> Interval:
        reject_few_errors(score_columns(view))
        sums = sums_of(view)
        filled = sums["weight"] > 0
        weight = sums["weight"][filled]
        if not (weight.sum() - weight > 0).all():
            raise NoResultError("too_few_units", "one replicate holds all the weight")
        return Interval(
            ratio_interval(sums[column][filled], weight, view.pane_query.ci),
            {"interval_method": JACKKNIFE},
        )

    return interval


def _entropies(view: View, totals: dict[str, float]) -> Result:
    mean = totals["entropy_gap"] / totals["weight"]
    return {
        "mean_signed": mean,
        **spread_of(view, "entropy_gap", float(np.log(view.spec.n_classes))),
    }


def _distances(view: View, totals: dict[str, float]) -> Result:
    return spread_of(view, "distance", 1.0)


def _orders(view: View, totals: dict[str, float]) -> Result:
    weight = totals["weight"]
    return {
        "strict_pairs": totals["same_strict_order"] / weight,
        "untied_fraction": totals["untied"] / weight,
    }


METRICS = (
    FormulaMetric(
        slug="ent_ce",
        title="Entropy calibration error",
        unit="nats",
        range=(0.0, None),
        needs=("label_distribution",),
        formula="H(ȳ_i) - H(p_i), mean of absolute values",
        exact=True,
        search_words={"EntCE": "", "entropy calibration error": ""},
        source="Baan, Aziz, Plank, Fernandez (EMNLP 2022); signed as entropy of ratings less that of the prediction",
        own_options=(INSTANCES,),
        read=_reader("entropy_gap_absolute", _entropies),
        interval=_interval("entropy_gap_absolute"),
        no_null="not_a_gap_metric",
    ),
    FormulaMetric(
        slug="dist_ce",
        title="Distribution calibration error",
        needs=("label_distribution",),
        formula="mean_i ‖p_i - ȳ_i‖_1 / 2",
        exact=True,
        search_words={"DistCE": "", "total variation distance": "", "TVD": ""},
        source="Baan, Aziz, Plank, Fernandez (EMNLP 2022): mean total variation distance",
        own_options=(INSTANCES,),
        read=_reader("distance", _distances),
        interval=_interval("distance"),
        no_null="not_a_gap_metric",
    ),
    FormulaMetric(
        slug="rank_cs",
        title="Ranking calibration score",
        unit="share",
        direction="higher",
        needs=("label_distribution",),
        formula="share of predictions whose classes are ranked as by the ratings",
        exact=True,
        search_words={"RankCS": "", "ranking calibration score": ""},
        source="Baan, Aziz, Plank, Fernandez (EMNLP 2022), stable argsort; strict pairs in addition",
        own_options=(INSTANCES,),
        read=_reader("same_order", _orders),
        interval=_interval("same_order"),
        no_null="not_a_gap_metric",
    ),
)
