"""Verdicts of a temperature fit: whether the data determine a temperature, and why not."""

from __future__ import annotations

from calibrant.calibrators.temperature.interval import MIN_INCORRECT_UNITS, MIN_UNITS, why_none
from calibrant.core.documents import Result

VERDICTS = {
    "ok": "the data determine the temperature",
    "separable": "every rating is of the most probable class, so every lower temperature fits better: there is no "
    "fitted temperature, only the largest that the labels allow (`at_most`)",
    "beyond_grid": "the best temperature is outside [1/32, 32], for which the state stores the losses",
    "unrelated": "the labels look unrelated to the probabilities: no temperature is better than equal probabilities of all classes",
    "inverse": "the labels are inversely related to the probabilities: the more probable a class, the rarer it is. Check the order of "
    "the classes, and that rows and labels are in the same order",
    "at_lower_bound": "the loss still decreases at the smallest temperature: the most probable class is (nearly) always "
    "correct, so lower temperatures would fit better",
    "at_upper_bound": "the loss still decreases at the largest temperature of the search",
    "zero_probability": "some ratings are of a class with probability 0, which no temperature changes: the temperature is fitted to "
    "the others; send logits, or smooth the probabilities",
    "flat": "the loss does not depend on the temperature: every prediction is uniform, or certain",
    "no_bins": "no bin has min_count samples at any temperature",
    "unsettled": "the data do not determine a temperature: every temperature considered may be the best",
    "few_units": f"fewer than {MIN_UNITS} independent units: no interval is given",
    "few_incorrect_units": f"fewer than {MIN_INCORRECT_UNITS} independent units have a rating other than the most probable "
    "class: no interval is given",
    "no_labels": "no labelled prediction has a weight above 0",
    "all_zero_probability": "every rating is of a class with probability 0, which no temperature changes",
}


# Fields of a fit whose temperature is not returned.
NOT_FITTED = dict.fromkeys(
    ("temperature", "inverse_temperature", "standard_error", "interval", "after", "objective_after")
)


def without_temperature(code: str) -> Result:
    """Return verdict and reason of a fit without a temperature."""
    return {"verdict": code, "reason": code, "detail": VERDICTS[code]}


def without_relation(is_inverse: bool, n_units: int) -> Result:
    """Return verdict and reason where no temperature is better than equal probabilities; of few units that shows nothing."""
    code = "unrelated" if n_units >= MIN_UNITS else "unsettled"
    return without_temperature("inverse" if is_inverse else code)


def verdict_of(result: Result) -> Result:
    """Return the verdict of a fit with a temperature."""
    code = "ok"
    low, high = result["range"]
    if result["at_bound"]:
        code = f"at_{result['bound']}_bound"
    elif result["interval"] and result["interval"][0] <= low and result["interval"][1] >= high:
        code = "unsettled"
    elif result["objective"] != "ece" and (reason := why_none(result)) is not None:
        code = reason.removeprefix("too_")
    elif result["n_units"] < MIN_UNITS:
        code = "few_units"
    elif result["n_zero_probability"]:
        code = "zero_probability"
    return {"verdict": code, "reason": None, "detail": VERDICTS[code]}
