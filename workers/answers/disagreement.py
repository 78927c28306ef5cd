"""How far raters disagree, how well that is predicted, and the concentration that their votes ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.disagreement import NEEDS, disagreement_answer
from calibrant.pane import Pane
from calibrant.question import Question
from calibrant.view import NotAnswerable, View

_OPTIONS = ("loss_weight", "penalty")


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the disagreement's loss and the concentration's fit read."""
    return NEEDS


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Losses before and after the fitted concentration, reliability by bin, warnings.

    Where nothing can be said every number is None, with a `reason`.
    """
    options = {name: params[name] for name in _OPTIONS if name in params}
    question = Question(
        bins=params.get("bins", 15),
        edges=params.get("edges", "right"),
        ci=params.get("ci", 0.95),
        options=options,
    )
    view = View(pane, question)
    try:
        return {"reason": None} | disagreement_answer(view, seed)
    except NotAnswerable as fault:
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
        }


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
