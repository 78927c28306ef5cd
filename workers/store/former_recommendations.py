"""Conversion of recommendations that older versions stored to the current form.

Drift, temperature and maps had different vocabularies. Alarms stored `recommended_action` with a text. Frozen maps stored action,
reason and evidence in three fields.
"""

from __future__ import annotations

from typing import Any

from calibrant.core.actions import recommendation

_ACTIONS = {
    "collect_labels": "collect_more",
    "slope": "slope_intercept",
    "flexible_map": "flexible",
    "leave it": "none",
    "more": "slope_intercept",
}


def of_alarm(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a stored episode with `recommendation`."""
    if "recommended_action" not in stored:
        return stored
    rest = dict(stored)
    advice: dict[str, Any] = rest.pop("recommended_action") or {}
    names = ("parameters", "holds_later", "tried")
    evidence: dict[str, Any] = {name: advice[name] for name in names if name in advice}
    found = recommendation(_current(advice.get("action")), advice.get("text", ""), evidence)
    return {**rest, "recommendation": found}


def of_map(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a stored map, or its summary, with `recommendation` as an object."""
    former = stored.get("recommendation")
    if isinstance(former, dict) or "recommendation" not in stored:
        return stored
    rest = {
        name: value
        for name, value in stored.items()
        if name not in ("recommendation_reason", "recommendation_evidence")
    }
    evidence: dict[str, Any] = stored.get("recommendation_evidence") or {}
    if former is None and not evidence:
        return {**rest, "recommendation": None}
    reason = evidence.get("detail") or evidence.get("rule") or ""
    return {**rest, "recommendation": recommendation(_current(former), reason, evidence)}


def _current(action: str | None) -> str | None:
    return None if action is None else _ACTIONS.get(action, action)
