"""What the words of a model do not hold for: its decision thresholds, classes and ranges of scores, in the sentences of the report."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from calibrant.core.documents import Result
from calibrant.core.time_texts import day_of
from calibrant.figures.base import scope_of
from calibrant.quality_report import ReportContents
from calibrant.quality_report.advice import apart
from calibrant.quality_report.contents import MAX_CLASSES
from calibrant.quality_report.decisions import flagged_note, flagged_sentences, harm_sentences
from calibrant.quality_report.exceptions import exceptions_of
from calibrant_server.service.pages.api import Api, ApiResponse, together
from calibrant_server.service.reads.report_change import change_start

View = dict[str, str | None]


async def read_exceptions(
    api: Api, path: str, settings: Result, found: dict[str, ApiResponse], view: View
) -> dict[str, ApiResponse]:
    """Return the net benefit at the declared thresholds, since a change if there is one, and the errors of classes of a good model."""
    thresholds = (settings.get("alarm") or {}).get("thresholds") or []
    named = ",".join(f"net_benefit(threshold={each:g})" for each in thresholds)
    since = {} if view["window"] else {"from": change_start(found["drift"].document)}
    asked = {"thresholds": api.get(f"{path}/metrics", metrics=named, include="details", **view, **since)} if named else {}  # fmt: skip
    for k in _classes(settings, found):
        asked[f"class:{k}"] = api.get(f"{path}/metrics", metrics="ece", scope=f"class:{k}", **view)
    return await together(**asked)


def _classes(settings: Result, found: dict[str, ApiResponse]) -> list[int]:
    word = (found["drift"].document.get("calibration") or {}).get("word")
    is_top = found["metrics"].document.get("scope") == "top_label"
    n = settings.get("n_classes") or 0
    if word != "good" or not is_top or n > MAX_CLASSES:
        return []
    return [1] if n == 2 else (settings.get("listed_classes") or list(range(n)))


def exception_texts(
    settings: Result,
    found: dict[str, ApiResponse],
    more: dict[str, ApiResponse],
    period: str,
) -> dict[str, Any]:
    """Return the exceptions, the advice about them, and the sentences at thresholds with their period.

    Parameters
    ----------
    found : the reads of the page
    more : as `read_exceptions` returns them
    period : of the page, such as "All data"
    """
    contents = _contents(settings, found, more)
    is_good = (found["drift"].document.get("calibration") or {}).get("word") == "good"
    exceptions = exceptions_of(contents) if is_good else []
    start = change_start(found["drift"].document) if period == "All data" else None
    shown = f"Since the change, {_day(start)}." if start else f"{period}."
    return {
        "exceptions": [each.sentence for each in exceptions],
        "apart": apart(exceptions),
        "harm": harm_sentences(contents),
        "flagged": flagged_sentences(contents),
        "flagged_note": f"{shown} {flagged_note(contents)}",
    }


def _day(at: str) -> str:
    return day_of(int(datetime.fromisoformat(at).timestamp()))


def _contents(
    settings: Result, found: dict[str, ApiResponse], more: dict[str, ApiResponse]
) -> ReportContents:
    """Return the results as those of a report."""
    at = more["thresholds"].document if "thresholds" in more else {}
    classes = tuple(settings.get("classes") or ())
    return ReportContents(
        title="",
        metrics={**at, "metrics": at.get("metrics") or {}},
        classes=classes,
        reliability=found["reliability"].document,
        tolerance=(found["drift"].document.get("calibration") or {}).get("allowed"),
        class_errors={
            scope_of({"scope": name, "classes": list(classes)}): each.document["metrics"]["ece"]
            for name, each in more.items()
            if name.startswith("class:") and each.is_ok
        },
    )
