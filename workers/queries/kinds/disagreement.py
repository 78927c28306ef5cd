"""How much raters disagree, how well that is predicted, and the concentration that fits their ratings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from pydantic import Field

from calibrant.calibrators.rows import about_sample
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.inference.disagreement_differences import disagreement_difference
from calibrant.raters.alpha_calibration import compared
from calibrant.raters.disagreement_report import NEEDS, disagreement_report
from calibrant_server.workers.queries.kind import (
    Against,
    Inputs,
    ResultKind,
    other_side,
    reject_other_classes,
)
from calibrant_server.workers.queries.query import CI, EDGES, Edges, Query

NUMBERS = (
    *("rater_disagreement", "rater_disagreement_interval", "mean_disagreement"),
    *(
        "disagreement_loss",
        "disagreement_loss_interval",
        "calibration_loss",
        "calibration_loss_interval",
    ),
    *("disagreement_ce", "epistemic_loss", "concentration", "before", "after"),
)


class DisagreementQuery(Query):
    """Bins of the predicted disagreement, weight of a prediction, and how a concentration is fitted."""

    kind: ClassVar[str] = "disagreement"

    penalty: float = Field(
        0.005, ge=0, le=1e6, allow_inf_nan=False, description="Factor of (log alpha0)^2."
    )
    ci: float = CI
    bins: int = Field(15, ge=1, le=120, description="Number of equal-width bins; a divisor of 120.")
    edges: Edges = EDGES
    loss_weight: Literal["1", "n"] = Field(
        "1", description="A prediction counts once, or once per rating."
    )
    concentration: float | None = Field(
        None,
        gt=0,
        le=1e12,
        description="alpha0 under which the result is also returned, as `given`.",
    )
    compare: bool = Field(
        False,
        description="Compare methods of alpha-calibration on the stored sample, and name the best.",
    )
    criterion: Literal["disagreement_loss", "epistemic_loss_after_one_vote"] = Field(
        "disagreement_loss", description="Loss on the validation part that selects the best."
    )

    def pane_query(self) -> PaneQuery:
        """Return the query of the view."""
        options = {
            "loss_weight": self.loss_weight,
            "penalty": self.penalty,
            "concentration": self.concentration,
        }
        return PaneQuery(
            bins=self.bins, edges=self.edges, ci=self.ci, options=options, own_bins=True
        )


def accumulators(query: DisagreementQuery) -> Iterable[str]:
    """What the disagreement's loss and the concentration's fit read; for a comparison the stored sample as well."""
    return NEEDS | {"sample"} if query.compare else NEEDS


def is_slow(query: DisagreementQuery) -> bool:
    """Six fits of a large sample take a second."""
    return query.compare


def compute(query: DisagreementQuery, inputs: Inputs) -> Result:
    """Losses before and after the fitted concentration, reliability by bin, warnings.

    Where nothing can be computed every number is None, with a `reason`.

    Raises
    ------
    CalibrationInputError
        Bins that the 120 cells of disagreement cannot give exactly.
    """
    pane = inputs.pane
    calibrations: Result = {"calibrations": _compared(query, pane)} if query.compare else {}
    try:
        return (
            {"reason": None}
            | disagreement_report(View(pane, query.pane_query()), inputs.seed)
            | calibrations
        )
    except NoResultError as error:
        if error.reason == "bins_not_exact":
            raise CalibrationInputError.at("/bins", error.reason, error.detail) from error
        return {
            **dict.fromkeys(NUMBERS),
            "n": 0,
            "n_labelled": pane.counts["n_labelled"],
            "n_ratings": pane.counts["n_ratings"],
            "bins": query.bins,
            "reliability": [],
            "warnings": [],
            "reason": error.reason,
            "detail": error.detail,
            "n_excluded": error.n_excluded,
            **calibrations,
        }


def compare(query: DisagreementQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """The same, with `differences` from the other side by number."""
    reject_other_classes(inputs.config, other.config)
    mine, theirs = compute(query, inputs), compute(query.own(compare=False), other)
    view, twin = (View(each.pane, query.pane_query()) for each in (inputs, other))
    found = disagreement_difference(view, twin, mine, theirs, inputs.seed)
    return mine | {"differences": found, "against": other_side(against, inputs.pane, other)}


def _compared(query: DisagreementQuery, pane: Pane) -> Result:
    """Every method of alpha-calibration on the stored sample, or the reason why not."""
    sample = about_sample(pane)
    if sample is None:
        return {
            "best": None,
            "reason": "not_kept",
            "detail": "panes of models with this many classes store no sample",
        }
    found = compared(
        pane.sample.batch(),
        penalty=query.penalty,
        criterion=query.criterion,
        bins=query.bins,
        ci=query.ci,
    )
    return found | {"sample": sample}


KIND = ResultKind(
    DisagreementQuery,
    compute,
    accumulators,
    compare,
    compared_accumulators=("replicates", "sample"),
    is_slow=is_slow,
)
