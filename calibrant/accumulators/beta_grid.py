"""Grid of inverse temperatures at which losses are stored."""

from __future__ import annotations

import numpy as np

STEPS_PER_OCTAVE = 2
OCTAVES = 5
BETAS = 2.0 ** (
    np.arange(-OCTAVES * STEPS_PER_OCTAVE, OCTAVES * STEPS_PER_OCTAVE + 1) / STEPS_PER_OCTAVE
)
N_BETAS = len(BETAS)
