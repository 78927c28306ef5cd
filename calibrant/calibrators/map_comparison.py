"""Comparison of two maps on the same labels, with the uncertainty of the gain.

Both maps are applied to the stored sample of predictions, to which neither was fitted. The gain is the first's mean loss
minus the second's; its interval is from the variation across units. A map beats another if the complete interval of the gain
in NLL is above 0, or that of Brier if a rating has probability 0 under one of them. Two temperatures, or one and the
probabilities as sent, are compared on every labelled prediction if the sample is a part of them: the profile has both.
"""

from __future__ import annotations

import numpy as np

from calibrant.calibrators.base import Floats
from calibrant.calibrators.fitting import apply
from calibrant.calibrators.rows import (
    MIN_UNITS,
    LabelledRows,
    about_sample,
    event_losses,
    gain_by_unit,
    labelled_rows,
    row_losses,
)
from calibrant.calibrators.temperature.held_out_gain import gain_between
from calibrant.core.documents import FittedMap, Result
from calibrant.core.pane import Pane
from calibrant.core.query import policy_index

REASONS = {
    "no_labels": "no later labels have arrived",
    "few_units": f"fewer than {MIN_UNITS} independent units have later labels",
    "not_comparable": "the maps are of different probabilities",
    "not_kept": "panes with this number of classes store no sample",
    "not_better": "the interval of the gain is not above 0",
}


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
    result: Result = {
        "beats": False, "reason": None, "detail": None, "scope": None, "n": 0, "n_units": 0, "ci": ci, "raters": raters,
        "current": None, "candidate": None, "gain": None, "sample": about_sample(pane), "evidence_of": "map",
    }  # fmt: skip
    scope = common_scope(current, candidate)
    of_window = _of_temperatures(current, candidate, pane, policy_index(raters), ci)
    if result["sample"] is None:
        if of_window is None or scope is None:
            return _because(result, "not_kept")
        return judged(result | {"scope": scope[0], "sampled": None} | of_window)
    if scope is None:
        return _because(result, "not_comparable")
    batch = pane.sample.batch()
    rows = labelled_rows(batch, policy_index(raters))
    result |= {"scope": scope[0], "n": len(rows), "n_units": rows.n_units}
    if not len(rows) or not rows.weight.sum() > 0:
        return _because(result, "no_labels")
    first = losses_under(rows, scope, None if current is None else apply(current, batch))
    then = losses_under(rows, scope, apply(candidate, batch))
    result |= {"current": means_of(rows, first), "candidate": means_of(rows, then)}
    result["gain"] = gain_by_unit(rows, first, then, ci)
    if of_window is not None and not result["sample"]["complete"]:
        sampled = {name: result[name] for name in ("n", "n_units", "current", "candidate", "gain")}
        return judged(result | {"sampled": sampled} | of_window)
    if result["n_units"] < MIN_UNITS:
        return _because(result, "few_units")
    return judged(result)


def judged(result: Result) -> Result:
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


def _because(result: Result, reason: str) -> Result:
    return result | {"reason": reason, "detail": REASONS[reason]}


def common_scope(current: FittedMap | None, candidate: FittedMap) -> tuple[str, int | None] | None:
    """Return scope and class that both maps apply to; a map of complete rows applies to every class."""
    given = [
        (each["scope"], each.get("class")) for each in (current, candidate) if each is not None
    ]
    narrow = [each for each in given if each[0] != "full"]
    if not narrow:
        return "full", None
    return narrow[0] if all(each == narrow[0] for each in narrow) else None


def losses_under(
    rows: LabelledRows, scope: tuple[str, int | None], mapped: Floats | None
) -> dict[str, Floats]:
    """Return losses of each row under a map's probabilities; under the rows' own if there is no map."""
    if mapped is None:
        mapped = rows.probabilities
    if scope[0] == "full":
        return row_losses(rows, mapped)
    place = np.arange(len(rows))
    class_index = (
        rows.top_class
        if scope[0] == "top_label"
        else np.full(len(rows), 1 if scope[0] == "positive" else scope[1])
    )
    probability = mapped if mapped.ndim == 1 else mapped[place, class_index]
    return event_losses(rows.share[place, class_index], rows.weight, np.clip(probability, 0.0, 1.0))


def means_of(rows: LabelledRows, losses: dict[str, Floats]) -> dict[str, float | None]:
    total = float(rows.weight.sum())
    means = {name: float(values.sum()) / total for name, values in losses.items()}
    return {name: value if np.isfinite(value) else None for name, value in means.items()}
