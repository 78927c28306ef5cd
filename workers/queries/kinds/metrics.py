"""Any set of metrics over a window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.pane import Pane
from calibrant.core.view import View
from calibrant.metrics import DEFAULT_METRICS, accumulators_for, compute_metrics
from calibrant.raters.label_coverage import PARTS, coverage
from calibrant.report import question_of


def parts(params: dict[str, Any]) -> Iterable[str]:
    """The accumulators that the asked metrics read."""
    return accumulators_for(params.get("metrics") or DEFAULT_METRICS) | {"unit_sample", *PARTS}


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Counts of the window, and each metric by its slug."""
    view = View(pane, question_of(params))
    slugs = params.get("metrics") or DEFAULT_METRICS
    held = pane.counts
    return {
        **held,
        **_histograms(pane, held),
        "weight": pane.weight,
        **_units(pane),
        "raters": view.question.raters,
        "scope": view.scope,
        "metrics": _named(compute_metrics(view, slugs, seed), config.classes),
        "label_coverage": coverage(pane, ci=view.question.ci),
    }


def _named(found: dict[str, dict[str, Any]], names: list[str] | None) -> dict[str, dict[str, Any]]:
    """The same, with the classes of errors over cases by their names where the model declares them."""
    for each in found.values():
        if names and "classes" in each:
            each["classes"] = [names[int(klass)] for klass in each["classes"]]
    return found


def _histograms(pane: Pane, held: dict[str, int]) -> dict[str, Any]:
    """What came as plain histograms, by what they speak of; several may be of the same predictions, so the most counts."""
    kept = pane.histograms
    if kept.is_empty:
        return {}
    found = [
        {
            **dict(zip(("kind", "class", "raters", "edges"), key.split("|"), strict=True)),
            "weight": kept.weight(key),
        }
        | {"n_predictions": kept.n_predictions(key)}
        for key in sorted(kept.blocks)
    ]
    most = max((kept.n_predictions(key) or 0 for key in kept.blocks), default=0)
    return {"n_predictions": held["n_predictions"] + most, "histograms": found}


def _units(pane: Pane) -> dict[str, Any]:
    """Where units come from, and how many came in more than one batch or pane and so count more than once."""
    split = pane.units_split
    found: dict[str, Any] = {"unit_source": pane.unit_source, "n_units_split": split["n"]}
    return found | ({"n_units_split_estimated": True} if split["estimated"] else {})
