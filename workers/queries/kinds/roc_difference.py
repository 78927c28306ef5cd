"""The receiver operating characteristic, beside a baseline or another model: the areas compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant_server.workers.queries.kinds import roc
from calibrant_server.workers.queries.kinds.metrics_difference import (
    other_side,
    plain,
    refuse_other_classes,
)

PAIRED = True


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the curve reads, and what tells how much both sides share."""
    return {*roc.parts(plain(params)), "sample"}


def answer(
    pair: tuple[Pane, Pane], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """As `roc`; `area` with the other side's value, the difference and its interval."""
    pane, other = pair
    refuse_other_classes(pane, other)
    asked = plain(params)
    mine = roc.answer(pane, config, asked, seed)
    view, theirs = (View(each, roc.question_of_roc(each, asked)) for each in pair)
    return mine | {
        "area": differences(view, theirs, ["auc"], seed)["auc"],
        "against": other_side(params, pane, other),
    }
