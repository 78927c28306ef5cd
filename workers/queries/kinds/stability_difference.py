"""How steady a calibration error is, beside a baseline or another model: the metric under every label policy, compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from calibrant.core.label_policies import POLICIES
from calibrant.core.pane import Pane
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant.report import question_of
from calibrant_server.workers.queries.kinds import stability
from calibrant_server.workers.queries.kinds.metrics_difference import (
    other_side,
    plain,
    refuse_other_classes,
)

PAIRED = True


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What stability reads, and what tells how much both sides share."""
    return {*stability.parts(plain(params)), "sample"}


def is_slow(params: dict[str, Any]) -> bool:
    """As `stability`, of both sides."""
    return stability.is_slow(plain(params))


def answer(
    pair: tuple[Pane, Pane], config: Any, params: dict[str, Any], seed: int
) -> dict[str, Any]:
    """As `stability`; each of `baselines` with the other side's value, the difference and its interval."""
    pane, other = pair
    refuse_other_classes(pane, other)
    asked = plain(params)
    mine, theirs = (stability.answer(each, config, asked, seed) for each in pair)
    slug = asked["metric"]
    question = question_of(
        {name: value for name, value in asked.items() if name not in stability.OWN}
    )
    compared = {}
    for policy in POLICIES:
        asked_so = replace(question, raters=policy)
        compared[policy] = differences(View(pane, asked_so), View(other, asked_so), [slug], seed)[
            slug
        ]
    about = other_side(params, pane, other) | {"raters": theirs["raters"], "ratio": theirs["ratio"]}
    return mine | {"baselines": compared, "against": about}
