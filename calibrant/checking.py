"""What every pane obeys, and so what a pane made by a stranger must obey before it is merged.

Accumulators of one pane are filled from the same predictions, so they agree with each other: the cells of each table
hold as many predictions as `counts` says, the losses at temperature 1 are the scores, confidences lie in their cells.
A pane that breaks such a law came of no predictions. Counts are compared exactly, sums within `TOLERANCE` of the weight
that they are sums of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant import case_tables
from calibrant.accumulators import (
    cells,
    disagreement,
    label_distribution,
    label_uncertainty,
    replicates,
    scores,
    temperature,
    uncertainty,
    units,
)
from calibrant.accumulators.block import Block
from calibrant.accumulators.cases import Cases
from calibrant.accumulators.sample import Sample
from calibrant.accumulators.unit_sample import UnitSample
from calibrant.columns import MOST_WEIGHT
from calibrant.errors import CalibrationInputError, Offence
from calibrant.policies import N_POLICIES, POLICIES

if TYPE_CHECKING:
    from calibrant.pane import Pane

TOLERANCE = 1e-6
MOST_SUM = 1e150
MOST_COUNTED = 2**53
Floats = NDArray[np.float64]
Laws = Iterator[tuple[str, Any]]


def check_pane(pane: Pane) -> None:
    """Compare the accumulators of a pane with each other.

    Raises
    ------
    CalibrationInputError
        Counts that cannot be (`negative_count`, `count_limit`) or that differ between accumulators (`disagreement`);
        the pointer is `/packed`, the details name the accumulators.
    """
    _check_counts(pane)
    broken = [
        Offence("/packed", "disagreement", text) for text, holds in _laws(pane) if not np.all(holds)
    ]
    if broken:
        raise CalibrationInputError(broken)


def _check_counts(pane: Pane) -> None:
    for name in pane.names:
        for key, block in pane[name].blocks.items():
            counts = block.filled()[1]
            where = name if key == "cells" else f"{name} ({key})"
            if (counts < 0).any():
                raise CalibrationInputError.at(
                    "/packed", "negative_count", f"{where} holds a negative count"
                )
            if (counts > MOST_COUNTED).any() or counts.astype(np.float64).sum() > MOST_COUNTED:
                raise CalibrationInputError.at(
                    "/packed", "count_limit", f"{where} counts beyond 2^53"
                )


def _laws(pane: Pane) -> Laws:
    """Each law as a sentence and whether it holds, everywhere where it is an array."""
    yield from _laws_of_sums(pane)
    yield from _laws_of_counts(pane)
    yield from _laws_of_scores(pane)
    for name in ("top_label", "positive"):
        if pane.keeps(name):
            yield from _laws_of_table(pane, name, pane[name].blocks["cells"], 1)
    for name, tables in (
        ("classes", len(pane.spec.kept_classes)),
        ("all_labels", pane.spec.n_classes),
    ):
        if pane.keeps(name):
            yield from _laws_of_table(pane, name, pane[name].blocks["cells"], tables)
    yield from _laws_of_top_label(pane)
    yield from _laws_of_classes(pane)
    yield from _laws_of_units(pane)
    delays = pane["delays"].blocks["delays"].counts[0]
    yield "delays: more than labelled predictions", delays.sum() <= pane.counts["n_labelled"]
    yield from _laws_of_replicates(pane)
    yield from _laws_of_temperature(pane)
    yield from _laws_of_uncertainty(pane)
    yield from _laws_of_label_distribution(pane)
    yield from _laws_of_several_votes(pane)
    yield from _laws_of_histograms(pane)
    yield from _laws_of_cases(pane)
    yield from _laws_of_sample(pane)


def _near(left: Any, right: Any, scale: Any) -> Any:
    return np.abs(np.asarray(left) - right) <= _slack(scale)


def _slack(scale: Any) -> Any:
    return TOLERANCE * (np.abs(scale) + 1e-3)


def _inside(low: Any, values: Any, high: Any, scale: Any) -> Any:
    return (values >= low - _slack(scale)) & (values <= high + _slack(scale))


def _scores(pane: Pane) -> tuple[NDArray[np.int64], dict[str, Floats]]:
    block = pane["scores"].blocks["scores"]
    return block.counts, dict(zip(scores.SUMS, block.sums, strict=True))


def _weight(pane: Pane) -> float:
    return float(pane["counts"].blocks["counts"].sums[0, 0])


def _laws_of_sums(pane: Pane) -> Laws:
    """No sum is so large that adding panes could leave the range of float64."""
    for name in pane.names:
        for block in pane[name].blocks.values():
            yield f"{name}: a sum beyond any data", np.abs(block.filled()[2]) < MOST_SUM


def _laws_of_counts(pane: Pane) -> Laws:
    n = pane.counts
    labelled = n["n_labelled"]
    yield "counts: more labelled than predictions", labelled <= n["n_predictions"]
    yield "counts: fewer ratings than labelled", n["n_ratings"] >= 2 * labelled - n["n_one_rating"]
    for name in ("n_units", "n_majority_ties", "n_unit_from_row", "n_one_rating"):
        yield f"counts: {name} beyond the labelled", n[name] <= labelled
    yield "counts: labelled predictions without a unit", n["n_units"] > 0 or labelled == 0
    yield "counts: a weight out of range", 0 <= _weight(pane) <= MOST_WEIGHT * labelled
    sample = pane["unit_sample"]
    assert isinstance(sample, UnitSample)
    yield "unit_sample: a unit without a batch", sample.batches > 0
    yield "unit_sample: more than counts' units", sum(sample.batches.tolist()) <= n["n_units"]


def _laws_of_scores(pane: Pane) -> Laws:
    n, (counts, sums) = pane.counts, _scores(pane)
    weight, finite = sums["weight"], sums["weight_finite"]
    samples = np.array([n["n_ratings"], *[n["n_labelled"]] * (N_POLICIES - 1)])
    yield "scores: samples differ from counts", counts[0] == samples
    yield "scores: predictions differ from counts", counts[1] == n["n_labelled"]
    yield "scores: more ratings at probability 0 than ratings", counts[2] <= n["n_ratings"]
    yield "scores: weight differs from counts", _near(weight[1:], _weight(pane), _weight(pane))
    for name, low, high in (
        ("weight_finite", 0.0, weight),
        ("brier", 0.0, 2.0 * weight),
        ("correct", 0.0, weight),
        ("brier_null", 0.0, weight),
        ("accuracy_null", weight / pane.spec.n_classes, weight),
    ):
        yield f"scores: {name} out of range", _inside(low, sums[name], high, weight)
    yield "scores: a negative loss", sums["nll"] >= -_slack(weight)
    yield "scores: a loss without weight", (sums["nll"] <= _slack(weight)) | (finite > 0)
    for name in ("brier_null_variance", "accuracy_null_variance"):
        yield f"scores: {name} is negative", sums[name] >= -_slack(weight)


def _laws_of_table(pane: Pane, name: str, block: Block, tables: int) -> Laws:
    """Laws of cells: `tables` of them, each of all predictions."""
    n, weight = pane.counts, _scores(pane)[1]["weight"]
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

    yield f"{name}: predictions differ from counts", total(counts[0]) == n["n_labelled"]
    yield f"{name}: ratings differ from counts", total(counts[1]) == n["n_ratings"]
    yield f"{name}: fewer ratings than predictions", counts[1] >= counts[0]
    for suffix, samples, whole in (("_pooled", counts[1], weight[0]), ("", counts[0], weight[1])):
        own, squared = sums["weight" + suffix], sums["weight_squared" + suffix]
        yield f"{name}: weight differs from scores", _near(total(own), whole, whole)
        yield f"{name}: a weight out of range", _inside(0.0, own, MOST_WEIGHT * samples, own)
        yield (
            f"{name}: confidence outside its cell",
            _inside(lower * own, sums["confidence" + suffix], upper * own, own),
        )
        yield (
            f"{name}: squared weights out of range",
            _inside(own**2 / samples, squared, own**2, own**2),
        )
        least = np.minimum(lower * (1.0 - lower), upper * (1.0 - upper)) * squared
        most = 0.25 * n["n_labelled"] * own**2
        yield (
            f"{name}: null_variance out of range",
            _inside(least, sums["null_variance" + suffix], most, own**2),
        )
    for policy in POLICIES:
        own = sums["weight_pooled" if policy == "pooled" else "weight"]
        yield (
            f"{name}: correct_{policy} beyond the weight",
            _inside(0.0, sums[f"correct_{policy}"], own, own),
        )
    squares = sums["correct_mean_squared"]
    yield (
        f"{name}: correct_mean_squared out of range",
        _inside(0.0, squares, sums["correct_mean"], sums["weight"]),
    )


def _laws_of_top_label(pane: Pane) -> Laws:
    table = dict(
        zip(cells.SUMS, pane["top_label"].blocks["cells"].filled()[2].sum(axis=1), strict=True)
    )
    sums = _scores(pane)[1]
    correct = np.array([table[f"correct_{policy}"] for policy in POLICIES])
    yield "top_label: correct differs from scores", _near(correct, sums["correct"], sums["weight"])
    confidence = np.array([table["confidence_pooled"], *[table["confidence"]] * (N_POLICIES - 1)])
    yield (
        "top_label: confidence differs from scores",
        _near(confidence, sums["accuracy_null"], sums["weight"]),
    )


def _laws_of_classes(pane: Pane) -> Laws:
    """Every rating is of one class, and a row's probabilities sum to one."""
    name = "classes" if pane.spec.keeps_all_classes else "all_labels"
    table = dict(zip(cells.SUMS, pane[name].blocks["cells"].filled()[2].sum(axis=1), strict=True))
    weight = _scores(pane)[1]["weight"]
    for policy, whole in zip(POLICIES, weight, strict=True):
        yield (
            f"{name}: correct_{policy} over all classes is not the weight",
            _near(table[f"correct_{policy}"], whole, whole),
        )
    yield (
        f"{name}: confidence over all classes is not the weight",
        _near(table["confidence"], weight[1], weight[1]),
    )
    if pane.keeps("positive") and name == "classes":
        width = pane.spec.class_grid.n_positions
        places, _, sums = pane["classes"].blocks["cells"].filled()
        one = sums[:, places >= width].sum(axis=1)
        other = pane["positive"].blocks["cells"].filled()[2].sum(axis=1)
        firsts = slice(0, cells.SUMS.index("correct_mean_squared"))
        yield (
            "positive: sums differ from those of class 1",
            _near(one[firsts], other[firsts], weight[0] + weight[1]),
        )


