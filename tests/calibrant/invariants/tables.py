"""Invariants of tables of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import cells, entropy_cells, logit_cells, replicates, units
from calibrant.accumulators.block import Block
from calibrant.accumulators.logits import Logits
from calibrant.accumulators.named_cases import Cases
from calibrant.core.label_policies import N_POLICIES, POLICIES
from calibrant.core.pane import Pane
from calibrant.segmentation import case_tables
from tests.calibrant.invariants.basis import (
    Floats,
    Invariants,
    columns_of_bins,
    inside,
    near,
    score_bins,
    score_sums,
    scores_by_replicate,
    slack,
    square_within,
)


def of_bins(pane: Pane, name: str, block: Block, tables: int) -> Invariants:
    """Invariants of equal-width tables with the columns of `replicates.TABLE_SUMS`."""
    weight = score_sums(pane)[1]["weight"]
    sums = dict(zip(replicates.TABLE_SUMS, block.filled()[2], strict=True))
    for suffix, full in (("_pooled", weight[0]), ("", weight[1])):
        own = sums["weight" + suffix]
        yield (
            f"{name}: weight differs from scores",
            near(own.sum(), tables * full, tables * full),
        )


def of_table(pane: Pane, name: str, block: Block, tables: int) -> Invariants:
    """Invariants of cells: `tables` of them, each of all predictions."""
    n, weight = pane.counts, score_sums(pane)[1]["weight"]
    grid = pane.spec.top_grid if name in ("top_label", "positive") else pane.spec.class_grid
    places, counts, columns = block.filled()
    table = places // grid.n_positions
    lower, upper = grid.lower[places % grid.n_positions], grid.upper[places % grid.n_positions]
    sums = dict(zip(cells.SUMS, columns, strict=True))

    def total(values: NDArray[Any]) -> Floats:
        """By table; of all tables where they lie in one."""
        if name == "all_labels":
            return np.array([values.sum() / tables])
        return np.bincount(table, values, tables).astype(np.float64)

    for suffix, samples, full in (("_pooled", counts[1], weight[0]), ("", counts[0], weight[1])):
        own, squared = sums["weight" + suffix], sums["weight_squared" + suffix]
        yield f"{name}: weight differs from scores", near(total(own), full, full)
        yield (
            f"{name}: squared weights below the square of their mean",
            squared >= own**2 / samples - slack(own**2),
        )
        least = np.minimum(lower * (1.0 - lower), upper * (1.0 - upper)) * squared
        most = 0.25 * n["n_labelled"] * own**2
        yield (
            f"{name}: null_variance out of range",
            inside(least, sums["null_variance" + suffix], most, own**2),
        )
    yield f"{name}: other predictions in some table", total(counts[0]) == n["n_labelled"]
    squares = sums["correct_mean_squared"]
    yield (
        f"{name}: correct_mean_squared below the square of its mean",
        square_within(sums["correct_mean"], sums["weight"], squares, sums["weight"]),
    )


def of_top_label(pane: Pane) -> Invariants:
    yield from of_table(pane, "top_label", pane["top_label"].blocks["cells"], 1)
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
    variance = np.array(
        [table["null_variance_pooled"], *[table["null_variance"]] * (N_POLICIES - 1)]
    )
    own = sums["accuracy_null_variance"]
    yield "top_label: null_variance differs from scores", near(variance, own, own + sums["weight"])


def of_positive(pane: Pane) -> Invariants:
    yield from of_table(pane, "positive", pane["positive"].blocks["cells"], 1)
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


def of_classes(pane: Pane) -> Invariants:
    yield from of_table(
        pane, "classes", pane["classes"].blocks["cells"], len(pane.spec.stored_classes)
    )
    if pane.spec.keeps_all_classes:
        yield from of_every_class(pane, "classes")


def of_every_class(pane: Pane, name: str) -> Invariants:
    """Every rating is of one class, and a row's probabilities sum to one."""
    table = dict(zip(cells.SUMS, pane[name].blocks["cells"].filled()[2].sum(axis=1), strict=True))
    weight = score_sums(pane)[1]["weight"]
    for policy, full in zip(POLICIES, weight, strict=True):
        yield (
            f"{name}: correct_{policy} over all classes is not the weight",
            near(table[f"correct_{policy}"], full, full),
        )
    yield (
        f"{name}: confidence over all classes is not the weight",
        near(table["confidence"], weight[1], weight[1]),
    )


