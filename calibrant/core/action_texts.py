"""The sentences of recommendations: what to do about a model, by action and by the parameters of its update."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import exp
from typing import Any

ACTIONS = {
    "none": "No action is needed.",
    "intercept": "Shift all predictions by the same amount in log-odds. First check whether the mix of cases changed: "
    "outcomes may rightly be more or less frequent than before.",
    "temperature": "Divide the logits of all predictions by one number, the temperature.",
    "slope_intercept": "Fit an intercept and a slope (Platt scaling): neither a shift nor a temperature alone corrects the scores.",
    "flexible": "Fit a flexible calibration map (isotonic, or histogram binning): the error differs between "
    "scores, so no {simpler} corrects it. First check the bins with the largest error: wrong data may be the cause.",
}
CORRECTIONS = ("intercept", "temperature", "slope_intercept", "flexible")
CERTAIN = (
    "{} of the scores are exactly 0 or 1, which no shift or temperature changes. Send the probabilities before they are rounded or "
    "decided. If there are none, fit a flexible calibration map (isotonic): it gives such scores the rates that the labels show."
)
# A map is fitted to scores as sent.
REPLACES = "It is of the scores as sent: use it instead of map version {}, not on top of it."
MAX_NAMED = 3
PASSED = (
    "No action is needed: the labels after the alarm agree with the predictions. The change did not last, or the alarm was "
    "false."
)


def correction_text(
    action: str, parameters: Mapping[str, float], tried: Collection[str] = (), days: str = ""
) -> str:
    """Return what a correction is, with its parameters.

    parameters : estimates by name
    tried : the simpler corrections that do not suffice; all if empty
    days : of the labels that they are of, as `period_text` names them

    >>> correction_text("temperature", {"temperature": 2.1666}, days=" of 19 Nov 2026")
    'Divide the logits of all predictions by one number, the temperature. The temperature of the labels of 19 Nov 2026 is 2.17.'
    >>> correction_text("flexible", {}, ["temperature"])[:119]
    'Fit a flexible calibration map (isotonic, or histogram binning): the error differs between scores, so no temperature co'
    """
    if "certain_share" in parameters:
        return CERTAIN.format(f"{100.0 * parameters['certain_share']:.0f} %")
    text = ACTIONS[action].format(simpler="temperature" if [*tried] == ["temperature"] else "shift or scale")  # fmt: skip
    if "temperature" in parameters:
        of_labels = f" of the labels{days}" if days else ""
        return f"{text} The temperature{of_labels} is {parameters['temperature']:.2f}."
    skipped = "slope" if action == "intercept" else ""  # the map that shifts has one, too
    shown = {name: each for name, each in parameters.items() if name != skipped}
    return " ".join([text, *_which_way(shown)])


def _which_way(parameters: Mapping[str, float]) -> list[str]:
    """Describe the parameters of an update in words."""
    found = []
    slope, intercept = parameters.get("slope", 1.0), parameters.get("intercept", 0.0)
    if slope <= 0:
        found.append(
            "Outcomes are not more frequent at high scores than at low ones: check the data first."
        )
    elif slope != 1:
        way = "too extreme" if slope < 1 else "too cautious"
        found.append(f"The scores are {way}: divide their log-odds by {1 / slope:.2f}.")
    if intercept != 0:
        often = "more" if intercept > 0 else "less"
        then = " then" if found else ""
        factor = exp(min(intercept, 700.0))
        found.append(
            f"Outcomes are {often} frequent than predicted:{then} multiply the odds by {factor:.2f}."
        )
    return found


def of_slice(action: str | None, reason: str, slice_: str | None) -> str:
    """Return the reason of a correction that was found in the labels of one slice; unchanged for all predictions and other actions.

    >>> of_slice("temperature", "Divide the logits of all predictions by one number.", "site:B")
    'Divide the logits of the predictions of site:B by one number. This is of site:B only: do not apply it to other predictions.'
    """
    if not slice_ or action not in CORRECTIONS:
        return reason
    own = reason.replace("all predictions", f"the predictions of {slice_}")
    return f"{own} This is of {slice_} only: do not apply it to other predictions."


def of_some_slices(
    affected: Sequence[str], rest: Sequence[str], good: Sequence[str], is_change: bool
) -> str:
    """Return what to do if a change or an error is in some slices of a key, and others of this key do not have it.

    rest, good : slices without it, and those of them whose calibration is good; of the others this is not known

    >>> of_some_slices(["scanner:SIE"], ["scanner:GE"], ["scanner:GE"], True)
    'The change is in scanner:SIE; scanner:GE is good. Check scanner:SIE first. A map for all predictions would change scanner:GE, too.'
    """
    bad, without = _named(affected), _named(rest)
    unaffected = f"{without} {'does' if len(rest) == 1 else 'do'} not have it"
    if good:
        unaffected = f"{_named(good)} {'is' if len(good) == 1 else 'are'} good"
    return (
        f"The {'change' if is_change else 'error'} is in {bad}; {unaffected}. Check {bad} first. "
        f"A map for all predictions would change {without}, too."
    )


def _named(names: Sequence[str]) -> str:
    """Name at most three slices, and the number of the others."""
    shown, more = [*names[:MAX_NAMED]], len(names) - MAX_NAMED
    listed = [*shown, f"{more} more"] if more > 0 else shown
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"


def helps(fitted: Mapping[str, Any] | None) -> bool | None:
    """Return whether a fitted temperature reduces the calibration error without a larger Brier score; None if it is not known.

    A correction that the same data show not to help is never recommended.

    >>> helps({"temperature": 1.1, "before": {"ece": 0.014, "brier": 0.2}, "after": {"ece": 0.015, "brier": 0.21}})
    False
    """
    before, after = ((fitted or {}).get(name) or {} for name in ("before", "after"))
    losses: list[Any] = [each.get(name) for name in ("ece", "brier") for each in (before, after)]
    if any(each is None for each in losses):
        return None
    return bool(losses[1] < losses[0] and losses[3] <= losses[2])


def temperature_text(fitted: Mapping[str, Any] | None) -> str:
    """Return whether a temperature reduces an error, with the errors before and after it; empty if it is not known.

    >>> temperature_text({"before": {"ece": 0.014, "brier": 0.2}, "after": {"ece": 0.015, "brier": 0.21}})
    'A temperature does not correct it: the calibration error is 0.014 before it and 0.015 after it.'
    """
    does = helps(fitted)
    if does is None or fitted is None:
        return ""
    first, then = (f"{fitted[name]['ece']:.3f}" for name in ("before", "after"))
    errors = f"the calibration error is {first} before it and {then} after it."
    if not does:
        return f"A temperature does not correct it: {errors}"
    return f"A temperature reduces it: {errors} If you use one, evaluate it with other data."