def _laws_of_units(pane: Pane) -> Laws:
    n, block = pane.counts, pane["units"].blocks["bins"]
    counts, sums = block.counts, dict(zip(units.SUMS, block.sums, strict=True))
    lower, upper = np.arange(block.size) / block.size, np.arange(1, block.size + 1) / block.size
    yield "units: predictions differ from counts", counts[0].sum() == n["n_predictions"]
    yield "units: labelled differ from counts", counts[1].sum() == n["n_labelled"]
    yield "units: more labelled than predictions", counts[1] <= counts[0]
    yield "units: occupancy out of range", _inside(0.0, sums["occupancy"], counts[0], 1.0)
    for suffix in ("", "_pooled"):
        own = sums["weight" + suffix]
        yield (
            f"units: weight{suffix} is not the number of units",
            _near(own.sum(), n["n_units"], n["n_units"]),
        )
        yield f"units: weight{suffix} out of range", _inside(0.0, own, counts[1], 1.0)
        yield (
            "units: confidence outside its bin",
            _inside(lower * own, sums["confidence" + suffix], upper * own, 1.0),
        )
        yield (
            "units: squared weights out of range",
            _inside(0.0, sums["weight_squared" + suffix], own, 1.0),
        )
    for policy in POLICIES:
        own = sums["weight_pooled" if policy == "pooled" else "weight"]
        yield (
            f"units: correct_{policy} beyond the weight",
            _inside(0.0, sums[f"correct_{policy}"], own, 1.0),
        )