def of_all_labels(pane: Pane) -> Invariants:
    yield from of_table(pane, "all_labels", pane["all_labels"].blocks["cells"], pane.spec.n_classes)
    yield from of_every_class(pane, "all_labels")


def of_uncertainty(pane: Pane) -> Invariants:
    """Its cells hold the top label's sums, in another order."""
    full = score_sums(pane)[1]
    sums = dict(
        zip(entropy_cells.SUMS, pane["uncertainty"].blocks["cells"].filled()[2], strict=True)
    )
    for suffix, at in (("_pooled", 0), ("", 1)):
        own, weight = sums["weight" + suffix], full["weight"][at]
        yield f"uncertainty: weight{suffix} differs from scores", near(own.sum(), weight, weight)
        confidence = sums["confidence" + suffix].sum()
        yield (
            f"uncertainty: confidence{suffix} differs from scores",
            near(confidence, full["accuracy_null"][at], weight),
        )
        variance, wanted = sums["null_variance" + suffix].sum(), full["accuracy_null_variance"][at]
        yield (
            f"uncertainty: null_variance{suffix} differs from scores",
            near(variance, wanted, wanted + weight),
        )
    for policy, correct, weight in zip(POLICIES, full["correct"], full["weight"], strict=True):
        yield (
            f"uncertainty: correct_{policy} differs from scores",
            near(sums[f"correct_{policy}"].sum(), correct, weight),
        )


def of_units(pane: Pane) -> Invariants:
    n, block = pane.counts, pane["units"].blocks["bins"]
    counts, sums = block.counts, dict(zip(units.SUMS, block.sums, strict=True))
    for suffix in ("", "_pooled"):
        own = sums["weight" + suffix]
        yield (
            f"units: weight{suffix} is not the number of units",
            near(own.sum(), n["n_units"], n["n_units"]),
        )
    bins = score_bins(pane, units.UNIT_BINS)
    if bins is not None:
        yield "units: other bins than the fine cells", counts[1] == bins[0]


def of_replicates(pane: Pane) -> Invariants:
    n, sums = pane.counts, score_sums(pane)[1]
    kept = pane["replicates"].blocks
    shares = kept["scores"].sums.reshape(len(replicates.SCORE_SUMS), -1, N_POLICIES).sum(axis=1)
    for name, share in zip(replicates.SCORE_SUMS, shares, strict=True):
        yield (
            f"replicates: {name} differs from scores",
            near(share, sums[name], np.abs(sums[name]) + sums["weight"]),
        )
    for name, tables in (("tables", 1), ("classes", pane.spec.n_classes)):
        if name in kept:
            yield from of_bins(pane, f"replicates ({name})", kept[name], tables)
    yield from _replicates_of_each(pane)
    if "score_nulls" in kept:
        yield from _nulls_of_replicates(pane)
        yield from _products_of_units(pane)
    bins = score_bins(pane, replicates.SCORE_BINS)
    if bins is not None:
        block, scale = kept["tables"], n["n_labelled"] + sums["weight"][0]
        by_bin = block.counts[0].reshape(-1, replicates.SCORE_BINS).sum(axis=0)
        yield "replicates (tables): other bins than the fine cells", by_bin == bins[0]
        own = block.sums.reshape(len(replicates.TABLE_SUMS), -1, replicates.SCORE_BINS).sum(axis=1)
        yield (
            "replicates (tables): other sums than the fine cells",
            near(own, columns_of_bins(bins[1]), scale),
        )


def _nulls_of_replicates(pane: Pane) -> Invariants:
    sums = score_sums(pane)[1]
    block = pane["replicates"].blocks["score_nulls"]
    shares = block.sums.reshape(len(replicates.NULL_SUMS), -1, N_POLICIES).sum(axis=1)
    for name, share in zip(replicates.NULL_SUMS, shares, strict=True):
        yield f"replicates: {name} differs from scores", near(share, sums[name], sums["weight"])


def _products_of_units(pane: Pane) -> Invariants:
    """Squares of units' weights in all bins together do not depend on the table."""
    kept, n_units = pane["replicates"].blocks, pane.counts["n_units"]
    weight = score_sums(pane)[1]["weight"][:2, None]
    full = _squares_of_units(kept["unit_products"], 1, replicates.SCORE_BINS)
    yield (
        "replicates (unit_products): out of range",
        inside(weight**2 / max(n_units, 1), full, weight**2, weight**2),
    )
    if "class_unit_products" in kept:
        own = _squares_of_units(
            kept["class_unit_products"], pane.spec.n_classes, replicates.CLASS_BINS
        )
        yield "replicates: products of units differ between tables", near(own, full, weight**2)


