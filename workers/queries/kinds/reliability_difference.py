"""The reliability table of a window beside that of a baseline or another model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.view import View
from calibrant.inference.reliability_differences import reliability_difference
from calibrant.raters.label_coverage import coverage
from calibrant.report import question_of
from calibrant_server.workers.queries.kinds import reliability
from calibrant_server.workers.queries.kinds.metrics_difference import (
    other_side,
    plain,
    refuse_other_classes,
)

PAIRED = True


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the table reads, and what tells how far both sides go together."""
    return {*reliability.parts(plain(params)), "replicates", "sample"}


def answer(
    pair: tuple[Pane, Pane], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """As `reliability`, with the other side's bins and the difference of gaps in each."""
    pane, other = pair
    refuse_other_classes(pane, other)
    question = question_of(plain(params))
    found = reliability_difference(View(pane, question), View(other, question), seed)
    about = {
        "label_coverage": coverage(pane, ci=question.ci),
        "against": other_side(params, pane, other),
    }
    return found | about
