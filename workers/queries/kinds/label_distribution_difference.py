"""Predictions against the distribution of their ratings, beside a baseline or another model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant_server.workers.queries.kinds import label_distribution
from calibrant_server.workers.queries.kinds.metrics_difference import (
    other_side,
    plain,
    refuse_other_classes,
)

PAIRED = True


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the measures read, and what tells how much both sides share."""
    return {*label_distribution.parts(plain(params)), "sample"}


def answer(
    pair: tuple[Pane, Pane], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """As `label_distribution`; each measure with the other side's value, the difference and its interval."""
    pane, other = pair
    refuse_other_classes(pane, other)
    asked = plain(params)
    mine = label_distribution.answer(pane, config, asked, seed)
    view, theirs = (
        View(each, label_distribution.question_of_measures(each, asked)) for each in pair
    )
    compared = differences(view, theirs, label_distribution.SLUGS, seed)
    return mine | compared | {"against": other_side(params, pane, other)}
