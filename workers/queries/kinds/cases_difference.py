"""Every case of a window, and how its errors compare with a baseline's or another model's of the same cases."""

from __future__ import annotations

from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.view import NotAnswerable, View
from calibrant.segmentation.case_comparison import compare_case_errors
from calibrant.segmentation.case_errors import case_errors
from calibrant_server.workers.queries.kinds import cases
from calibrant_server.workers.queries.kinds.metrics_difference import refuse_other_classes

PAIRED = True
parts = cases.parts


def answer(
    pair: tuple[Pane, Pane], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """As `cases`, with `comparison`: paired tests by measure; None with a `comparison_reason` where a side has no cases.

    Raises
    ------
    CalibrationInputError
        As `cases`, or models that cannot be compared.
    """
    pane, other = pair
    refuse_other_classes(pane, other)
    told = cases.answer(pane, config, params, seed) | {
        name: params[name] for name in ("against", "against_model") if name in params
    }
    question = cases.question_of_cases(params)
    try:
        mine, theirs = (case_errors(View(each, question)) for each in (pane, other))
    except NotAnswerable as refusal:
        return told | {"comparison": None, "comparison_reason": refusal.reason}
    compared = compare_case_errors(mine, theirs, seed)
    for measure in compared.values():
        measure["by_class"] = [
            each | {"class": cases.named(each["class"], config.classes)}
            for each in measure["by_class"]
        ]
    return told | {"comparison": compared}
