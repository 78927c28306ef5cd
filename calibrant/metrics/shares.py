"""Metrics of shares of labels whose number of ratings is not known: means over shares, without what depends on that number."""

from __future__ import annotations

from dataclasses import replace

from calibrant.core.errors import NoResultError
from calibrant.metrics.estimate import Estimate
from calibrant.metrics.metric import Metric

# Accumulators that hold sums over ratings alone, none over pairs of ratings.
_SUMS = frozenset(
    {"scope", "own_score", "scores", "counts", "top_label", "positive", "classes", "all_labels"}
)
# Values that subtract, or compare with, the variance of single ratings.
_OF_RATINGS = ("debiased_ece", "l2_ece_squared", "kde_ece", "hosmer_lemeshow", "spiegelhalter_z")
# Means over predictions, whose interval is that of the mean of independent units.
_MEANS = ("accuracy", "brier", "nll")
REASON = "label_shares"


def is_of_shares(key: str) -> bool:
    """Return whether a metric, by its slug or request, has a value of shares alone."""
    from calibrant.metrics import METRICS, slug_of

    metric = METRICS[slug_of(key)]
    return metric.slug not in _OF_RATINGS and set(metric.needs) <= _SUMS


def reject_of_ratings(metric: Metric) -> None:
    """Reject a metric that needs the number of ratings.

    Raises
    ------
    NoResultError
        As described.
    """
    if metric.slug in _OF_RATINGS or not set(metric.needs) <= _SUMS:
        raise NoResultError(REASON, "It needs the number of ratings of each row: n_ratings.")


def without_ratings(metric: Metric, found: Estimate) -> Estimate:
    """Return an estimate without null reference, and with an interval only if it does not need the number of ratings."""
    extra = {name: each for name, each in found.extra.items() if name not in ("corrected", "bias", "range")}  # fmt: skip
    found = replace(found, null=None, extra=extra | {"null_reason": REASON})
    if metric.slug in _MEANS:
        return found
    return replace(
        found, interval=None, extra=extra | {"null_reason": REASON} | {"interval_reason": REASON}
    )
