"""How stable a calibration error is as data shrink, and its value under every label policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from calibrant.core.documents import Result
from calibrant.core.label_policies import POLICIES
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant.metrics import METRICS, accumulators_for
from calibrant.stability.replicate_curves import is_binned
from calibrant.stability.report import stability_report
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    other_side,
    reject_other_classes,
)
from calibrant_server.workers.queries.query import CI, MetricQuery, Raters


class StabilityQuery(MetricQuery):
    """Which metric, on which subsets; ratings are read as `raters` requires."""

    kind: ClassVar[str] = "stability"

    raters: Raters = "pooled"
    ci: float = CI
    subsets: Literal["nested", "independent"] = Field(
        "nested", description="nested: each subset is a part of the next."
    )
    source: Literal["replicates", "sample"] | None = Field(
        None,
        description="replicates: all data, as 64 shares of its units; sample: exact subsets of the stored predictions. "
        "Default: replicates, or the sample if replicates lack the metric.",
    )


def accumulators(query: StabilityQuery) -> Iterable[str]:
    """What the metric reads, the raters' disagreement, the scope's cells, against which plain histograms are checked, and
    the sample, for what replicates do not carry."""
    scopes = {"top_label", "positive", "classes", "all_labels"}
    return accumulators_for([query.metric]) | {"label_distribution", "sample"} | scopes


def is_slow(query: StabilityQuery) -> bool:
    """Curves of equal-width bins of replicates take a tenth of a second, all others up to a second."""
    return query.source == "sample" or not is_binned(METRICS[query.slug], query.requested())


def compute(query: StabilityQuery, inputs: Inputs) -> Result:
    """Curves, total variation and its ratios; `raters` is None, with a `reason`, where there are none."""
    view = View(inputs.pane, query.requested())
    found = stability_report(
        view,
        query.slug,
        subsets=query.subsets,
        source=query.source,
        seed=inputs.seed,
        one_by_one=False,
    )
    return found | {"metric": query.metric}


def compare(query: StabilityQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same; each of `baselines` with the other side's value, the difference and its interval."""
    reject_other_classes(inputs.config, other.config)
    mine, theirs = compute(query, inputs), compute(query, other)
    compared: Result = {}
    for policy in POLICIES:
        pane_query: PaneQuery = replace(query.requested(), raters=policy)
        views = View(inputs.pane, pane_query), View(other.pane, pane_query)
        compared[policy] = differences(*views, [query.slug], inputs.seed)[query.slug]
    about = {"raters": theirs["raters"], "ratio": theirs["ratio"]}
    return mine | {
        "baselines": compared,
        "against": other_side(against, inputs.pane, other) | about,
    }


KIND = ResultKind(
    StabilityQuery,
    compute,
    accumulators,
    compare,
    compared_accumulators=("sample",),
    is_slow=is_slow,
)
