"""Recommended change of the probabilities: none, a temperature, a slope and an intercept, a flexible map, or more labels.

The candidates are the maps that the recommendation's request freezes (`core.actions.map_method`). Each is fitted on one half of the
units and evaluated on the other, so that none wins by its number of parameters. The rule: of none, temperature, slope_intercept,
flexible, in this order, the first that no later one beats. One beats another if the complete interval of its gain in held-out NLL is
above 0; in Brier score if one of the two gives a rating probability 0. If that is `none`, but a gain of practical size is not
excluded, more labels are recommended. If the rows are a part of the window, whether a temperature beats no change is evaluated on
the complete window instead, whose profile gives that gain.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from calibrant.calibrators import temperature_scaling
from calibrant.calibrators.candidates import TemperatureOfRows, candidates_of, fitting_of
from calibrant.calibrators.held_out import cross_fitted, held_out_result, held_out_rows
from calibrant.calibrators.information import Information, information_of
from calibrant.calibrators.labelled_rows import MIN_UNITS, rows_of
from calibrant.calibrators.map_method import REASONS
from calibrant.calibrators.recommendation_reasons import (
    INVERSE,
    NO_INFORMATION,
    NOTHING_FITS,
    UNCORRECTED,
    ZERO_PROBABILITY,
    chosen_sentence,
    more_labels_sentence,
)
from calibrant.calibrators.remaining_gap import remaining_gap
from calibrant.calibrators.row_losses import ONE_CLASS, SUMMED, gain_by_unit, means_of, scope_losses
from calibrant.calibrators.shrinkage import MIN_CLASS_UNITS, UNITS_A_PARAMETER, units_of_classes
from calibrant.calibrators.temperature.held_out_gain import left_out_gain
from calibrant.core.actions import recommendation
from calibrant.core.arrays import Floats
from calibrant.core.documents import Extra, Result, Row
from calibrant.core.view import NoResultError, View

LEAVE = "none"
RULE = "the first of none, temperature, slope_intercept, flexible that no later one beats on held-out labels"
MORE_LABELS = ("no_labels", "few_units", "few_rows", "separable", "one_class")
# Smallest gains that a user would act on: of NLL in nats; of Brier summed over classes, and of one class.
PRACTICAL = {"nll": 0.01, "brier": 0.004}
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
    dict with `recommendation`: `action` ("none", "temperature", "slope_intercept", "flexible", "collect_more", or None if
    the window does not determine it), `reason`, and `evidence`: by candidate the held-out NLL and Brier, the gain over the
    probabilities as sent with its interval, and the candidates that beat it; what the labels show of the scores (`information`); and
    whether miscalibration remains after the chosen candidate (`remaining`).

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
    brier = ONE_CLASS if view.spec.task == "binary" else SUMMED
    return CandidateComparison(view, brier=brier).recommended()


class CandidateComparison:
    """Candidates fitted to the halves of a view's rows, once for all results.

    Parameters
    ----------
    view : View; its query gives the label policy and the level of the intervals
    brier : scale of Brier scores: "sum over classes", as the metric, or "one class", as maps of class 1 state it
    """

    def __init__(self, view: View, brier: str = SUMMED) -> None:
        self.view, self.brier = view, brier
        self.is_binary = view.spec.task == "binary"
        self.scope = "positive" if self.is_binary else "full"
        self.candidates = candidates_of(self.is_binary)
        self.unavailable: tuple[str, str] | None = None
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

    @cached_property
    def fits(self) -> dict[str, tuple[Floats | None, str | None]]:
        """Probabilities of every row by each candidate's fit to the other half, or the reason why there is none."""
        return {
            name: (None, "few_rows") if self._is_rejected(name) else self._mapped(name)
            for name in self.candidates
        }

    def _mapped(self, name: str) -> tuple[Floats | None, str | None]:
        fitting = fitting_of(name, self.view, self.is_binary)
        return cross_fitted(self.rows, self.rows.half, *fitting)

    @property
    def mapped(self) -> dict[str, Floats]:
        return {name: found for name, (found, _) in self.fits.items() if found is not None}

    @property
    def reasons(self) -> dict[str, str]:
        return {name: reason for name, (_, reason) in self.fits.items() if reason is not None}

    def _is_rejected(self, name: str) -> bool:
        """Return whether the map of this action would be rejected for want of rows per parameter."""
        if name != "slope_intercept" or self.is_binary:
            return False
        units = units_of_classes(self.rows)
        if not units.all():
            return False  # the classes without labels share the temperature
        enough = self.rows.n_units >= UNITS_A_PARAMETER * 2 * self.rows.n_classes
        return not enough or bool((units < MIN_CLASS_UNITS).any())

    @cached_property
    def losses(self) -> dict[str, dict[str, Floats]]:
        """Losses of each row as sent and by each candidate."""
        mapped = {LEAVE: self.rows.probabilities, **self.mapped}
        return {
            name: scope_losses(self.rows, each, self.scope, self.brier)
            for name, each in mapped.items()
        }

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
        if self.unavailable is None:
            return self._by_rows()
        if self.window_gain_if_sampled:
            return self._by_window(self.window_gain_if_sampled, *self.unavailable)
        return _no_update(*self.unavailable)

    def _by_rows(self) -> Result:
        information = information_of(self.rows, self.is_binary)
        action, sentences, chosen = self._decided(information)
        evidence = self._evidence(information) | {
            "remaining": None
            if chosen is None
            else remaining_gap(self.rows, self._probabilities(chosen), self.is_binary)
        }
        if chosen is not None and (evidence["remaining"] or {}).get("remains"):
            sentences.append("Miscalibration remains after it." if chosen != LEAVE else UNCORRECTED)
        if not np.isfinite(self.losses[LEAVE]["nll"]).all():
            evidence["cause"] = "zero_probability"
            sentences.append(ZERO_PROBABILITY)
        return {"recommendation": recommendation(action, " ".join(sentences), evidence)}

    def _decided(self, information: Information) -> tuple[str | None, list[str], str | None]:
        """Return the action, its reason in sentences, and the candidate that it chooses."""
        if information.direction == "inverse":
            return None, [INVERSE[self.is_binary]], None
        if information.direction == "none":
            return LEAVE, [NO_INFORMATION], None
        if not self.mapped and not self.window_gain_if_sampled:
            reason = self.reasons["temperature"]
            action = "collect_more" if reason in MORE_LABELS else None
            return action, [NOTHING_FITS.format(REASONS.get(reason, reason))], None
        choice = next(name for name in (LEAVE, *self.candidates) if self.beaten_by.get(name) == [])
        if choice != LEAVE:
            return choice, [chosen_sentence(choice)], choice
        if not_excluded := self._not_excluded():
            return "collect_more", [more_labels_sentence(self.rows.n_units, not_excluded)], LEAVE
        return LEAVE, [chosen_sentence(LEAVE)], LEAVE

    @cached_property
    def beaten_by(self) -> dict[str, list[str]]:
        """Later candidates that beat each one."""
        found = {name: self._beaters(name) for name in self.losses}
        gain = self.window_gain_if_sampled
        if gain and np.isfinite(self.losses[LEAVE]["nll"]).all():
            found[LEAVE] = [name for name in found[LEAVE] if name != "temperature"]
            if gain["gain"]["nll"]["interval"][0] > 0.0:
                found[LEAVE].insert(0, "temperature")
                found.setdefault("temperature", [])
        return found

    def _beaters(self, name: str) -> list[str]:
        order = list(self.losses)
        later = order[order.index(name) + 1 :]
        return [other for other in later if self._decisive(name, other)[1]["interval"][0] > 0]

    def _decisive(self, first: str, then: str) -> tuple[str, Result]:
        """Return the loss that decides between two candidates, and the gain of the second in it."""
        ci = self.view.pane_query.ci
        gains = gain_by_unit(self.rows, self.losses[first], self.losses[then], ci)
        finite = all(np.isfinite(self.losses[name]["nll"]).all() for name in (first, then))
        loss = "nll" if finite else "brier"
        return loss, gains[loss]

    def _not_excluded(self) -> dict[str, tuple[str, float]]:
        """Return candidates whose gain could be of practical size: the loss and the upper end of its gain.

        Of a window whose rows are a part of it, this is known of the temperature alone: more labels would not enlarge the sample.
        """
        if gain := self.window_gain_if_sampled:
            uppers = {"temperature": ("nll", gain["gain"]["nll"]["interval"][1])}
        else:
            gains = {name: self._decisive(LEAVE, name) for name in self.mapped}
            uppers = {name: (loss, each["interval"][1]) for name, (loss, each) in gains.items()}
        half = 0.5 if self.brier == ONE_CLASS else 1.0
        least = {"nll": PRACTICAL["nll"], "brier": PRACTICAL["brier"] * half}
        return {name: each for name, each in uppers.items() if each[1] >= least[each[0]]}

    def _probabilities(self, name: str) -> Floats:
        """Return the probabilities of a candidate; those as sent if the rows do not determine it."""
        return self.mapped.get(name, self.rows.probabilities)

    def _evidence(self, information: Information) -> Result:
        shown = {name: self._shown(name) for name in self.losses}
        shown |= {name: {"reason": reason} for name, reason in self.reasons.items()}
        finite = all(np.isfinite(each["nll"]).all() for each in self.losses.values())
        return {
            "rule": RULE,
            "loss": "nll" if finite else "brier",
            "brier_scale": self.brier,
            "scope": self.scope,
            "n": len(self.rows),
            "n_units": self.rows.n_units,
            "ci": self.view.pane_query.ci,
            "candidates": shown,
            "information": information.to_dict(),
            "sample": self.sample,
            "whole_window": self.window_gain_if_sampled,
        }

    def _shown(self, name: str) -> Result:
        mine, rows = self.losses[name], self.rows
        shown: Row = {**means_of(mine, float(rows.weight.sum()))}
        if name != LEAVE:
            shown["gain"] = gain_by_unit(rows, self.losses[LEAVE], mine, self.view.pane_query.ci)
        return shown | {"beaten_by": self.beaten_by[name]}

    def _by_window(self, gain: Result, reason: str, detail: str) -> Result:
        """Decide between leaving it and a temperature by the complete window, if there are no rows for the others."""
        low, high = gain["gain"]["nll"]["interval"]
        shown = {
            LEAVE: gain["before"] | {"beaten_by": ["temperature"] if low > 0.0 else []},
            "temperature": gain["after"] | {"gain": gain["gain"], "beaten_by": []},
        }
        shown |= {name: {"reason": reason} for name in self.candidates if name not in shown}
        evidence = {
            "rule": RULE,
            "detail": detail,
            "loss": "nll",
            "brier_scale": self.brier,
            "scope": self.scope,
            **{name: gain[name] for name in ("n", "n_units", "ci")},
            "candidates": shown,
            "sample": None if reason == "not_kept" else self.sample,
            "whole_window": gain,
        }
        action, sentence = "temperature", chosen_sentence("temperature")
        if low <= 0.0:
            action, sentence = LEAVE, chosen_sentence(LEAVE)
            if high >= PRACTICAL["nll"]:
                sentence = more_labels_sentence(gain["n_units"], {"temperature": ("nll", high)})
                action = "collect_more"
        return {"recommendation": recommendation(action, sentence, evidence)}

    def held_out_temperature(
        self, objective: str, *, bins: int = 15, min_count: float = 0.0
    ) -> Result:
        """Return `heldout` and `heldout_reason` of a temperature fitted by an objective ("nll", "brier", "ece").

        By NLL it is the gain of the complete window's temperature, and `halves` has that of temperatures fitted to half of the rows. By other
        objectives the halves are all there is. `fitted_to` names them, and `brier_scale` the scale of that score.
        """
        halves, reason = self._halves(objective, bins, min_count)
        if halves is not None:
            about = {"fitted_to": "half_of_rows", "sample": self.sample, "brier_scale": self.brier}
            halves = halves | about
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
        ci = self.view.pane_query.ci
        if objective != "nll":
            solve = TemperatureOfRows(self.view, objective, bins, min_count)
            at = temperature_scaling.at_rows
            return held_out_rows(solve, at, self.rows, self.scope, ci, self.brier)
        mapped, reason = self.fits["temperature"]
        if mapped is None:
            return None, reason
        return held_out_result(
            self.rows, self.rows.probabilities, mapped, self.scope, ci, self.brier
        ), None


def _no_update(reason: str, detail: str) -> Result:
    action = "collect_more" if reason in MORE_LABELS else None
    evidence: Extra = {"rule": RULE, "cause": reason}
    return {"recommendation": recommendation(action, f"{detail[0].upper()}{detail[1:]}.", evidence)}
