"""Sentences of recommendations."""

from __future__ import annotations

from collections.abc import Mapping

# By whether the model has two classes.
INVERSE = {
    True: "The labels are inversely related to the scores: the higher the score, the rarer is class 1. Check that class 1 is what "
    "the scores are of, and that rows and labels are in the same order. A map is not recommended: it would reverse the scores.",
    False: "The labels are inversely related to the probabilities: the more probable a class, the rarer it is. Check the order of the "
    "classes, and that rows and labels are in the same order. A map is not recommended: it would reverse the probabilities.",
}
NO_INFORMATION = (
    "The scores carry no information about these labels, so no map improves the decisions that are based on them. Check that "
    "rows and labels are in the same order."
)
NOTHING_FITS = "No candidate can be fitted: {}."
ZERO_PROBABILITY = "Some ratings are of a class with probability 0, which no temperature changes: send logits, or smooth the probabilities."
UNCORRECTED = "The probabilities as sent are miscalibrated in a way that no candidate corrects."
_TO_DO = {
    "temperature": "Divide the logits of all predictions by one number, the temperature.",
    "slope_intercept": "Fit an intercept and a slope (Platt scaling).",
    "flexible": "Fit a flexible calibration map (isotonic, or histogram binning).",
}
_NAMES = {"nll": "nats of NLL", "brier": "of the Brier score"}


def chosen_sentence(action: str) -> str:
    """Return what an action is, and why it is the rule's choice.

    >>> chosen_sentence("slope_intercept").partition(". ")[0]
    'Fit an intercept and a slope (Platt scaling)'
    """
    if action == "none":
        return "No candidate is shown to be better on held-out labels, and a gain of practical size is excluded."
    return f"{_TO_DO[action]} This is the simplest correction that no richer one is shown to beat on held-out labels."


def more_labels_sentence(n_units: int, not_excluded: Mapping[str, tuple[str, float]]) -> str:
    """Return why more labels are needed: no gain is shown, and none is excluded.

    >>> more_labels_sentence(25, {"temperature": ("nll", 0.0712)})
    'No candidate is shown to be better on held-out labels, but 25 units do not exclude a useful gain: temperature up to 0.071 nats of NLL.'
    """
    listed = ", ".join(
        f"{name} up to {high:.2g} {_NAMES[loss]}" for name, (loss, high) in not_excluded.items()
    )
    return (
        f"No candidate is shown to be better on held-out labels, but {n_units} units do not exclude a useful gain: "
        f"{listed}."
    )