def _laws_of_replicates(pane: Pane) -> Laws:
    n, sums = pane.counts, _scores(pane)[1]
    kept = pane["replicates"].blocks
    counts = kept["scores"].counts.reshape(-1, N_POLICIES).sum(axis=0)
    yield "replicates: score counts differ from counts", counts == n["n_labelled"]
    shares = kept["scores"].sums.reshape(len(replicates.SCORE_SUMS), -1, N_POLICIES).sum(axis=1)
    for name, share in zip(replicates.SCORE_SUMS, shares, strict=True):
        yield (
            f"replicates: {name} differs from scores",
            _near(share, sums[name], np.abs(sums[name]) + sums["weight"]),
        )
    sizes = {
        "tables": (replicates.SCORE_BINS, 1),
        "classes": (replicates.CLASS_BINS, pane.spec.n_classes),
    }
    for name, block in kept.items():
        if name in sizes:
            yield from _laws_of_bins(pane, f"replicates ({name})", block, *sizes[name])


def _laws_of_bins(pane: Pane, name: str, block: Block, bins: int, tables: int) -> Laws:
    """Laws of equal-width tables with the columns of `replicates.TABLE_SUMS`."""
    weight = _scores(pane)[1]["weight"]
    places, counts, columns = block.filled()
    sums = dict(zip(replicates.TABLE_SUMS, columns, strict=True))
    lower, upper = places % bins / bins, (places % bins + 1) / bins
    yield (
        f"{name}: predictions differ from counts",
        counts[0].sum() == tables * pane.counts["n_labelled"],
    )
    for suffix, whole in (("_pooled", weight[0]), ("", weight[1])):
        own = sums["weight" + suffix]
        yield (
            f"{name}: weight differs from scores",
            _near(own.sum(), tables * whole, tables * whole),
        )
        yield (
            f"{name}: confidence outside its bin",
            _inside(lower * own, sums["confidence" + suffix], upper * own, own),
        )
    for policy in POLICIES:
        own = sums["weight_pooled" if policy == "pooled" else "weight"]
        yield (
            f"{name}: correct_{policy} beyond the weight",
            _inside(0.0, sums[f"correct_{policy}"], own, own),
        )


