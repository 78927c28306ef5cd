"""The sentences of recommendations: what to do about a model, by action and by the parameters of its update."""

from __future__ import annotations

from math import exp

ACTIONS = {
    "none": "No action is needed.",
    "intercept": "Shift all predictions by the same amount in log-odds. First check whether the mix of cases changed: "
    "outcomes may rightly be more or less frequent than before.",
    "temperature": "Divide the logits of all predictions by one number, the temperature.",
    "slope_intercept": "Fit an intercept and a slope (Platt scaling): neither a shift nor a temperature alone corrects the scores.",
    "flexible": "Fit a flexible calibration map (isotonic, or histogram binning): the error differs between "
    "scores, so no shift or scale corrects it. First check the bins with the largest error: wrong data may be the cause.",
}
PASSED = (
    "No action is needed: the labels after the alarm agree with the predictions. The change did not last, or the alarm was "
    "false."
)


def which_way(parameters: dict[str, float]) -> list[str]:
    """Describe the parameters of an update in words."""
    found = []
    if "temperature" in parameters:
        return [f"It is {parameters['temperature']:.2f}."]
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
