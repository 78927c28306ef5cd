"""How errors follow the entropy of the predictions, beside a baseline or another model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant_server.workers.queries.kinds import uncertainty
from calibrant_server.workers.queries.kinds.metrics_difference import (
    other_side,
    plain,
    refuse_other_classes,
)

PAIRED = True


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the table reads, and what tells how much both sides share."""
    return {*uncertainty.parts(plain(params)), "sample"}


def answer(
    pair: tuple[Pane, Pane], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """As `uncertainty`, with the difference from the other side's error and its interval; `against` holds that and its table."""
    pane, other = pair
    refuse_other_classes(pane, other)
    asked = plain(params)
    mine, theirs = (uncertainty.answer(each, config, asked, seed) for each in pair)
    question = uncertainty.question_of_uncertainty(asked)
    compared = differences(View(pane, question), View(other, question), ["uce"], seed)["uce"]
    told = {name: value for name, value in compared.items() if name.startswith("difference")}
    about = {"value": theirs["value"], "table": theirs["table"]}
    return mine | told | {"against": other_side(params, pane, other) | about}
