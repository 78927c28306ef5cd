"""The top label's cells hold the accuracy that the scores say."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators import cells
from calibrant.laws.basis import Laws, near, score_sums
from calibrant.laws.cells import laws_of_table
from calibrant.pane import Pane
from calibrant.policies import N_POLICIES, POLICIES


def laws(pane: Pane) -> Laws:
    yield from laws_of_table(pane, "top_label", pane["top_label"].blocks["cells"], 1)
    table = dict(
        zip(cells.SUMS, pane["top_label"].blocks["cells"].filled()[2].sum(axis=1), strict=True)
    )
    sums = score_sums(pane)[1]
    correct = np.array([table[f"correct_{policy}"] for policy in POLICIES])
    yield "top_label: correct differs from scores", near(correct, sums["correct"], sums["weight"])
    confidence = np.array([table["confidence_pooled"], *[table["confidence"]] * (N_POLICIES - 1)])
    yield (
        "top_label: confidence differs from scores",
        near(confidence, sums["accuracy_null"], sums["weight"]),
    )
    variance = np.array([table["null_variance_pooled"], *[table["null_variance"]] * (N_POLICIES - 1)])
    own = sums["accuracy_null_variance"]
    yield "top_label: null_variance differs from scores", near(variance, own, own + sums["weight"])
