"""Comparison of two maps, or of a procedure that fits maps, on the same labels, with the uncertainty of the gain.

Losses are of the stored sample of predictions. The gain is the first's mean loss minus the second's; its interval is from the variation
across units. A map beats another if the complete interval of the gain in NLL is above 0, or that of Brier if a rating has
probability 0 under one of them.

`compare` applies both maps to labels to which neither was fitted. Two temperatures, or one and the probabilities as sent, are compared on
every labelled prediction if the sample is a part of them: the profile has both. `procedure_gain` is for windows without later labels: the
method is fitted to four fifths of the units, with everything that it chooses, and applied to the rest; this describes maps of
the procedure, not the one map. `gain_over_other_map` fits the own method to halves of the units and applies the other map, of a baseline
window or model, unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.calibrators.applying import apply
from calibrant.calibrators.fitting import fit
from calibrant.calibrators.held_out import FOLDS
from calibrant.calibrators.labelled_rows import MIN_UNITS, LabelledRows, about_sample, labelled_rows
from calibrant.calibrators.map_method import REASONS as FIT_REASONS
from calibrant.calibrators.map_method import Options
from calibrant.calibrators.row_losses import RowLosses, gain_by_unit, means_of, scope_losses
from calibrant.calibrators.temperature.held_out_gain import gain_between
from calibrant.core.arrays import Ints
from calibrant.core.batch import Batch
from calibrant.core.documents import FittedMap, Result, Row
from calibrant.core.pane import Pane
from calibrant.core.query import policy_index
from calibrant.core.routing import split_batch
from calibrant.core.view import NoResultError, View

REASONS = {
    "no_labels": "no later labels have arrived",
    "few_units": f"fewer than {MIN_UNITS} independent units have later labels",
    "not_comparable": "the maps are of different probabilities",
    "not_kept": "panes with this number of classes store no sample",
    "not_better": "the interval of the gain is not above 0",
}
MAP, PROCEDURE = "map", "procedure"
# Rows of a large sample that a procedure uses, those of the smallest hashes: each is filled into panes four times.
MAX_ROWS = 20_000
Scope = tuple[str, int | None]


def compare(
    current: FittedMap | None,
    candidate: FittedMap,
    pane: Pane,
    raters: str = "pooled",
    ci: float = 0.95,
) -> Result:
    """Return the gain of a candidate over the current map on a pane's stored sample.

    Parameters
    ----------
    current : a fitted map as `apply` takes it; None compares with the probabilities as sent
    candidate : a fitted map
    pane : Pane of predictions that neither map was fitted to
    raters : label policy
    ci : nominal coverage of the intervals

    Returns
    -------
    dict with `beats`, `reason` (a code of `REASONS` if it does not, else None), `scope` of the comparison, `n`,
    `n_units`, `current`, `candidate` and `gain` (NLL and Brier, the gains with intervals) and `sample`. If the complete
    window decides, these are of it, with NLL alone, and `sampled` has the stored sample's.

    Examples
    --------
    >>> from calibrant import Batch, PaneSpec
    >>> pane = Pane(PaneSpec("binary", 2))
    >>> pane.fill_batch(Batch.from_columns({"confidences": [0.9] * 40, "labels": [1, 0] * 20}).batch)
    >>> halves = {"method": "temperature", "scope": "positive", "class": None, "parameters": {"temperature": 32.0}}
    >>> compare(None, halves, pane)["beats"]
    False
    """
    result, sampled = _nothing(pane, raters, ci, MAP), _Sampled.of(pane, policy_index(raters))
    scope = common_scope(current, candidate)
    of_window = _of_temperatures(current, candidate, pane, policy_index(raters), ci)
    if sampled is None:
        if of_window is None or scope is None:
            return _because(result, "not_kept")
        return _judged(result | {"scope": scope[0], "sampled": None} | of_window)
    if scope is None:
        return _because(result, "not_comparable")
    result |= {"scope": scope[0], **sampled.counts}
    if not sampled.has_weight:
        return _because(result, "no_labels")
    first, then = (sampled.losses(scope, each) for each in (current, candidate))
    found = sampled.compared(first, then, ci)
    if of_window is not None and not result["sample"]["complete"]:
        return _judged(result | {"sampled": sampled.counts | found} | of_window)
    if result["n_units"] < MIN_UNITS:
        return _because(result | found, "few_units")
    return _judged(result | found)


def procedure_gain(current: FittedMap | None, method: str, options: Options, view: View) -> Result:
    """Return the gain of a method's maps over the current map, held out by unit.

    Parameters
    ----------
    current : a fitted map as `apply` takes it; None compares with the probabilities as sent
    method, options : as in `fit`
    view : View of the window that the map was fitted to; its query gives scope, label policy and level

    Returns
    -------
    dict as that of `compare`, with `evidence_of: procedure` and `folds`

    Examples
    --------
    >>> from calibrant import Batch, PaneSpec
    >>> from calibrant.core.query import PaneQuery
    >>> pane = Pane(PaneSpec("binary", 2))
    >>> columns = {"confidences": [0.99, 0.01] * 200, "labels": [1, 0, 1, 0, 1, 0, 0, 1] * 50}
    >>> pane.fill_batch(Batch.from_columns(columns | {"ids": [f"i{i}" for i in range(400)]}).batch)
    >>> procedure_gain(None, "temperature", Options(), View(pane, PaneQuery()))["beats"]
    True
    """
    raters, ci = view.pane_query.raters, view.pane_query.ci
    result = _nothing(view.pane, raters, ci, PROCEDURE) | {"folds": FOLDS}
    sampled = _Sampled.of(view.pane, view.policy, MAX_ROWS)
    if sampled is None:
        return _because(result, "not_kept")
    result |= sampled.counts
    if not sampled.has_weight:
        return _because(result, "no_labels")
    if sampled.rows.n_units < MIN_UNITS:
        return _because(result, "few_units")
    try:
        fold = sampled.rows.unit % FOLDS
        scope, candidate = sampled.losses_across(fold, current, method, options, view)
    except NoResultError as error:
        return _because(result, error.reason)
    found = sampled.compared(sampled.losses(scope, current), candidate, ci)
    return _judged(result | {"scope": scope[0]} | found)


def gain_over_other_map(other: FittedMap, view: View, method: str, options: Options) -> Result:
    """Return the other map's mean losses minus those of the own method's map, held out, each with its interval.

    Parameters
    ----------
    other : a fitted map as `apply` takes it
    view : of the window; its query gives scope, label policy and level
    method, options : of the own map

    Returns
    -------
    dict with `difference` (`nll` and `brier`: value and interval, positive if the own map is better; None with a
    `difference_reason`), `held_out` and `against_held_out` (mean losses of both), `n` and `n_units`
    """
    reported: Row = {
        "difference": None, "difference_reason": None, "held_out": None, "against_held_out": None, "n": 0, "n_units": 0,
    }  # fmt: skip
    sampled = _Sampled.of(view.pane, view.policy)
    if sampled is None:
        return reported | {"difference_reason": "not_kept"}
    if other.get("parameters") is None:
        return reported | {"difference_reason": "no_map"}
    reported |= sampled.counts
    if sampled.rows.n_units < MIN_UNITS:
        return reported | {"difference_reason": "few_units"}
    try:
        scope, own = sampled.losses_across(sampled.rows.half, other, method, options, view)
    except NoResultError as error:
        return reported | {"difference_reason": error.reason}
    found = sampled.compared(sampled.losses(scope, other), own, view.pane_query.ci)
    names = {"candidate": "held_out", "current": "against_held_out", "gain": "difference"}
    return reported | {names[name]: each for name, each in found.items()}


@dataclass(frozen=True)
class _Sampled:
    """Rows of a stored sample, as batch and as labelled rows."""

    batch: Batch
    rows: LabelledRows

    @classmethod
    def of(cls, pane: Pane, policy: int, most: int | None = None) -> _Sampled | None:
        if not pane.keeps("sample"):
            return None
        batch = pane.sample.batch()
        batch = batch if most is None else batch.take(np.arange(min(batch.n, most)))
        return cls(batch, labelled_rows(batch, policy))

    @property
    def counts(self) -> dict[str, int]:
        return {"n": len(self.rows), "n_units": self.rows.n_units}

    @property
    def has_weight(self) -> bool:
        return bool(self.rows.weight.sum() > 0)

    def losses(self, scope: Scope, fitted: FittedMap | None) -> RowLosses:
        """Return losses of each row under a map; under the probabilities as sent without one."""
        mapped = self.rows.probabilities if fitted is None else apply(fitted, self.batch)
        return scope_losses(self.rows, mapped, scope[0], class_index=scope[1])

    def losses_across(
        self, fold: Ints, other: FittedMap | None, method: str, options: Options, view: View
    ) -> tuple[Scope, RowLosses]:
        """Return losses of each row by the method's fit to the other folds, and the scope shared with the other map.

        Raises
        ------
        NoResultError
            A fold has no fit, or its scope is another.
        """
        found: RowLosses = {name: np.zeros(len(self.rows)) for name in ("nll", "brier")}
        scope: Scope | None = None
        for number in np.unique(fold):
            mine = fold == number
            fitted = _fitted(method, options, view, self.batch.take(~mine))
            if fitted["parameters"] is None:
                raise NoResultError(fitted["reason"], fitted["detail"] or "")
            scope = common_scope(other, fitted)
            if scope is None:
                raise NoResultError("not_comparable", REASONS["not_comparable"])
            part = _Sampled(self.batch.take(mine), self.rows.take(np.flatnonzero(mine)))
            for name, values in part.losses(scope, fitted).items():
                found[name][mine] = values
        assert scope is not None
        return scope, found

    def compared(self, first: RowLosses, then: RowLosses, ci: float) -> Result:
        """Return the means of both, and the gain of the second over the first."""
        gain = gain_by_unit(self.rows, first, then, ci)
        total = float(self.rows.weight.sum())
        means = {"current": means_of(first, total), "candidate": means_of(then, total)}
        return means | {"gain": gain}


def common_scope(current: FittedMap | None, candidate: FittedMap) -> Scope | None:
    """Return scope and class that both maps apply to; a map of complete rows applies to every class."""
    given = [
        (each["scope"], each.get("class")) for each in (current, candidate) if each is not None
    ]
    narrow = [each for each in given if each[0] != "full"]
    if not narrow:
        return "full", None
    return narrow[0] if all(each == narrow[0] for each in narrow) else None


def _nothing(pane: Pane, raters: str, ci: float, evidence: str) -> Result:
    return {
        "beats": False, "reason": None, "detail": None, "scope": None, "n": 0, "n_units": 0, "ci": ci, "raters": raters,
        "current": None, "candidate": None, "gain": None, "sample": about_sample(pane), "evidence_of": evidence,
    }  # fmt: skip


def _because(result: Result, reason: str) -> Result:
    detail = REASONS.get(reason) or FIT_REASONS.get(reason)
    return result | {"reason": reason, "detail": detail}


def _judged(result: Result) -> Result:
    """Return a comparison with its result: the lower end of the interval of the gain is above 0, or not."""
    gain = result["gain"]
    decisive = gain["nll"] if gain["nll"]["interval"] else gain["brier"]
    if decisive["interval"] is None or not decisive["interval"][0] > 0.0:
        return _because(result, "not_better")
    return result | {"beats": True}


def _of_temperatures(
    current: FittedMap | None, candidate: FittedMap, pane: Pane, policy: int, ci: float
) -> Result | None:
    """Return the gain over all of a pane if both are temperatures; None if they are not, or the profile is insufficient."""
    given = [each for each in (current, candidate) if each is not None]
    if any(each["method"] != "temperature" for each in given):
        return None
    first = 1.0 if current is None else 1.0 / current["parameters"]["temperature"]
    then = 1.0 / candidate["parameters"]["temperature"]
    return gain_between(pane, policy, (first, then), ci)


def _fitted(method: str, options: Options, view: View, batch: Batch) -> Result:
    pane = Pane.for_window(view.spec)
    for part in split_batch(batch):
        pane.fill_batch(part)
    return fit(method, View(pane, view.pane_query), options, evaluate=False)
