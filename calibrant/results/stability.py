"""How stable a calibration error is as data shrink, and its value under every label policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from calibrant.core.label_policies import POLICIES
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant.metrics import METRICS, accumulators_for
from calibrant.metrics.estimate import Estimate
from calibrant.results.base import Result, may_say, says
from calibrant.results.queries import MetricQuery
from calibrant.results.reads import Raters, State, label_policy, level, other_side, read
from calibrant.stability.curves import stability_report


@dataclass(frozen=True, kw_only=True)
class StabilityQuery(MetricQuery):
    """Which metric, on which subsets; ratings are read as `raters` requires."""

    raters: Raters = label_policy()
    ci: float = level()
    subsets: Literal["nested", "independent"] = says(
        "nested: each subset is a part of the next.", "nested"
    )
    source: Literal["replicates", "sample"] | None = says(
        "replicates: all data, as 64 shares of its units; sample: exact subsets of the stored predictions. "
        "Default: replicates, or the sample if replicates lack the metric.",
        None,
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class Variation(Result):
    """Total variation of a curve: mean absolute step from one fraction to the next, and other readings."""

    absolute: float
    signed: float
    relative: float | None = says("`absolute`, divided by the estimate of all data.")
    per_cent: float
    sum: float = says("Sum of the absolute steps, not divided by their number.")


@dataclass(frozen=True, kw_only=True, repr=False)
class StabilityCurve(Result):
    """One label policy's curve; its bootstrap resamples units."""

    curve: list[float] = says("The metric on each of `fractions` of the data.")
    full: float
    tv: Variation
    bootstrap: dict[str, float] | None = says(
        "Resamples, orders, mean and sd of the variation; null where a ratio has the reason too_many_subsets."
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class Stability(Result):
    """Curves against the fraction of the data, ratios of their variation, and values by label policy."""

    metric: str
    subsets: str
    source: str | None = may_say("Source of the subsets: replicates of units, sample, or cases.")
    n_drawn: int | None = may_say(
        "Number of replicates, units of the sample, or cases that are drawn from."
    )
    exact: bool | None = may_say(
        "Whether curves show the metric itself; if not, `detail` names the statistic."
    )
    bins: int | None = may_say("The replicates' bins.")
    detail: str | None = may_say()
    n_sample: int | None = may_say()
    n_drawn_from: int | None = may_say("Labelled predictions that the sample was drawn from.")
    fractions: list[float] | None = may_say()
    raters: dict[str, StabilityCurve] | None = says("Curves by label policy; null with a `reason`.")
    ratio: dict[str, dict[str, Any]] | None = says(
        "Variation under one reference label, divided by that under several raters."
    )
    disagreement: float | None = may_say(
        "Share of a prediction's pairs of ratings that differ, as the mean over predictions with at least two."
    )
    n: int
    n_ratings: int
    baselines: dict[str, Estimate] = says("The metric under every label policy.")
    n_majority_ties: int
    reason: str | None = may_say()


def _accumulators(query: StabilityQuery) -> Iterable[str]:
    """Name what the metric reads, the disagreement, the scope, against which plain histograms are checked, and the sample.

    Replicates do not carry every metric: then the sample gives the curves.
    """
    scopes = {"top_label", "positive", "classes", "all_labels"}
    return accumulators_for([query.metric]) | {"label_distribution", "sample"} | scopes


def _is_slow(query: StabilityQuery) -> bool:
    """Curves of equal-width bins of replicates take a tenth of a second, all others up to a second."""
    return query.source == "sample" or METRICS[query.slug].equal_bins(query.requested()) is None


def _compared(state: State, other: State, query: StabilityQuery) -> Stability:
    """Return the curves; each of `baselines` with the other side's value, the difference and its interval."""
    mine, theirs = (stability(each, query).to_dict() for each in (state, other))
    compared = {}
    for policy in POLICIES:
        pane_query = replace(query.requested(), raters=policy)
        views = View(state.pane, pane_query), View(other.pane, pane_query)
        compared[policy] = differences(*views, [query.slug], state.seed)[query.slug]
    about = {"raters": theirs["raters"], "ratio": theirs["ratio"]}
    against = other_side(state, other) | about
    return Stability.from_dict(mine | {"baselines": compared, "against": against})


@read(
    "stability",
    tag="stability",
    response="Curves and baselines, or a figure of the curves",
    accumulators=_accumulators,
    compare=_compared,
    compared_accumulators=("sample",),
    is_slow=_is_slow,
)
def stability(state: State, query: StabilityQuery) -> Stability:
    """Return how stable a calibration error is as data shrink, for several raters and for one label.

    A metric that has to be computed again for each subset, such as `tace`, has curves without resamples here: `bootstrap`
    is null, and so is the value of each `ratio` (`reason: too_many_subsets`). The library computes both.
    """
    found = stability_report(
        View(state.pane, query.requested()),
        query.slug,
        subsets=query.subsets,
        source=query.source,
        seed=state.seed,
        one_by_one=False,
    )
    return Stability.from_dict(found | {"metric": query.metric})
