"""Recommended change of the probabilities: none, a temperature, one intercept per class, or slopes and intercepts.

Each candidate is fitted on one half of the units and evaluated on the other, so that none wins by its number of parameters.
The rule: of none, temperature, intercept, slope_intercept, in this order, the first that no later one beats. One beats
another if the complete interval of its gain in held-out NLL is above 0; in Brier score if a rating has probability 0 as
sent. "slope_intercept" is vector scaling. If the rows are a part of the window, whether a
temperature beats no change is evaluated on the complete window instead, whose profile gives that gain.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from calibrant.calibrators import scaling_maps, vector
from calibrant.calibrators.base import REASONS, FitResult, Floats
from calibrant.calibrators.cross_fitting import Halves
from calibrant.calibrators.from_rows import held_out_result, held_out_rows, rows_of, scope_losses
from calibrant.calibrators.rows import MIN_UNITS, LabelledRows, mean_by_unit
from calibrant.calibrators.shrinkage import MIN_CLASS_UNITS, UNITS_A_PARAMETER, units_of_classes
from calibrant.calibrators.temperature.fit import fit_temperature_exact
from calibrant.calibrators.temperature.held_out_gain import left_out_gain
from calibrant.core.actions import recommendation
from calibrant.core.batch import Batch
from calibrant.core.documents import Extra, Result, Row
from calibrant.core.view import NoResultError, View

LEAVE = "none"
RULE = "the first of none, temperature, intercept, slope_intercept that no later one beats on held-out labels"
MORE_LABELS = ("no_labels", "few_units", "missing_class", "few_rows")
CANDIDATES = {
    "temperature": scaling_maps.temperature_form,
    "intercept": scaling_maps.intercept_form,
    "slope_intercept": vector.form,
}
# Maximum of rows times classes in the comparison, which bounds its time; but never fewer rows per parameter of "slope_intercept"
# than this: the complete sample should determine a fit that a thinner one cannot.
MAX_NUMBERS = 1 << 14
MIN_ROWS_A_PARAMETER = 20


def recommend(view: View) -> Result:
    """Return the recommendation of held-out labels, from the stored sample or from raw rows.

    Parameters
    ----------
    view : View; its query gives the label policy and the level of the intervals

    Returns
    -------
    dict with `recommendation`: `action` ("none", "temperature", "intercept", "slope_intercept", "collect_more", or None if
    the window does not determine it), `reason`, and `evidence`: by candidate the held-out NLL and Brier, the gain over the
    probabilities as sent with its interval, and the candidates that beat it.

    Examples
    --------
    >>> from calibrant import Batch, Pane, PaneSpec
    >>> from calibrant.core.query import PaneQuery
    >>> pane = Pane(PaneSpec("binary", 2))
    >>> columns = {"confidences": [0.99, 0.01] * 500, "labels": [1, 0, 1, 0, 1, 0, 0, 1] * 125}
    >>> columns["ids"] = [f"i{i}" for i in range(1000)]
    >>> pane.fill_batch(Batch.from_columns(columns).batch)
    >>> recommend(View(pane, PaneQuery()))["recommendation"]["action"]
    'temperature'
    """
    return CandidateComparison(view).recommended()


class CandidateComparison:
    """Candidates fitted to the halves of a view's rows, once for all results.

    Parameters
    ----------
    view : View; its query gives the label policy and the level of the intervals
    temperature : initial value of the search for the halves' temperatures
    """

    def __init__(self, view: View, temperature: float | None = None) -> None:
        self.view, self.temperature = view, temperature
        self.scope = "positive" if view.spec.task == "binary" else "full"
        self.unavailable: tuple[str, str] | None = None
        self.mapped: dict[str, Floats] = {}
        self.reasons: dict[str, str] = {}
        try:
            k = view.spec.n_classes
            most = max(MAX_NUMBERS // k, MIN_ROWS_A_PARAMETER * 2 * k)
            rows, self.sample = rows_of(view, most)
        except NoResultError as error:
            self.unavailable = error.reason, error.detail
            return
        self.is_complete = len(rows) >= view.counts["n_labelled"]
        self.rows = rows.take(np.flatnonzero(rows.weight > 0))
        if not len(self.rows):
            self.unavailable = "no_labels", REASONS["no_labels"]
        elif self.rows.n_units < MIN_UNITS:
            self.unavailable = "few_units", f"fewer than {MIN_UNITS} independent units"
        else:
            self._fit()

    def _fit(self) -> None:
        """Compute probabilities of every row by each candidate's fit to the other half, or the reason why there is none."""
        halves, k = Halves(self.rows), self.rows.n_classes
        starts: dict[str, list[Floats]] = {}
        if self.temperature is not None:
            starts["temperature"] = [np.array([1.0 / self.temperature])] * 2
        for name, make in CANDIDATES.items():
            if name == "temperature" and self.rows.is_all_right:
                self.reasons[name] = "separable"
                continue
            if name == "slope_intercept" and not self._determines(k):
                # The map of this action would be rejected.
                self.reasons[name] = "few_rows"
                continue
            fitted, reason = halves.fitted(
                make, starts.get(name), missing_class_matters=name != "temperature"
            )
            if reason is not None:
                self.reasons[name] = reason
                continue
            self.mapped[name] = halves.mapped(make, fitted)
            if name == "temperature":
                starts["slope_intercept"] = [
                    np.append(np.full(k, at[0]), np.zeros(k)) for at in fitted
                ]

    def _determines(self, n_classes: int) -> bool:
        """Return whether the rows suffice for a slope and an intercept of every class."""
        units = units_of_classes(self.rows)
        if not units.all():
            return True  # the fit itself reports that a class is missing
        enough = self.rows.n_units >= UNITS_A_PARAMETER * 2 * n_classes
        return enough and bool((units >= MIN_CLASS_UNITS).all())

    @cached_property
    def losses(self) -> dict[str, dict[str, Floats]]:
        """Losses of each row as sent and by each candidate."""
        mapped = {LEAVE: self.rows.probabilities, **self.mapped}
        return {name: scope_losses(self.rows, each, self.scope) for name, each in mapped.items()}

    @cached_property
    def window_gain_if_sampled(self) -> Result | None:
        """Held-out NLL of the temperature over the complete window, if the rows are a part of it; else None."""
        return None if self.unavailable is None and self.is_complete else self.window_gain

    @cached_property
    def window_gain(self) -> Result | None:
        """Held-out NLL of the temperature over the complete window; None where its profile does not give that."""
        view = self.view
        if self.unavailable is not None and self.unavailable[0] not in ("few_units", "not_kept"):
            return None
        return left_out_gain(view.pane, view.policy, view.pane_query.ci)

    def recommended(self) -> Result:
        """Return the result of `recommend`."""
        if self.unavailable is not None:
            return (
                self._by_window() if self.window_gain_if_sampled else _no_update(*self.unavailable)
            )
        rows, losses = self.rows, self.losses
        finite = all(np.isfinite(each["nll"]).all() for each in losses.values())
        decisive = "nll" if finite else "brier"
        beaten_by = {name: _beaters(name, losses, decisive, rows, self.view) for name in losses}
        if self.window_gain_if_sampled and decisive == "nll":
            beaten_by[LEAVE] = [name for name in beaten_by[LEAVE] if name != "temperature"]
            if _is_gain(self.window_gain_if_sampled):
                beaten_by[LEAVE].insert(0, "temperature")
                beaten_by.setdefault("temperature", [])
        choice = next(name for name in (LEAVE, *CANDIDATES) if beaten_by.get(name) == [])
        shown = {
            name: _shown(name, each, losses, rows, self.view) | {"beaten_by": beaten_by[name]}
            for name, each in losses.items()
        }
        shown |= {name: {"reason": reason} for name, reason in self.reasons.items()}
        evidence = {
            "rule": RULE,
            "loss": decisive,
            "scope": self.scope,
            "n": len(rows),
            "n_units": rows.n_units,
            "ci": self.view.pane_query.ci,
            "candidates": shown,
            "sample": self.sample,
            "whole_window": self.window_gain_if_sampled,
        }
        return {"recommendation": recommendation(choice, _why(choice), evidence)}

    def _by_window(self) -> Result:
        """Decide between leaving it and a temperature by the complete window, if there are no rows for the others."""
        assert self.unavailable is not None and self.window_gain_if_sampled is not None
        gain, (reason, detail) = self.window_gain_if_sampled, self.unavailable
        better = _is_gain(gain)
        shown = {
            LEAVE: gain["before"] | {"beaten_by": ["temperature"] if better else []},
            "temperature": gain["after"] | {"gain": gain["gain"], "beaten_by": []},
            "intercept": {"reason": reason},
            "slope_intercept": {"reason": reason},
        }
        evidence = {
            "rule": RULE,
            "detail": detail,
            "loss": "nll",
            "scope": self.scope,
            **{name: gain[name] for name in ("n", "n_units", "ci")},
            "candidates": shown,
            "sample": None if reason == "not_kept" else self.sample,
            "whole_window": gain,
        }
        choice = "temperature" if better else LEAVE
        return {"recommendation": recommendation(choice, _why(choice), evidence)}

    def held_out_temperature(
        self, objective: str, *, bins: int = 15, min_count: float = 0.0
    ) -> Result:
        """Return `heldout` and `heldout_reason` of a temperature fitted by an objective ("nll", "brier", "ece").

        By NLL it is the gain of the complete window's temperature, and `halves` has that of temperatures fitted to half of the rows. By other
        objectives the halves are all there is. `fitted_to` names them.
        """
        halves, reason = self._halves(objective, bins, min_count)
        if halves is not None:
            halves = halves | {"fitted_to": "half_of_rows", "sample": self.sample}
        window = self.window_gain if objective == "nll" else None
        if window is None:
            return {"heldout": halves, "heldout_reason": None if halves else reason}
        return {
            "heldout": window | {"fitted_to": "window", "halves": halves},
            "heldout_reason": None,
        }

    def _halves(
        self, objective: str, bins: int, min_count: float
    ) -> tuple[Result | None, str | None]:
        """Return the gain of temperatures fitted to one half of the rows on the other, or the reason why there is none."""
        if self.unavailable is not None:
            return None, self.unavailable[0]
        ci, reason = self.view.pane_query.ci, self.reasons.get("temperature")
        if objective != "nll":
            solve = _Temperature(self.view, objective, bins, min_count)
            return held_out_rows(solve, scaling_maps.at, self.rows, self.scope, ci)
        if reason is not None:
            return None, reason
        sums = self.losses[LEAVE], self.losses["temperature"]
        mapped = self.mapped["temperature"]
        return held_out_result(self.rows, mapped, self.scope, ci, sums), None


