"""Negative log-likelihood of the ratings, in nats, mean over ratings.

A rating of a class whose probability is exactly 0 has infinite loss. Such ratings are counted and never clipped: `value` is then null,
and `finite_value` is the mean over the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calibrant.core.view import View
from calibrant.metrics.base import MEAN_NEEDS, Estimate, SumMetric


@dataclass(frozen=True)
class NllMetric(SumMetric):
    """The ratio over ratings of positive probability, withheld where others exist."""

    def estimate(self, view: View, seed: int) -> Estimate:
        estimate = super().estimate(view, seed)
        zeros = int(view.scores()["n_zero_probability"])
        extra = dict(estimate.extra) | {"n_zero_probability": zeros}
        if not zeros:
            return replace(estimate, extra=extra)
        rated = "1 rating is" if zeros == 1 else f"{zeros} ratings are"
        detail = f"{rated} of a class to which the model gave probability 0"
        extra["finite_value"] = estimate.value
        return Estimate(None, "zero_probability", detail, extra=extra)


METRIC = NllMetric(
    slug="nll",
    title="Negative log-likelihood",
    unit="nats",
    range=(0.0, None),
    direction="lower",
    needs=MEAN_NEEDS,
    formula="-mean_i log p_{i, y_i}",
    search_words={
        "log loss": "",
        "cross-entropy": "",
        "logarithmic score": "",
        "negative log-likelihood": "",
    },
    source="logarithmic score (Good 1952)",
    column="nll",
    weight="weight_finite",
)