def _laws_of_temperature(pane: Pane) -> Laws:
    """At temperature 1 the profile's losses are the scores."""
    n, (counts, sums) = pane.counts, _scores(pane)
    blocks, betas = pane["temperature"].blocks, temperature.N_BETAS
    numbers = blocks["curve"].counts.reshape(2, N_POLICIES, betas)
    curve = blocks["curve"].sums.reshape(len(temperature.CURVE_SUMS), N_POLICIES, betas)
    kept = dict(zip(temperature.CURVE_SUMS, curve, strict=True))
    one = int(np.flatnonzero(temperature.BETAS == 1.0)[0])
    yield "temperature: predictions differ from counts", numbers[0] == n["n_labelled"]
    yield (
        "temperature: ratings at probability 0 differ from scores",
        numbers[1] == counts[2][:, None],
    )
    for own, name in (("weight", "weight_finite"), ("weight_all", "weight")):
        scale = sums["weight"][:, None]
        yield (
            f"temperature: {own} differs from scores",
            _near(kept[own], sums[name][:, None], scale),
        )
    for name in ("nll", "brier"):
        scale = np.abs(sums[name]) + sums["weight"]
        yield (
            f"temperature: {name} at 1 differs from scores",
            _near(kept[name][:, one], sums[name], scale),
        )
    for name in ("nll_d2", "nll_d1_squared"):
        yield (
            f"temperature: {name} is negative",
            kept[name] >= -_slack(np.abs(kept["nll"]) + kept["weight"]),
        )
    yield from _laws_of_bins(
        pane, "temperature (tables)", blocks["tables"], temperature.TABLE_BINS, betas
    )


