"""Negative log-likelihood of the ratings, in nats, mean over ratings.

A rating of a class whose probability is exactly 0 has infinite loss. Such ratings are counted and never clipped: `value` is then null,
and `finite_value` is the mean over the others.

`nll(floor=F)` is another number: the mean of -log max(p, F). It is finite, smaller than the exact one, and decided by F where
probabilities are below it, so compare models only under one floor. Its key in a response is `nll(floor=F)`, never `nll`; `n_clipped` counts
ratings below the floor, and `exact` is the value without a floor, null where that is infinite. It needs the rows: stored sums do not say
which losses are above -log F.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.query import Option
from calibrant.core.view import NoResultError, View
from calibrant.inference.mean_interval import MIN_ERRORS, effective_outcomes
from calibrant.inference.replication import MIN_UNITS
from calibrant.metrics.metric import MEAN_NEEDS, Estimate, SumMetric

_DECISIVE = 0.1
# Where no rating is below the floor, three of n may be by chance (the upper 95 % limit of a count of 0).
_UNSEEN = 3.0
FLOOR = Option(
    "floor",
    0.0,
    "Smaller probabilities count as this one, from rows only; the exact value has none.",
    low=0.0,
    high=0.5,
)


@dataclass(frozen=True)
class Clipped:
    """What a floor changes in the loss.

    Attributes
    ----------
    added : float64 (64,), by replicate: clipped losses minus the finite losses that they replace
    n : number of ratings below the floor
    at_risk : number of rows with a probability below the floor
    unseen : sum of squared losses of as many further ratings as may be missing by chance, 0 if no probability is below the floor
    """

    added: Floats
    n: int
    at_risk: int
    unseen: float


def clipped_at(view: View, floor: float) -> Clipped:
    """Return what a floor changes in the sums of the view's policy.

    Raises
    ------
    NoResultError
        There are no rows.
    """
    rows = view.batch_sums
    if rows is None:
        raise NoResultError(
            "needs_rows",
            f"Sums of a window do not say which losses a floor of {floor:g} changes; post the rows to POST /v1/score, "
            "or use the library's functions of arrays.",
        )
    below = np.flatnonzero(rows.log_probability < np.log(floor))
    own = rows.log_probability[below]
    added = np.where(np.isfinite(own), own, 0.0) - np.log(floor)
    row, ratings = rows.correct_ratings.row[below], rows.correct_ratings.ratings[below]
    mass = rows.batch.rating_weights(view.policy)[below]
    by_replicate = np.bincount(rows.replicate[row], mass * added, N_REPLICATES)
    counted = ratings[mass > 0] if view.pane_query.raters in ("pooled", "mean") else mass > 0
    at_risk = int((rows.batch.probabilities < floor).any(axis=1).sum())
    unseen = bool(at_risk) * _UNSEEN * float(np.log(floor)) ** 2
    return Clipped(by_replicate.astype(np.float64), int(np.sum(counted)), at_risk, unseen)


@dataclass(frozen=True)
class NllMetric(SumMetric):
    """The ratio over ratings of positive probability, withheld where others exist; or over all, with a floor."""

    def estimate(self, view: View, seed: int) -> Estimate:
        floor = FLOOR.of(view.pane_query)
        if floor:
            return self._with_floor(view, floor, seed)
        estimate = super().estimate(view, seed)
        zeros = int(view.scores()["n_zero_probability"])
        extra = dict(estimate.extra) | {"n_zero_probability": zeros}
        if not zeros:
            return replace(estimate, extra=extra)
        rated = "1 rating is" if zeros == 1 else f"{zeros} ratings are"
        detail = f"{rated} of a class to which the model gave probability 0"
        extra["finite_value"] = estimate.value
        return Estimate(None, "zero_probability", detail, extra=extra)

    def _with_floor(self, view: View, floor: float, seed: int) -> Estimate:
        sums, clipped = view.scores(), self._clipped(view)
        estimate = super().estimate(view, seed)
        if not sums["weight"]:
            return estimate
        zeros = int(sums["n_zero_probability"])
        extra = dict(estimate.extra) | {
            "floor": floor,
            "n_clipped": clipped.n,
            "n_zero_probability": zeros,
            "exact": None if zeros else estimate.value,
        }
        value = (sums["nll"] + float(clipped.added.sum())) / sums["weight"]
        return replace(estimate, value=value, extra=extra)

    def columns(self, view: View) -> dict[str, Floats]:
        found = super().columns(view)
        if not FLOOR.of(view.pane_query):
            return found
        clipped = self._clipped(view)
        added = clipped.added[found["places"].astype(np.int64)]
        found |= {"nll": found["nll"] + added, "weight_finite": found["weight"]}
        _reject_few(added, clipped, found["nll"], found["weight"])
        return found

    def _clipped(self, view: View) -> Clipped:
        floor = FLOOR.of(view.pane_query)
        return view.once(("clipped", floor), lambda: clipped_at(view, floor))


def _reject_few(added: Floats, clipped: Clipped, losses: Floats, weight: Floats) -> None:
    """Require independent clipped ratings where these, or as many as chance may hide, have a tenth of the variance of the mean.

    With few rows at risk, only windows with many clipped ratings would have an interval. All arrays are float64 (n_replicates,).

    Raises
    ------
    NoResultError
        Fewer than about five clipped ratings, or fewer than 40 rows with a probability below the floor.
    """
    spread = float(((losses - losses.sum() / weight.sum() * weight) ** 2).sum())
    decides = max(float((added**2).sum()), clipped.unseen) > _DECISIVE * spread
    if decides and clipped.at_risk < MIN_UNITS:
        raise NoResultError(
            "few_errors", "fewer than 40 rows with a probability below the floor decide the mean"
        )
    if decides and effective_outcomes(added[:, None], 0.0)[0] < MIN_ERRORS:
        raise NoResultError(
            "few_errors", "fewer than five independent clipped ratings decide the mean"
        )


METRIC = NllMetric(
    slug="nll",
    title="Negative log-likelihood",
    unit="nats",
    range=(0.0, None),
    needs=MEAN_NEEDS,
    formula="-mean_i log p_{i, y_i}",
    search_words={
        "log loss": "",
        "cross-entropy": "",
        "logarithmic score": "",
        "negative log-likelihood": "",
        "clipped log loss": "floor=1e-15",
    },
    source="logarithmic score (Good 1952)",
    column="nll",
    weight="weight_finite",
    own_options=(FLOOR,),
)
