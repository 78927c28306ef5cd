"""How far raters disagree and how well that is predicted, beside a baseline or another model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.view import View
from calibrant.inference.disagreement_differences import disagreement_difference
from calibrant_server.workers.queries.kinds import disagreement
from calibrant_server.workers.queries.kinds.metrics_difference import (
    other_side,
    plain,
    refuse_other_classes,
)

PAIRED = True


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the disagreement reads, and what tells how far both sides go together."""
    return {*disagreement.parts(plain(params)), "replicates", "sample"}


def answer(
    pair: tuple[Pane, Pane], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """As `disagreement`, with `differences` from the other side by number."""
    pane, other = pair
    refuse_other_classes(pane, other)
    asked = plain(params)
    mine = disagreement.answer(pane, config, asked, seed)
    theirs = disagreement.answer(other, config, asked | {"compare": False}, seed)
    question = disagreement.question_of_disagreement(asked)
    told = disagreement_difference(View(pane, question), View(other, question), mine, theirs, seed)
    return mine | {"differences": told, "against": other_side(params, pane, other)}
