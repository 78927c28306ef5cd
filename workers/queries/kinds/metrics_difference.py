"""Any set of metrics over a window, against a baseline or another model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.view import View
from calibrant.inference.metrics_differences import differences
from calibrant.inference.pairing import shared
from calibrant.metrics import DEFAULT_METRICS
from calibrant.report import question_of
from calibrant_server.workers.queries.kinds import metrics

PAIRED = True
AGAINST = ("against", "against_model")


def parts(params: dict[str, Any]) -> Iterable[str]:
    """What the metrics read, and the kept sample, which tells what both sides share."""
    return {*metrics.parts(plain(params)), "sample"}


def answer(pair: Any, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """As `metrics`, with the other side's value, the difference and its interval in each."""
    pane, other = pair
    refuse_other_classes(pane, other)
    asked = plain(params)
    told = metrics.answer(pane, config, asked, seed)
    question = question_of(asked)
    slugs = asked.get("metrics") or DEFAULT_METRICS
    told["metrics"] = differences(View(pane, question), View(other, question), slugs, seed)
    return told | {"against": other_side(params, pane, other)}


def plain(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters without what they are asked against."""
    return {name: value for name, value in params.items() if name not in AGAINST}


def other_side(params: dict[str, Any], pane: Pane, other: Pane) -> dict[str, Any]:
    """What the other side is, how much it holds, and how many labelled predictions stand on both."""
    named = {name.removeprefix("against_"): params[name] for name in AGAINST if name in params}
    if "against" in named:
        named = {"baseline": named["against"]}
    return {**named, **other.counts, "shared": shared(pane, other)}


def refuse_other_classes(pane: Pane, other: Pane) -> None:
    """Raise where two models' panes are of another task or other classes."""
    if (pane.spec.task, pane.spec.n_classes) != (other.spec.task, other.spec.n_classes):
        detail = "models of another task or other classes cannot be compared"
        raise CalibrationInputError.at("/against_model", "not_comparable", detail)