def _laws_of_uncertainty(pane: Pane) -> Laws:
    """Its cells hold the top label's sums, in another order."""
    whole, grid = _scores(pane)[1], uncertainty.uncertainty_grid()
    places, counts, columns = pane["uncertainty"].blocks["cells"].filled()
    sums = dict(zip(uncertainty.SUMS, columns, strict=True))
    yield "uncertainty: predictions differ from counts", counts[0].sum() == pane.counts["n_labelled"]
    for suffix, at in (("_pooled", 0), ("", 1)):
        own, weight = sums["weight" + suffix], whole["weight"][at]
        yield f"uncertainty: weight{suffix} differs from scores", _near(own.sum(), weight, weight)
        yield (
            "uncertainty: entropy outside its cell",
            _inside(grid.lower[places] * own, sums["uncertainty" + suffix], grid.upper[places] * own, own),
        )
        confidence = sums["confidence" + suffix].sum()
        yield (
            f"uncertainty: confidence{suffix} differs from scores",
            _near(confidence, whole["accuracy_null"][at], weight),
        )
        yield (
            "uncertainty: null_variance is negative",
            sums["null_variance" + suffix] >= -_slack(own),
        )
    for policy, correct, weight in zip(POLICIES, whole["correct"], whole["weight"], strict=True):
        yield (
            f"uncertainty: correct_{policy} differs from scores",
            _near(sums[f"correct_{policy}"].sum(), correct, weight),
        )


def _laws_of_label_distribution(pane: Pane) -> Laws:
    n, weight = pane.counts, _weight(pane)
    kept = pane["label_distribution"].blocks
    counts, columns = kept["sums"].counts, kept["sums"].sums
    sums = dict(zip(label_distribution.SUMS, columns, strict=True))
    own, of_two = sums["weight"], sums["weight_of_two"]
    yield "label_distribution: predictions differ from counts", counts[0].sum() == n["n_labelled"]
    yield "label_distribution: more untied than predictions", counts[1] <= counts[0]
    several = n["n_labelled"] - n["n_one_rating"]
    yield "label_distribution: rows of two ratings differ from counts", counts[2].sum() == several
    yield "label_distribution: weight differs from counts", _near(own.sum(), weight, weight)
    most = np.log(pane.spec.n_classes) * own
    for name, low, high in (
        ("entropy_gap", -most, most),
        ("entropy_gap_absolute", np.abs(sums["entropy_gap"]), most),
        ("distance", 0.0, own),
        ("same_order", 0.0, own),
        ("same_strict_order", 0.0, own),
        ("untied", 0.0, own),
        ("weight_of_two", 0.0, own),
        ("disagreement", 0.0, of_two),
    ):
        yield f"label_distribution: {name} out of range", _inside(low, sums[name], high, own)
    for name in ("entropy_gap", "distance"):
        block = kept[name]
        yield (
            f"label_distribution: {name} of other predictions",
            block.counts[0].sum() == n["n_labelled"],
        )
        yield (
            f"label_distribution: {name} of another weight",
            _near(block.sums[0].sum(), weight, weight),
        )
