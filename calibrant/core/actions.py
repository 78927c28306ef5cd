"""The one vocabulary of recommendations: what to do about a model's calibration.

Drift, temperature and calibration maps use these words, so that a client reads one form.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict
from urllib.parse import quote

from calibrant.core.documents import Extra

ACTIONS = ("none", "temperature", "intercept", "slope_intercept", "flexible", "collect_more")

# The calibration map that carries out an action. No map fits an intercept alone: the next richer one does.
_BINARY = {"temperature": "temperature", "intercept": "platt", "slope_intercept": "platt"}
_MULTICLASS = {"temperature": "temperature", "intercept": "vector", "slope_intercept": "vector"}
FLEXIBLE = "isotonic"


class ActionRequest(TypedDict):
    """Request that carries out an action; the body is None if it needs data that only the caller has."""

    method: str
    path: str
    body: Extra | None


class Advice(TypedDict):
    """Recommendation as every report shows it; see `recommendation`."""

    action: str | None
    reason: str
    evidence: Extra
    next: NotRequired[ActionRequest | None]


def recommendation(action: str | None, reason: str, evidence: Extra) -> Advice:
    """Return a recommendation as every report shows it.

    Parameters
    ----------
    action : one of `ACTIONS`; None if the data do not determine one; `reason` gives the cause
    reason : a sentence
    evidence : numbers that the recommendation depends on

    Raises
    ------
    ValueError
        The action is not one of `ACTIONS`.

    Examples
    --------
    >>> recommendation("none", "No other candidate is better.", {})["action"]
    'none'
    """
    if action is not None and action not in ACTIONS:
        raise ValueError(f"received action {action!r}; expected one of {', '.join(ACTIONS)}")
    return {"action": action, "reason": reason, "evidence": evidence}


def at_rows(model: str, slice_: str = "") -> Advice:
    """Return the recommendation where only the rows of the cohorts determine an update.

    Examples
    --------
    >>> at_rows("ct", "site:B")["reason"][:38]
    'Run `calibrant drift ct --slice site:B'
    """
    named = f" --slice {slice_}" if slice_ else ""
    reason = f"Run `calibrant drift {model}{named}`: it names the update that corrects the predictions since the change."
    return recommendation(None, reason, {})


def read_drift(model: str, slice_: str = "") -> ActionRequest:
    """Return the request that reads the present recommendation of a model, or of one of its slices.

    Examples
    --------
    >>> read_drift("ct", "site:St. B")["path"]
    '/v1/models/ct/drift?slice=site:St.%20B'
    """
    query = f"?slice={quote(slice_, safe=':')}" if slice_ else ""
    return {"method": "GET", "path": f"/v1/models/{model}/drift{query}", "body": None}


def map_method(action: str, is_binary: bool) -> str | None:
    """Return the calibration map that carries out an action; None if the action needs no map.

    Examples
    --------
    >>> map_method("slope_intercept", is_binary=True), map_method("collect_more", is_binary=True)
    ('platt', None)
    """
    if action == "flexible":
        return FLEXIBLE
    return (_BINARY if is_binary else _MULTICLASS).get(action)


def next_request(
    action: str | None, model: str, is_binary: bool, window: Any = None, **view: Any
) -> ActionRequest | None:
    """Return the request that carries out an action on a model of the service.

    Parameters
    ----------
    action : one of `ACTIONS` or None
    model : id of the model
    is_binary : whether its task is `binary`
    window : dict with `from` and perhaps `to` (RFC 3339), on which a map is fitted; None for the default window
    view : further fields of the body, such as `slice`; those that are None are left out

    Returns
    -------
    ActionRequest, or None if there is nothing to do
    """
    path = f"/v1/models/{model}"
    if action == "collect_more":
        return {"method": "POST", "path": f"{path}/labels", "body": None}
    method = None if action is None else map_method(action, is_binary)
    if method is None:
        return None
    fields = {"method": method, **(window or {}), **view}
    body = {name: value for name, value in fields.items() if value is not None}
    return {"method": "POST", "path": f"{path}/maps", "body": body}