def _squares_of_units(block: Block, tables: int, bins: int) -> Floats:
    """Sum over units of the squared weight in all bins, (2, tables)."""
    twice = np.where(np.equal(*np.triu_indices(bins)), 1.0, 2.0)
    return np.asarray(block.sums.reshape(2, tables, -1) @ twice)


def _replicates_of_each(pane: Pane) -> Invariants:
    """Tables and scores of one replicate are of the same predictions."""
    kept, scores = pane["replicates"].blocks, scores_by_replicate(pane)
    n = kept["scores"].counts[0].reshape(-1, N_POLICIES)
    yield "replicates: other predictions by policy", n == n[:, :1]
    scale = scores["weight"].sum(axis=0)
    impossible = scores["weight"] - scores["weight_finite"]
    twice = 2.0 * (scores["nll"] + impossible)
    yield "replicates: brier beyond twice the loss", scores["brier"] <= twice + slack(scale)
    for name, tables in (("tables", 1), ("classes", pane.spec.n_classes)):
        if name not in kept:
            continue
        block = kept[name]
        counts = block.counts[0].reshape(len(n), -1).sum(axis=1)
        columns = block.sums.reshape(len(replicates.TABLE_SUMS), len(n), -1).sum(axis=2)
        sums = dict(zip(replicates.TABLE_SUMS, columns, strict=True))
        yield f"replicates ({name}): predictions differ from scores", counts == tables * n[:, 0]
        for at, weight in ((0, "weight_pooled"), (1, "weight")):
            own = tables * scores["weight"][:, at]
            yield (
                f"replicates ({name}): {weight} differs from scores",
                near(sums[weight], own, scale[at]),
            )
            if name == "classes":
                confidence = sums[weight.replace("weight", "confidence")]
                yield (
                    "replicates (classes): confidence over all classes is not the weight",
                    near(confidence, scores["weight"][:, at], scale[at]),
                )
        for at, policy in enumerate(POLICIES):
            if name == "classes" or pane.spec.task != "binary":
                wanted = scores["weight" if name == "classes" else "correct"][:, at]
                yield (
                    f"replicates ({name}): correct_{policy} differs from scores",
                    near(sums[f"correct_{policy}"], wanted, scale[at]),
                )


def of_logits(pane: Pane) -> Invariants:
    """Cells hold the rows that are counted as theirs, and class 1's ratings where they hold every row."""
    part = pane["logits"]
    assert isinstance(part, Logits)
    n, rows = pane.counts["n_labelled"], part.n_rows()
    held = sum(int(table.counts[0].sum()) for table in part.tables.values())
    yield "logits: other predictions in cells than counted", held == rows["cells"]
    total = sum(
        (table.sums.sum(axis=1) for table in part.tables.values()), np.zeros(len(logit_cells.SUMS))
    )
    sums = dict(zip(logit_cells.SUMS, total, strict=True))
    weight = score_sums(pane)[1]["weight"]
    complete = rows["cells"] == n
    for suffix, full in (("_pooled", weight[0]), ("", weight[1])):
        yield (
            f"logits: weight{suffix} differs from scores",
            near(sums["weight" + suffix], full, full) | (not complete),
        )
    width = pane.spec.class_grid.n_positions
    places, _, columns = pane["classes"].blocks["cells"].filled()
    one = dict(zip(cells.SUMS, columns[:, places >= width].sum(axis=1), strict=True))
    for policy in POLICIES:
        yield (
            f"logits: right_{policy} differs from class 1",
            near(sums[f"right_{policy}"], one[f"correct_{policy}"], weight[0]) | (not complete),
        )


def of_cases(pane: Pane) -> Invariants:
    cases = pane["cases"]
    assert isinstance(cases, Cases)
    layout = cases.layout
    total = np.zeros((len(case_tables.SUMS), layout.size))
    for block in cases.tables.values():
        places, _, columns = block.filled()
        total[:, places] += columns
    kept = pane["classes"].blocks["cells"].sums
    held = pane.histograms.blocks
    histograms = sum(pane.histograms.weight(key) for key in held if key.startswith("class|"))
    for name in ("weight_pooled", "correct_pooled"):
        mine = total[case_tables.SUMS.index(name)][: layout.n_classes * layout.width].sum()
        all_of_it = kept[cells.SUMS.index(name)].sum() + histograms
        yield f"cases: more {name} than classes hold", mine <= all_of_it + slack(all_of_it)
