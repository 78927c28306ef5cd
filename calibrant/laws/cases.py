"""Tables of cases are parts of the classes' tables."""

from __future__ import annotations

import numpy as np

from calibrant import case_tables
from calibrant.accumulators import cells
from calibrant.accumulators.cases import Cases
from calibrant.laws.basis import Laws, inside, slack
from calibrant.pane import Pane
from calibrant.policies import POLICIES


def laws(pane: Pane) -> Laws:
    cases = pane["cases"]
    assert isinstance(cases, Cases)
    layout = cases.layout
    lower = np.concatenate([np.tile(layout.grid.lower, layout.n_classes), np.zeros(layout.n_classes)])
    upper = np.concatenate([np.tile(layout.grid.upper, layout.n_classes), np.ones(layout.n_classes)])
    n, total = 0, np.zeros((len(case_tables.SUMS), layout.size))
    for block in cases.tables.values():
        places, counts, columns = block.filled()
        n += int(counts[0, places >= layout.n_classes * layout.width].sum())
        total[:, places] += columns
        sums = dict(zip(case_tables.SUMS, columns, strict=True))
        for suffix, policies in (("_pooled", POLICIES[:1]), ("", POLICIES[1:])):
            weight, mean = sums["weight" + suffix], sums["confidence" + suffix]
            low, high = lower[places] * weight, upper[places] * weight
            yield "cases: confidences outside their cells", inside(low, mean, high, weight)
            squares = sums["confidence_squared" + suffix]
            low, high = lower[places] ** 2 * weight, upper[places] ** 2 * weight
            yield "cases: squared confidences outside their cells", inside(low, squares, high, weight)
            for policy in policies:
                correct, product = sums["correct_" + policy], sums["product_" + policy]
                yield "cases: more correct than weight", inside(0.0, correct, weight, weight)
                low, high = lower[places] * correct, upper[places] * correct
                yield "cases: products outside their cells", inside(low, product, high, weight)
    yield "cases: more predictions than counts", n <= pane.counts["n_labelled"]
    kept = pane["classes"].blocks["cells"].sums
    held = pane.histograms.blocks
    histograms = sum(pane.histograms.weight(key) for key in held if key.startswith("class|"))
    for name in ("weight_pooled", "correct_pooled"):
        mine = total[case_tables.SUMS.index(name)][: layout.n_classes * layout.width].sum()
        all_of_it = kept[cells.SUMS.index(name)].sum() + histograms
        yield f"cases: more {name} than classes hold", mine <= all_of_it + slack(all_of_it)
