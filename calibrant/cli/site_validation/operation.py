"""Checks of operation: known answers of a fixed data set, properties of panes, and the reduced guarantees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import CalibrationInputError, Pane, evaluate, fit_temperature
from calibrant.cli.site_validation.results import Result, judged, number
from calibrant.validation import PROMISES, outcome

Floats = NDArray[np.float64]
TOLERANCE = 1e-9
# Computed with plain loops of Python, which a test repeats.
KNOWN = {"ece": 0.1382965917625, "brier": 0.6137459280696, "nll": 1.2965221305389, "accuracy": 0.6}
KNOWN_TEMPERATURE, TEMPERATURE_TOLERANCE = 3.669923, 1e-6


def known_rows(n: int = 500) -> tuple[Floats, NDArray[np.int64]]:
    """Return probabilities of three classes and labels, made by integer arithmetic: the same on every machine."""
    i = np.arange(n)
    raised = np.stack([((i * 37 + k * 31) % 97 + 1) ** 2 for k in range(3)], axis=1)
    probabilities = raised / raised.sum(axis=1, keepdims=True)
    others = (raised.argmax(axis=1) + 1 + i % 2) % 3
    labels = np.where(i * 29 % 100 < 60, raised.argmax(axis=1), others)
    return probabilities, labels


def operation_results(step: Callable[[str], None]) -> Iterator[Result]:
    """Check results; `step` is called with the name of each simulation before it."""
    yield from _known_answers()
    yield from _properties()
    for promise in PROMISES:
        step(promise.name)
        found = outcome(promise)
        sign = "at least" if promise.at_least else "at most"
        yield judged(
            "operation", f"{promise.name} ({promise.setting}; {promise.runs} runs)",
            f"{sign} {number(promise.limit)}", number(found.measured, 4), found.holds,
        )  # fmt: skip


def n_steps() -> int:
    """Return how often `operation_results` calls `step`."""
    return len(PROMISES)


def close(expected: float | None, found: float | None, tolerance: float = TOLERANCE) -> bool:
    """Return whether a number is the expected one; no value never is."""
    if expected is None or found is None:
        return False
    return abs(found - expected) <= tolerance * max(1.0, abs(expected))


def _known_answers() -> Iterator[Result]:
    probabilities, labels = known_rows()
    pane = Pane.fill(probabilities, labels)
    for what, found in (
        ("rows", evaluate(probabilities, labels, list(KNOWN))),
        ("pane", pane.evaluate(list(KNOWN))),
    ):
        for slug, expected in KNOWN.items():
            value = found[slug].value
            yield judged(
                "operation", f"known answer: {slug} of 500 predictions, from their {what}",
                f"{number(expected)} within {TOLERANCE:g}", number(value), close(expected, value),
            )  # fmt: skip
    fitted = fit_temperature(probabilities, labels).to_dict()["temperature"]
    yield judged(
        "operation", "known answer: temperature",
        f"{number(KNOWN_TEMPERATURE)} within {TEMPERATURE_TOLERANCE:g}", number(fitted),
        close(KNOWN_TEMPERATURE, fitted, TEMPERATURE_TOLERANCE),
    )  # fmt: skip


def _properties() -> Iterator[Result]:
    probabilities, labels = known_rows()
    complete = Pane.fill(probabilities, labels)
    halves = [
        Pane.fill(probabilities[some], labels[some]) for some in (slice(0, 200), slice(200, None))
    ]
    together, rest = halves[0] + halves[1], complete - halves[0]
    for check, pane, other in (
        ("the sum of two panes is the pane of all predictions", together, complete),
        ("a pane minus a part is the pane of the rest", rest, halves[1]),
        (
            "a pane that was written and read is the same",
            Pane.from_bytes(complete.to_bytes()),
            complete,
        ),
    ):
        mine, theirs = (each.evaluate(list(KNOWN)) for each in (pane, other))
        differences = [abs(float(mine[slug]) - float(theirs[slug])) for slug in KNOWN]
        yield judged(
            "operation", check, f"equal values within {TOLERANCE:g}",
            f"largest difference {max(differences):.1e}", max(differences) <= TOLERANCE,
        )  # fmt: skip
    yield _rejects("probabilities that do not sum to 1 are rejected", [[0.7, 0.7]], "row_sum")
    yield _rejects(
        "a probability that is not a number is rejected", [[float("nan"), 1.0]], "finite"
    )
    nothing: Any = evaluate(np.full((2, 2), 0.5), [None, None], ["ece"])["ece"]
    yield judged(
        "operation", "without labels there is no value, and not zero", "no value, with a reason",
        f"{number(nothing.value)}, {nothing.reason}", nothing.value is None and bool(nothing.reason),
    )  # fmt: skip


def _rejects(check: str, probabilities: Any, rule: str) -> Result:
    try:
        evaluate(np.array(probabilities), [0], ["ece"])
        found = "accepted"
    except CalibrationInputError as error:
        found = error.violations[0].rule
    return judged("operation", check, f"error {rule}", found, found == rule)
