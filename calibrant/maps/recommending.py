"""Which change of the probabilities is worth making: none, a temperature, an intercept a class, or more.

Each candidate is fitted on one half of the units and judged on the other, so that none wins by having more parameters.
The rule: of leave it, temperature, intercept, more, in this order, the first that no later one beats. One beats another
where the whole interval of its gain in held-out NLL lies above 0; in Brier score where a rating has probability 0 as it
was sent. "More" is vector scaling: a slope and an intercept a class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from calibrant.maps import simple, vector
from calibrant.maps.base import REASONS, Floats, Options, Solved
from calibrant.maps.from_rows import held_out_rows, rows_of, scope_losses
from calibrant.maps.rows import FEWEST_UNITS, LabelledRows, mean_by_unit
from calibrant.temperature import fit_temperature_exact
from calibrant.view import NotAnswerable, View

LEAVE = "leave it"
RULE = (
    "the first of leave it, temperature, intercept, more that no later one beats on held-out labels"
)
Solve = Callable[[LabelledRows], Solved]
At = Callable[[Mapping[str, Any], Floats], Floats]
CANDIDATES: dict[str, tuple[Solve, At]] = {
    "temperature": (simple.solve_temperature, simple.at),
    "intercept": (simple.solve_intercept, simple.at),
    "more": (lambda rows: vector.solve_rows(rows, Options()), vector.at_rows),
}


def recommend(view: View) -> dict[str, Any]:
    """What held-out labels recommend, from the kept sample or from raw rows.

    Parameters
    ----------
    view : View; its question gives the label policy and the level of the intervals

    Returns
    -------
    dict with `recommendation` ("leave it", "temperature", "intercept", "more", or None with a `recommendation_reason`)
    and `recommendation_evidence`: by candidate the held-out NLL and Brier, the gain over leaving it with its interval,
    and by whom it is beaten.

    Examples
    --------
    >>> from calibrant import Batch, Pane, PaneSpec
    >>> from calibrant.question import Question
    >>> pane = Pane(PaneSpec("binary", 2))
    >>> columns = {"confidences": [0.99, 0.01] * 500, "labels": [1, 0, 1, 0, 1, 0, 0, 1] * 125}
    >>> columns["ids"] = [f"i{i}" for i in range(1000)]
    >>> pane.fill(Batch.from_columns(columns).batch)
    >>> recommend(View(pane, Question()))["recommendation"]
    'temperature'
    """
    try:
        rows, sample = rows_of(view)
    except NotAnswerable as fault:
        return _nothing(fault.reason, fault.detail)
    rows = rows.take(np.flatnonzero(rows.weight > 0))
    if not len(rows):
        return _nothing("no_labels", REASONS["no_labels"])
    if rows.n_units < FEWEST_UNITS:
        return _nothing("few_units", f"fewer than {FEWEST_UNITS} independent units")
    scope = "positive" if view.spec.task == "binary" else "full"
    losses, reasons = {LEAVE: scope_losses(rows, rows.probabilities, scope)}, {}
    for name, (solve, at) in CANDIDATES.items():
        mapped, reason = cross_fitted(rows, solve, at)
        if mapped is None:
            reasons[name] = reason
        else:
            losses[name] = scope_losses(rows, mapped, scope)
    decisive = "nll" if all(np.isfinite(each["nll"]).all() for each in losses.values()) else "brier"
    beaten_by = {name: _beaters(name, losses, decisive, rows, view) for name in losses}
    choice = next(name for name in losses if not beaten_by[name])
    shown = {
        name: _shown(name, each, losses, rows, view) | {"beaten_by": beaten_by[name]}
        for name, each in losses.items()
    }
    shown |= {name: {"reason": reason} for name, reason in reasons.items()}
    evidence = {
        "rule": RULE,
        "loss": decisive,
        "scope": scope,
        "n": len(rows),
        "n_units": rows.n_units,
        "ci": view.question.ci,
        "candidates": shown,
        "sample": sample,
    }
    return {
        "recommendation": choice,
        "recommendation_reason": None,
        "recommendation_evidence": evidence,
    }


def cross_fitted(rows: LabelledRows, solve: Solve, at: At) -> tuple[Floats | None, str | None]:
    """Probabilities of every row by the fit to the other half of the units; or the reason why a half has no fit."""
    mapped = np.empty_like(rows.logits)
    for side in (0, 1):
        solved = solve(rows.take(np.flatnonzero(rows.half != side)))
        if solved.parameters is None:
            return None, solved.reason
        mine = np.flatnonzero(rows.half == side)
        mapped[mine] = at(solved.parameters, rows.logits[mine])
    return mapped, None


def held_out_temperature(view: View, objective: str) -> dict[str, Any]:
    """`heldout` and `heldout_reason` of a temperature fitted by an objective, on the kept sample or raw rows.

    Parameters
    ----------
    view : View; its question gives label policy and level
    objective : "nll", "brier" or "ece"
    """
    try:
        rows, sample = rows_of(view)
    except NotAnswerable as fault:
        return {"heldout": None, "heldout_reason": fault.reason}
    if not rows.weight.sum() > 0:
        return {"heldout": None, "heldout_reason": "no_labels"}
    solve: Solve = simple.solve_temperature if objective == "nll" else _by(objective, view)
    scope = "positive" if view.spec.task == "binary" else "full"
    answer, reason = held_out_rows(solve, simple.at, rows, scope, view.question.ci)
    shown = None if answer is None else answer | {"sample": sample}
    return {"heldout": shown, "heldout_reason": reason}


def _by(objective: str, view: View) -> Solve:
    """Temperature by another objective, of halves of the view's rows."""
    whole = view.pane.sample.batch() if view.filling is None else view.filling.batch

    def solve(rows: LabelledRows) -> Solved:
        found = fit_temperature_exact(
            whole.take(rows.place), objective=objective, raters=view.question.raters
        )
        if found["temperature"] is None:
            return Solved(None, found["reason"])
        k = rows.n_classes
        slopes = np.full(k, found["inverse_temperature"])
        return Solved(simple.named(np.stack([slopes, np.zeros(k)], axis=1)))

    return solve


def _nothing(reason: str, detail: str) -> dict[str, Any]:
    return {
        "recommendation": None,
        "recommendation_reason": reason,
        "recommendation_evidence": {"rule": RULE, "detail": detail},
    }


def _gain(
    first: dict[str, Floats], then: dict[str, Floats], loss: str, rows: LabelledRows, view: View
) -> dict[str, Any]:
    with np.errstate(invalid="ignore"):
        difference = first[loss] - then[loss]
    return mean_by_unit(difference, rows.weight, rows.unit, view.question.ci)


def _beaters(
    name: str, losses: dict[str, dict[str, Floats]], loss: str, rows: LabelledRows, view: View
) -> list[str]:
    later = list(losses)[list(losses).index(name) + 1 :]
    gains = {other: _gain(losses[name], losses[other], loss, rows, view) for other in later}
    return [other for other, gain in gains.items() if gain["interval"] and gain["interval"][0] > 0]


def _shown(
    name: str,
    mine: dict[str, Floats],
    losses: dict[str, dict[str, Floats]],
    rows: LabelledRows,
    view: View,
) -> dict[str, Any]:
    total = float(rows.weight.sum())
    means = {loss: float(values.sum()) / total for loss, values in mine.items()}
    shown: dict[str, Any] = {k: v if np.isfinite(v) else None for k, v in means.items()}
    if name != LEAVE:
        shown["gain"] = {loss: _gain(losses[LEAVE], mine, loss, rows, view) for loss in mine}
    return shown
