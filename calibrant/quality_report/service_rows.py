"""Rows of the report about the map in use and the alarm, which a service has; and of the losses of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibrant.core.statuses import STATUS_TEXTS, shown_status
from calibrant.figures.base import scope_of
from calibrant.figures.numbers import (
    MISSING,
    by_whom,
    counted,
    interval_text,
    plain_number,
    to_the_minute,
)


def loss_rows(fitted: Mapping[str, Any], classes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the losses of a fit before and after, on its own data; `classes` names the class of the ECE."""
    names = {
        "nll": "Negative log-likelihood",
        "brier": f"Brier score ({_brier_scale(fitted)})",
        "ece": _error_name(fitted, classes),
    }
    before, after = fitted.get("before") or {}, fitted.get("after") or {}
    return [
        (
            f"{title} on the data of the fit",
            f"{plain_number(before[loss])} before, {plain_number(after[loss])} after",
        )
        for loss, title in names.items()
        if before.get(loss) is not None and after.get(loss) is not None
    ]


def _brier_scale(fitted: Mapping[str, Any]) -> str:
    """Return of what the Brier score of a fit is: maps of one class state that of this class, half of the metric.

    >>> _brier_scale({"evaluation": {"brier": "one class"}}), _brier_scale({"scope": "positive"})
    ('one class', 'sum over classes')
    """
    return (fitted.get("evaluation") or {}).get("brier") or "sum over classes"


def _error_name(fitted: Mapping[str, Any], classes: Sequence[str]) -> str:
    """Return of which probability the ECE of a fit is; that of a map of all classes is of the top class."""
    scope = fitted.get("scope")
    if scope not in ("top_label", "full", "positive", "all"):
        return "ECE"
    shown = "top_label" if scope == "full" else scope
    return f"ECE of the {scope_of({'scope': shown, 'classes': list(classes)})}"


def active_map_rows(
    found: Mapping[str, Any] | None, classes: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the promoted map, by whom and on which evidence."""
    if found is None:
        return []
    promotion: Mapping[str, Any] = found.get("promotion") or {}
    evidence: Mapping[str, Any] = promotion.get("evidence") or {}
    rows = [
        ("Version", str(found.get("version", MISSING))),
        ("Method", str(found.get("method", MISSING)).replace("_", " ")),
        ("Fitted to", counted(found.get("n"), "labelled prediction")),
        *loss_rows(found, classes),
        ("Digest", str(found.get("digest") or MISSING)),
        (
            "Promoted",
            f"{promotion.get('promoted_at') or MISSING} {by_whom(promotion.get('promoted_by'))}",
        ),
        ("Reason", str(promotion.get("reason") or MISSING)),
        ("Override", "yes: promoted without evidence" if promotion.get("override") else "no"),
    ]
    if "beats" in evidence:
        is_procedure = evidence.get("evidence_of") == "procedure"
        where = "when its procedure is cross-fitted by unit" if is_procedure else "on later labels"
        text = f"better than what it replaced, {where}" if evidence["beats"] else "not shown"
        rows.append(("Evidence", text))
    gain: Mapping[str, Any] = (evidence.get("gain") or {}).get("nll") or {}
    if gain.get("value") is not None:
        bounds = f" ({interval_text(gain['interval'])})" if gain.get("interval") else ""
        rows.append(("Gain in NLL", f"{plain_number(gain['value'])}{bounds}"))
    return rows


def alarm_rows(drift: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return status, scores and false-alarm rate of the model, with the changes of what its verdict depends on."""
    if drift is None:
        return []
    status, scores = shown_status(drift) or MISSING, drift.get("scores") or {}
    return [
        ("Status", STATUS_TEXTS.get(status, status)),
        *(
            (name.capitalize(), str(drift[name]["sentence"]))
            for name in ("calibration", "change")
            if name in drift
        ),
        ("Scores", str(scores.get("sentence", MISSING))),
        ("False alarms", _false_alarm_rate(drift)),
        *(
            (f"Changed {to_the_minute(each['at'])}", each["name"])
            for each in drift.get("settings") or ()
        ),
    ]


def _false_alarm_rate(drift: Mapping[str, Any]) -> str:
    """Return the rate that is claimed, or why none is, as `units` of `GET drift` has it."""
    level, no_claim = drift.get("level"), (drift.get("units") or {}).get("detail")
    if level is None:
        return "None are possible, because no alarm can be raised yet."
    if no_claim:
        return str(no_claim)
    n, years = (
        plain_number(1.0 / level),
        f"{plain_number(1.0 / level / 365.0, 0)} years of daily ones",
    )
    return f"While nothing changes, the model and each watched slice raise at most 1 false alarm in {n} evaluations ({years})."
