"""Every rating is of one class, and a row's probabilities sum to one."""

from __future__ import annotations

from calibrant.accumulators import cells
from calibrant.laws.basis import Laws, near, score_sums
from calibrant.laws.cells import laws_of_table
from calibrant.pane import Pane
from calibrant.policies import POLICIES


def laws(pane: Pane) -> Laws:
    yield from laws_of_table(pane, "classes", pane["classes"].blocks["cells"], len(pane.spec.kept_classes))
    if pane.spec.keeps_all_classes:
        yield from laws_of_every_class(pane, "classes")


def laws_of_every_class(pane: Pane, name: str) -> Laws:
    """Every rating is of one class, and a row's probabilities sum to one."""
    table = dict(zip(cells.SUMS, pane[name].blocks["cells"].filled()[2].sum(axis=1), strict=True))
    weight = score_sums(pane)[1]["weight"]
    for policy, whole in zip(POLICIES, weight, strict=True):
        yield (
            f"{name}: correct_{policy} over all classes is not the weight",
            near(table[f"correct_{policy}"], whole, whole),
        )
    yield (
        f"{name}: confidence over all classes is not the weight",
        near(table["confidence"], weight[1], weight[1]),
    )
