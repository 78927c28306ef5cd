"""Data of the page of raters and cases, which read every retained record."""

from __future__ import annotations

from typing import Any

from calibrant.core.documents import Result
from calibrant.core.label_policies import POLICY_TEXTS
from calibrant.quality_report.odd_reader import odd_reader_sentences
from calibrant.quality_report.readers import mean_kappa, of_segmentation
from calibrant_server.service.pages.api import Api, ApiResponse, together
from calibrant_server.service.pages.model_page import (
    MAX_LISTED,
    SEGMENTATION,
    WINDOWS,
    ModelPageQuery,
)


async def raters_page(api: Api, model: str, query: ModelPageQuery) -> dict[str, Any]:
    """Return the values of the template; a read that fails is replaced by its problem."""
    path = f"/v1/models/{model}"
    view = {"window": None if query.window == "all" else query.window, "slice": query.slice}
    found = await together(
        settings=api.get(path),
        raters=api.get(f"{path}/raters", **view),
        cases=api.get(f"{path}/cases", limit=MAX_LISTED, **view),
        dice=api.get(f"{path}/metrics", metrics="dice", **view),
    )
    settings = found["settings"].document
    classes = settings.get("classes") or []

    def odd(raters: Result) -> list[str]:
        errors = {name: each["value"] for name, each in raters["by_rater"].items()}
        return odd_reader_sentences(raters.get("odd_rater"), errors, classes)

    return {
        "model": model,
        "query": query,
        "policies": POLICY_TEXTS,
        "windows": WINDOWS,
        "odd": odd,
        "mean_kappa": mean_kappa,
        "problem": _problem(found["raters"], settings),
        **found,
    }


def _problem(raters: ApiResponse, settings: Result) -> str:
    """Return why there are no raters; of a segmentation, what compares them."""
    rules = [each.get("rule") for each in raters.document.get("errors") or ()]
    is_long = settings.get("task") == SEGMENTATION and "too_many_records" in rules
    return of_segmentation(raters.problem) if is_long else raters.problem
