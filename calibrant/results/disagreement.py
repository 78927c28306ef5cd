"""How much raters disagree, how well that is predicted, and the concentration that fits their ratings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from calibrant.calibrators.labelled_rows import about_sample
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.inference.disagreement_differences import disagreement_difference
from calibrant.raters.alpha_calibration import compared
from calibrant.raters.disagreement_report import NEEDS, disagreement_report
from calibrant.results.base import Result, may_say, says
from calibrant.results.reads import Edges, Query, State, edges_of_bins, level, other_side, read

Criterion = Literal["disagreement_loss", "epistemic_loss_after_one_vote"]
NUMBERS = (
    *("rater_disagreement", "rater_disagreement_interval", "mean_disagreement"),
    *("disagreement_loss", "disagreement_loss_interval"),
    *("calibration_loss", "calibration_loss_interval"),
    *("disagreement_ce", "epistemic_loss", "concentration", "before", "after"),
)


@dataclass(frozen=True, kw_only=True)
class ConcentrationQuery(Query):
    """How a concentration is fitted."""

    penalty: float = says("Factor of (log alpha0)^2.", 0.005, ge=0, le=1e6, allow_inf_nan=False)
    ci: float = level()


@dataclass(frozen=True, kw_only=True)
class PosteriorQuery(ConcentrationQuery):
    """How a concentration is fitted if none is given, and the belief before the ratings."""

    belief: Literal["dirichlet", "ensemble", "dirichlet_ensemble"] | None = says(
        "Default: `dirichlet` without members, `ensemble` with them.", None
    )


@dataclass(frozen=True, kw_only=True)
class MethodsQuery(ConcentrationQuery):
    """How concentrations are fitted to posted ratings, and evaluated."""

    bins: int = says("Equal-width bins of the prediction.", 15, ge=1, le=120)
    criterion: Criterion = says(
        "Loss on the validation part that selects the best.", "disagreement_loss"
    )
    instances: bool = says(
        "Return the head's alpha0 of every row, new rows without labels included.", False
    )


@dataclass(frozen=True, kw_only=True)
class DisagreementQuery(ConcentrationQuery):
    """Bins of the predicted disagreement, weight of a prediction, and how a concentration is fitted."""

    bins: int = says("Number of equal-width bins; a divisor of 120.", 15, ge=1, le=120)
    edges: Edges = edges_of_bins()
    loss_weight: Literal["1", "n"] = says("A prediction counts once, or once per rating.", "1")
    concentration: float | None = says(
        "alpha0 under which the result is also returned, as `given`.", None, gt=0, le=1e12
    )
    compare: bool = says(
        "Compare methods of alpha-calibration on the stored sample, and name the best.", False
    )
    criterion: Criterion = says(
        "Loss on the validation part that selects the best.", "disagreement_loss"
    )

    def view(self, state: State) -> View:
        """Return the view of a window."""
        names = ("loss_weight", "penalty", "concentration")
        options = {name: getattr(self, name) for name in names}
        pane_query = PaneQuery(
            bins=self.bins, edges=self.edges, ci=self.ci, options=options, own_bins=True
        )
        return View(state.pane, pane_query)


@dataclass(frozen=True, kw_only=True, repr=False)
class Disagreement(Result):
    """Disagreement of raters, observed and predicted, over predictions with at least two ratings."""

    n: int
    rater_disagreement: float | None = says(
        "Share of a prediction's pairs of ratings that differ, as the mean over predictions with at least two."
    )
    mean_disagreement: float | None = says("Predicted: mean of 1 - sum z^2.")
    disagreement_loss: float | None
    disagreement_ce: float | None
    concentration: dict[str, Any] | None = says("Fitted alpha0, with its interval.")
    before: dict[str, Any] | None
    after: dict[str, Any] | None = says(
        "Results under the fitted concentration. `calibrated_disagreement_ce` has bins of the prediction under it."
    )
    given: dict[str, Any] | None = may_say("Results under the requested `concentration`.")
    reliability: list[dict[str, Any]]
    warnings: list[dict[str, Any]]
    calibrations: dict[str, Any] | None = may_say(
        "raw, alpha, temperature, temperature_alpha, joint, head; with `compare`."
    )
    reason: str | None = may_say()


def _accumulators(query: DisagreementQuery) -> Iterable[str]:
    return NEEDS | {"sample"} if query.compare else NEEDS


def _is_slow(query: DisagreementQuery) -> bool:
    """Six fits of a large sample take a second."""
    return query.compare


def _compared(state: State, other: State, query: DisagreementQuery) -> Disagreement:
    """Return the result with `differences` from the other side by number."""
    mine = disagreement(state, query).to_dict()
    theirs = disagreement(other, replace(query, compare=False)).to_dict()
    views = query.view(state), query.view(other)
    found = disagreement_difference(*views, mine, theirs)
    against = other_side(state, other)
    return Disagreement.from_dict(mine | {"differences": found, "against": against})


def _methods(query: DisagreementQuery, pane: Pane) -> dict[str, Any]:
    """Return every method of alpha-calibration on the stored sample, or the reason why not."""
    sample = about_sample(pane)
    if sample is None:
        detail = "panes of models with this many classes store no sample"
        return {"best": None, "reason": "not_kept", "detail": detail}
    names = ("penalty", "criterion", "bins", "ci")
    found = compared(pane.sample.batch(), **{name: getattr(query, name) for name in names})
    return found | {"sample": sample}


@read(
    "disagreement",
    tag="raters",
    response="The disagreement, or its diagram",
    accumulators=_accumulators,
    compare=_compared,
    compared_accumulators=("replicates", "sample"),
    is_slow=_is_slow,
)
def disagreement(state: State, query: DisagreementQuery) -> Disagreement:
    """Return how much raters disagree and how well the model predicts it."""
    more = {"calibrations": _methods(query, state.pane)} if query.compare else {}
    try:
        found = disagreement_report(query.view(state), state.seed)
    except NoResultError as error:
        if error.reason == "bins_not_exact":
            raise CalibrationInputError.at("/bins", error.reason, error.detail) from error
        found = _nothing(state, query, error)
    return Disagreement.from_dict({"reason": None} | found | more)


def _nothing(state: State, query: DisagreementQuery, error: NoResultError) -> dict[str, Any]:
    counts = state.pane.counts
    return {
        **dict.fromkeys(NUMBERS),
        "n": 0,
        "n_labelled": counts["n_labelled"],
        "n_ratings": counts["n_ratings"],
        "bins": query.bins,
        "reliability": [],
        "warnings": [],
        "reason": error.reason,
        "detail": error.detail,
        "n_excluded": error.n_excluded,
    }
