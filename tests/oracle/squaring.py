"""Powers exp(beta z) on the grid of inverse temperatures, from two exponentials and repeated squaring."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.temperature import BETAS, STEPS_PER_OCTAVE

Floats = NDArray[np.float64]


def powers(logit: Floats, steps: int) -> Floats:
    """Return exp(beta z) for the first betas of the grid, continued, by repeated squaring; (steps, n)."""
    result = np.empty((steps, len(logit)))
    for step in range(steps):
        if step < STEPS_PER_OCTAVE:
            np.exp(BETAS[step] * logit, out=result[step])
        else:
            earlier = result[step - STEPS_PER_OCTAVE]
            np.multiply(earlier, earlier, out=result[step])
    return result


def even_steps(steps: int) -> int:
    """Return the number of steps to compute where the steps of an octave are processed together."""
    return -(-steps // STEPS_PER_OCTAVE) * STEPS_PER_OCTAVE


def squarings(logit: Floats, steps: int) -> Iterator[tuple[slice, Floats]]:
    """Yield the steps of an octave, with exp(beta z) there, (steps of an octave, classes, n). The next overwrites the array."""
    power = np.exp(BETAS[:STEPS_PER_OCTAVE, None, None] * logit)
    for start in range(0, steps, STEPS_PER_OCTAVE):
        yield slice(start, start + STEPS_PER_OCTAVE), power
        np.multiply(power, power, out=power)
