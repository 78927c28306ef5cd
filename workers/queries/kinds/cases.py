"""Every case of a window with its errors, what spreads over cases, and the dataset reliability histogram."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import NotAnswerable, View
from calibrant.segmentation.case_errors import CASE_OPTIONS
from calibrant.segmentation.case_report import case_reliability, cases_of
from calibrant.segmentation.case_sensitivity import sensitivity


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Counts, plain histograms, and the tables of cases."""
    return ("counts", "histograms", "cases")


def answer(pane: Pane, config: Any, params: dict[str, Any], seed: int) -> dict[str, Any]:
    """Cases, averages, boxes and histogram; classes by their names where the model declares them.

    Raises
    ------
    CalibrationInputError
        Bins that kept cases cannot give exactly, or a case of which no table is kept.
    """
    view = View(pane, question_of_cases(params))
    found = cases_of(view, params.get("frequency_bins"))
    if found.get("reason") == "bins_not_exact":
        raise CalibrationInputError.at("/bins", "bins_not_exact", found["detail"])
    names = config.classes
    if "classes" in found:
        found["classes"] = [named(each, names) for each in found["classes"]]
    if (case := params.get("case")) is not None:
        found["case"] = _one_case(view, case, names)
    if params.get("sensitivity") and not found.get("reason"):
        found["sensitivity"] = sensitivity(view)
    return found


def question_of_cases(params: dict[str, Any]) -> PaneQuery:
    """The question that is asked of the tables of cases."""
    return PaneQuery(
        bins=params.get("bins", 15),
        edges=params.get("edges", "right"),
        raters=params.get("raters", "pooled"),
        options={each.name: params[each.name] for each in CASE_OPTIONS if each.name in params},
        own_bins=True,
    )


def _one_case(view: View, case: str, names: list[str] | None) -> dict[str, Any]:
    try:
        found = case_reliability(view, case)
    except NotAnswerable as refusal:
        raise CalibrationInputError.at("/case", refusal.reason, refusal.detail) from refusal
    return found | {
        "classes": [each | {"class": named(each["class"], names)} for each in found["classes"]]
    }


def named(klass: str, names: list[str] | None) -> str:
    """The declared name of a class that is named by its index."""
    return names[int(klass)] if names else klass