class _Temperature:
    """Temperature by an objective other than NLL, of some of a view's rows."""

    def __init__(self, view: View, objective: str, bins: int, min_count: float) -> None:
        self.options: dict[str, Any] = {
            "objective": objective,
            "raters": view.pane_query.raters,
            "bins": bins,
            "min_count": min_count,
        }
        self.batch: Batch = (
            view.pane.sample.batch() if view.batch_sums is None else view.batch_sums.batch
        )

    def __call__(self, rows: LabelledRows) -> FitResult:
        found = fit_temperature_exact(self.batch.take(rows.place), **self.options)
        if found["temperature"] is None:
            return FitResult(None, found["reason"])
        k = rows.n_classes
        slopes = np.full(k, found["inverse_temperature"])
        return FitResult(scaling_maps.named(np.stack([slopes, np.zeros(k)], axis=1)))


def _no_update(reason: str, detail: str) -> Result:
    action = "collect_more" if reason in MORE_LABELS else None
    evidence = {"rule": RULE, "cause": reason}
    return {"recommendation": recommendation(action, f"{detail[0].upper()}{detail[1:]}.", evidence)}


def _why(choice: str) -> str:
    if choice == LEAVE:
        return "No candidate has a lower loss on held-out labels than the probabilities as sent."
    return "The simplest candidate that no richer one beats on held-out labels."


def _is_gain(held_out: Extra) -> bool:
    """Return whether the interval of the gain is above 0."""
    return bool(held_out["gain"]["nll"]["interval"][0] > 0.0)


def _gain(
    first: dict[str, Floats], then: dict[str, Floats], loss: str, rows: LabelledRows, view: View
) -> Result:
    with np.errstate(invalid="ignore"):
        difference = first[loss] - then[loss]
    return mean_by_unit(difference, rows.weight, rows.unit, view.pane_query.ci)


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
) -> Result:
    total = float(rows.weight.sum())
    means = {loss: float(values.sum()) / total for loss, values in mine.items()}
    shown: Row = {k: v if np.isfinite(v) else None for k, v in means.items()}
    if name != LEAVE:
        shown["gain"] = {loss: _gain(losses[LEAVE], mine, loss, rows, view) for loss in mine}
    return shown
