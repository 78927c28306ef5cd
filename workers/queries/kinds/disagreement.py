"""How far raters disagree, how well that is predicted, and the concentration that their votes ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.calibrators.rows import about_sample
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import NotAnswerable, View
from calibrant.raters.alpha_calibration import compared
from calibrant.raters.concentration import PENALTY
from calibrant.raters.disagreement_report import NEEDS, disagreement_answer

_OPTIONS = ("loss_weight", "penalty")


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the disagreement's loss and the concentration's fit read; for a comparison the kept sample as well."""
    return NEEDS | {"sample"} if params.get("compare") else NEEDS


def is_slow(params: dict[str, Any]) -> bool:
    """Six fits of a large sample take a second."""
    return bool(params.get("compare"))


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Losses before and after the fitted concentration, reliability by bin, warnings.

    Where nothing can be said every number is None, with a `reason`.

    Raises
    ------
    CalibrationInputError
        Bins that the 120 cells of disagreement cannot give exactly.
    """
    question = question_of_disagreement(params)
    view = View(pane, question)
    compared = {"calibrations": _compared(pane, params)} if params.get("compare") else {}
    try:
        return {"reason": None} | disagreement_answer(view, seed) | compared
    except NotAnswerable as fault:
        if fault.reason == "bins_not_exact":
            raise CalibrationInputError.at("/bins", fault.reason, fault.detail) from fault
        return {
            **dict.fromkeys(NUMBERS),
            "n": 0,
            "n_labelled": pane.counts["n_labelled"],
            "n_ratings": pane.counts["n_ratings"],
            "bins": question.bins,
            "reliability": [],
            "warnings": [],
            "reason": fault.reason,
            "detail": fault.detail,
            "n_excluded": fault.n_excluded,
            **compared,
        }


def question_of_disagreement(params: dict[str, Any]) -> PaneQuery:
    """The question that is asked of the votes."""
    return PaneQuery(
        bins=params.get("bins", 15),
        edges=params.get("edges", "right"),
        ci=params.get("ci", 0.95),
        options={name: params[name] for name in _OPTIONS if name in params},
        own_bins=True,
    )


def _compared(pane: Pane, params: dict[str, Any]) -> dict[str, Any]:
    """Every way of alpha-calibration on the kept sample, or the reason why not."""
    sample = about_sample(pane)
    if sample is None:
        return {
            "best": None,
            "reason": "not_kept",
            "detail": "panes of so many classes keep no sample",
        }
    return compared(
        pane.sample.batch(),
        penalty=params.get("penalty", PENALTY),
        criterion=params.get("criterion", "disagreement_loss"),
        bins=params.get("bins", 15),
        ci=params.get("ci", 0.95),
    ) | {"sample": sample}


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
