"""The positive class is the second of two."""

from __future__ import annotations

from calibrant.accumulators import cells
from calibrant.laws.basis import Laws, near, score_sums
from calibrant.laws.cells import laws_of_table
from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    yield from laws_of_table(pane, "positive", pane["positive"].blocks["cells"], 1)
    weight = score_sums(pane)[1]["weight"]
    if pane.keeps("classes") and pane.spec.keeps_all_classes:
        width = pane.spec.class_grid.n_positions
        places, _, sums = pane["classes"].blocks["cells"].filled()
        one = sums[:, places >= width].sum(axis=1)
        other = pane["positive"].blocks["cells"].filled()[2].sum(axis=1)
        firsts = slice(0, cells.SUMS.index("correct_mean_squared"))
        yield (
            "positive: sums differ from those of class 1",
            near(one[firsts], other[firsts], weight[0] + weight[1]),
        )
