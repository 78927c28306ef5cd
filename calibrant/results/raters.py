"""A metric of each named rater alone, with the label policies and the raters' disagreement, from retained records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calibrant.results.base import Result, may_say, says
from calibrant.results.queries import MetricQuery, smallest_bin
from calibrant.results.reads import Edges, State, edges_of_bins, read


@dataclass(frozen=True, kw_only=True)
class RatersQuery(MetricQuery):
    """Which metric, and how scores are binned; ratings are read under every label policy."""

    edges: Edges = edges_of_bins()
    min_count: float = smallest_bin()


@dataclass(frozen=True, kw_only=True, repr=False)
class RaterValue(Result):
    """The metric with one rater's labels alone."""

    value: float | None
    n: int = says("Number of predictions that this rater rated.")
    agreement: float | None = may_say(
        "Share of pairs of this rater's rating and another's of the same prediction that are equal; null without a pair."
    )
    kappa: dict[str, float | None] | None = may_say(
        "Cohen's kappa with each other rater, of the 16 with most ratings; null below 20 common predictions."
    )
    dice: dict[str, float | None] | None = may_say(
        "Dice with each of these raters, as the mean over cases and classes without class 0; if predictions name their cases."
    )
    reason: str | None = may_say()
    against: float | None = may_say("The other side's value.")
    difference: float | None = may_say("This side's value minus the other's.")
    difference_interval: list[float] | None = may_say()
    difference_reason: str | None = may_say(
        "Why there is no difference or no interval, such as `unknown_rater` or `too_many_raters` (beyond 16)."
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class Raters(Result):
    """A metric of each named rater, from the records with ids of a window."""

    metric: str
    n_labelled: int = says("Labelled predictions of the window, with ids or without.")
    n_records: int = says(
        "Number of the window's labelled predictions that have an id; the result uses only these."
    )
    n_raters: int
    n_raters_over: int = says(
        "Number of named raters beyond the 64 who rated most; they are not returned."
    )
    by_rater: dict[str, RaterValue] = says("Raters, sorted by number of ratings, most first.")
    mean_of_raters: float | None = says("Mean over the raters returned; null with a `reason`.")
    policies: dict[str, float | None] | None = says("The metric under every label policy.")
    against: dict[str, Any] | None = may_say(
        "The other side: `window` or `model`, with its numbers of predictions and raters."
    )
    disagreement: float | None = says(
        "Share of a prediction's pairs of ratings that differ, as the mean over predictions with at least two."
    )
    n_majority_ties: int | None
    odd_rater: dict[str, Any] | None = may_say(
        "The one rater with whom the others agree less than with each other, beyond chance: `name`, `kappa`, `kappa_of_others`, `p_value`, "
        "`shares` of classes; null without evidence."
    )
    consistent: bool = says("false: the window changed while its records were read.")
    reason: str | None = may_say()


@read(
    "raters",
    tag="raters",
    response="The raters compared",
    needs={"records": True},
    is_compared=True,
)
def raters(state: State, query: RatersQuery) -> Raters:
    """Return a metric of each named rater separately, from retained records; a window with too many is rejected."""
    raise NotImplementedError("`calibrant_server.workers.queries.kinds.raters` computes it")