def _laws_of_several_votes(pane: Pane) -> Laws:
    """What is kept of label uncertainty knows which predictions have one vote, and which several."""
    n, weight = pane.counts, _scores(pane)[1]["weight"]
    one, several = n["n_one_rating"], n["n_labelled"] - n["n_one_rating"]
    block = pane["label_uncertainty"].blocks["sums"]
    kept = dict(zip(label_uncertainty.SUMS, block.sums, strict=True))
    by_vote = block.counts[0].reshape(-1, 2).sum(axis=0)
    yield "label_uncertainty: predictions differ from counts", by_vote == [one, several]
    yield "label_uncertainty: ratings differ from counts", block.counts[1].sum() == n["n_ratings"]
    for suffix, whole in (("", weight[1]), ("_by_ratings", weight[0])):
        own = kept["weight" + suffix].sum()
        yield f"label_uncertainty: weight{suffix} differs from scores", _near(own, whole, whole)
        for name in ("squared_gap", "spread"):
            scale = kept["weight" + suffix]
            inside = _inside(0.0, kept[name + suffix], 2.0 * scale, scale)
            yield f"label_uncertainty: {name}{suffix} out of range", inside
    for name, block in pane["disagreement"].blocks.items():
        yield (
            f"disagreement ({name}): predictions differ from counts",
            block.counts.sum() == several,
        )
        seen, whole = block.sums[disagreement.SUMS.index("disagreement")], block.sums[0]
        yield f"disagreement ({name}): beyond the weight", _inside(0.0, seen, whole, whole)
    profile = pane["concentration"].blocks["profile"].counts
    yield "concentration: predictions differ from counts", profile[0] == several
    yield "concentration: more impossible than predictions", profile[1] <= several
    if pane.keeps("label_bins"):
        counts = pane["label_bins"].blocks["bins"].counts
        wanted = pane.spec.n_classes * np.array([n["n_labelled"], one])
        yield "label_bins: predictions differ from counts", counts.sum(axis=1) == wanted
        yield "label_bins: more single votes than predictions", counts[1] <= counts[0]


def _laws_of_histograms(pane: Pane) -> Laws:
    for key, block in pane.histograms.blocks.items():
        places, _, (count, confidence, correct) = block.filled()
        lower, upper = places / block.size, (places + 1) / block.size
        yield f"histograms {key}: a negative count", count >= -_slack(1.0)
        yield (
            f"histograms {key}: confidence outside its cell",
            _inside(lower * count, confidence, upper * count, count + 1.0),
        )
        yield (
            f"histograms {key}: more correct than counted",
            _inside(0.0, correct, count, count + 1.0),
        )


def _laws_of_cases(pane: Pane) -> Laws:
    if not pane.keeps("cases"):
        return
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
            yield "cases: confidences outside their cells", _inside(low, mean, high, weight)
            squares = sums["confidence_squared" + suffix]
            low, high = lower[places] ** 2 * weight, upper[places] ** 2 * weight
            yield "cases: squared confidences outside their cells", _inside(low, squares, high, weight)
            for policy in policies:
                correct, product = sums["correct_" + policy], sums["product_" + policy]
                yield "cases: more correct than weight", _inside(0.0, correct, weight, weight)
                low, high = lower[places] * correct, upper[places] * correct
                yield "cases: products outside their cells", _inside(low, product, high, weight)
    yield "cases: more predictions than counts", n <= pane.counts["n_labelled"]
    kept = pane["classes"].blocks["cells"].sums
    held = pane.histograms.blocks
    histograms = sum(pane.histograms.weight(key) for key in held if key.startswith("class|"))
    for name in ("weight_pooled", "correct_pooled"):
        mine = total[case_tables.SUMS.index(name)][: layout.n_classes * layout.width].sum()
        all_of_it = kept[cells.SUMS.index(name)].sum() + histograms
        yield f"cases: more {name} than classes hold", mine <= all_of_it + _slack(all_of_it)


def _laws_of_sample(pane: Pane) -> Laws:
    """A part of the predictions; a pane of an earlier version has none of them."""
    if not pane.keeps("sample"):
        return
    sample, n = pane["sample"], pane.counts
    assert isinstance(sample, Sample)
    yield "sample: more than counts' labelled", sample.n <= n["n_labelled"]
    yield "sample: more ratings than counts", sample.n_ratings <= n["n_ratings"]
    yield (
        "sample: more weight than counts",
        _inside(0.0, sample.weight, _weight(pane), _weight(pane)),
    )
