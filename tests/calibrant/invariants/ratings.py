"""Invariants of what is stored of ratings and their disagreement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import (
    cells,
    concentration,
    distribution_gaps,
    label_bins,
    label_uncertainty,
    rater_pairs,
)
from calibrant.core.pane import Pane
from tests.calibrant.invariants.basis import (
    Floats,
    Invariants,
    inside,
    near,
    score_sums,
    scores_by_replicate,
    slack,
    square_within,
    weight_of,
)


def of_label_uncertainty(pane: Pane) -> Invariants:
    weight = score_sums(pane)[1]["weight"]
    block = pane["label_uncertainty"].blocks["sums"]
    kept = dict(zip(label_uncertainty.SUMS, block.sums, strict=True))
    for suffix, complete in (("", weight[1]), ("_by_ratings", weight[0])):
        own = kept["weight" + suffix].sum()
        yield (
            f"label_uncertainty: weight{suffix} differs from scores",
            near(own, complete, complete),
        )
    yield from _label_uncertainty_of_each(pane, kept, block.counts)


def _label_uncertainty_of_each(
    pane: Pane, kept: dict[str, Floats], counts: NDArray[np.int64]
) -> Invariants:
    """By replicate and votes: one vote has no spread, and the Brier score is the squared gap and the spread."""
    by_replicate = counts.reshape(2, -1, 2)
    yield (
        "label_uncertainty: several ratings among single votes",
        by_replicate[1, :, 0] == by_replicate[0, :, 0],
    )
    yield (
        "label_uncertainty: fewer ratings than votes",
        by_replicate[1, :, 1] >= 2 * by_replicate[0, :, 1],
    )
    scores = scores_by_replicate(pane)
    for suffix, at in (("", 1), ("_by_ratings", 0)):
        columns = {name: kept[name + suffix].reshape(-1, 2) for name in label_uncertainty.MOMENTS}
        own, scale = columns["weight"], columns["weight"].sum()
        spread, correction = columns["spread"], columns["correction"]
        yield (
            f"label_uncertainty: disagreement{suffix} beyond the weight",
            spread + correction <= own + slack(scale),
        )
        yield (
            f"label_uncertainty: correction{suffix} beyond the spread",
            correction <= spread + slack(scale),
        )
        for name in ("spread", "correction", "disagreement_loss"):
            yield (
                f"label_uncertainty: {name}{suffix} of single votes",
                near(columns[name][:, 0], 0.0, scale),
            )
        weight, brier = own.sum(axis=1), (columns["squared_gap"] + spread).sum(axis=1)
        yield (
            f"label_uncertainty: weight{suffix} differs from replicates",
            near(weight, scores["weight"][:, at], scale),
        )
        yield (
            f"label_uncertainty: squared_gap{suffix} and spread differ from brier",
            near(brier, scores["brier"][:, at], scale),
        )


def sums_of_several(pane: Pane, suffix: str = "") -> dict[str, Floats]:
    """The sums of predictions with several votes by replicate, and their observed disagreement."""
    block = pane["label_uncertainty"].blocks["sums"]
    kept = dict(zip(label_uncertainty.SUMS, block.sums, strict=True))
    columns = {name: kept[name + suffix].reshape(-1, 2)[:, 1] for name in label_uncertainty.MOMENTS}
    return columns | {"disagreement": columns["spread"] + columns["correction"]}


def of_label_bins(pane: Pane) -> Invariants:
    """Bins are unions of the classes' cells where the fine grid has their edges; else one bin a class."""
    fine, width = pane.spec.class_grid, label_bins.LABEL_GRID.n_positions
    n_classes = pane.spec.n_classes
    same = fine.cells % label_bins.LABEL_GRID.cells == 0
    block = pane["label_bins"].blocks["bins"]
    sums = dict(zip(label_bins.SUMS, block.sums, strict=True))
    counts = block.counts
    places, own_counts, columns = pane["classes"].blocks["cells"].filled()
    if same:
        place = (
            places // fine.n_positions * width
            + fine.on(label_bins.LABEL_GRID)[places % fine.n_positions]
        )
        size = n_classes * width
    else:
        place, size = places // fine.n_positions, n_classes
        counts = counts.reshape(len(counts), n_classes, width).sum(axis=2)
        sums = {name: values.reshape(n_classes, width).sum(axis=1) for name, values in sums.items()}
    n = np.bincount(place, own_counts[0], size)
    of = {
        name: np.bincount(place, column, size)
        for name, column in zip(cells.SUMS, columns, strict=True)
    }
    yield "label_bins: predictions differ from classes", counts[0] == n
    ratings, hits, squares = (
        sums[name]
        for name in (
            "ratings_squared",
            "correct_ratings_squared",
            "correct_squared_ratings_squared",
        )
    )
    pooled = of["weight_pooled"]
    yield (
        "label_bins: ratings_squared out of range",
        square_within(pooled, n, ratings, pooled) & (ratings <= pooled**2 + slack(pooled**2)),
    )
    yield (
        "label_bins: squares below the square of their mean",
        square_within(of["correct_pooled"], n, squares, pooled)
        & square_within(hits, ratings, squares, pooled**2),
    )
    residual, residual_squared, most = (
        sums["residual"],
        sums["residual_squared"],
        of["weight_squared"],
    )
    yield (
        "label_bins: residual_squared below the square of the residual",
        square_within(residual, most, residual_squared, most + of["weight"]),
    )
    even = near(most, n, n) & near(of["weight"], n, n)  # then every weight is one
    expected = of["correct_mean"] - of["confidence"]
    yield "label_bins: residual differs from classes", near(residual, expected, n) | ~even
    yield from _label_bins_of_one_vote(pane, sums, counts[1], of["weight"].astype(np.float64))


def _label_bins_of_one_vote(
    pane: Pane, sums: dict[str, Floats], n: NDArray[np.int64], complete: Floats
) -> Invariants:
    weight, squared = sums["one_weight"], sums["one_weight_squared"]
    for name in ("one_confidence", "one_correct"):
        total = weight.sum() / pane.spec.n_classes
        yield (
            f"label_bins: {name} over all classes is not the weight",
            near(sums[name].sum(), total, complete.sum()),
        )
    yield (
        "label_bins: one_weight_squared out of range",
        square_within(weight, n, squared, complete) & (squared <= weight**2 + slack(complete**2)),
    )
    correct = sums["one_correct_weight_squared"]
    yield (
        "label_bins: one_correct_weight_squared below the square of its mean",
        square_within(sums["one_correct"], n, correct, complete),
    )


def of_label_distribution(pane: Pane) -> Invariants:
    weight = weight_of(pane)
    kept = pane["label_distribution"].blocks
    counts, columns = kept["sums"].counts, kept["sums"].sums
    sums = dict(zip(distribution_gaps.SUMS, columns, strict=True))
    own = sums["weight"]
    yield "label_distribution: weight differs from counts", near(own.sum(), weight, weight)
    gap, absolute = sums["entropy_gap"], sums["entropy_gap_absolute"]
    yield (
        "label_distribution: entropy_gap beyond its absolute",
        np.abs(gap) <= absolute + slack(own),
    )
    for name in ("entropy_gap", "distance"):
        block = kept[name]
        yield (
            f"label_distribution: {name} of another weight",
            near(block.sums[0].sum(), weight, weight),
        )
    yield from _label_distribution_of_each(pane, sums, counts)


def _label_distribution_of_each(
    pane: Pane, sums: dict[str, Floats], counts: NDArray[np.int64]
) -> Invariants:
    """By replicate the same predictions as elsewhere; histograms of the same distances."""
    several, scores = sums_of_several(pane), scores_by_replicate(pane)
    scale = sums["weight"].sum()
    for mine, theirs in (
        (sums["weight"], scores["weight"][:, 1]),
        (sums["weight_of_two"], several["weight"]),
        (sums["disagreement"], several["disagreement"]),
    ):
        yield "label_distribution: other sums by replicate", near(mine, theirs, scale)
    of_scores = pane["replicates"].blocks["scores"].counts[0].reshape(len(counts[0]), -1)[:, 0]
    yield "label_distribution: other predictions by replicate", counts[0] == of_scores
    bins = distribution_gaps.HISTOGRAM_BINS
    scaled = (sums["entropy_gap"].sum() / np.log(pane.spec.n_classes) + scale) / 2.0
    for name, total in (("entropy_gap", scaled), ("distance", sums["distance"].sum())):
        weight = pane["label_distribution"].blocks[name].sums[0]
        low, high = (weight @ (np.arange(bins) + i) / bins for i in (0, 1))
        yield (
            f"label_distribution: {name} differs from its histogram",
            inside(low, total, high, scale),
        )


def of_disagreement(pane: Pane) -> Invariants:
    """Its sums are those of label uncertainty, by the predicted disagreement."""
    kept = pane["disagreement"].blocks
    _, counts, columns = kept["cells"].filled()
    sums = dict(zip(rater_pairs.SUMS, columns, strict=True))
    for suffix in ("", "_by_ratings"):
        at = {name: sums[name + suffix] for name in rater_pairs.MOMENTS}
        several, own, seen = sums_of_several(pane, suffix), at["weight"], at["disagreement"]
        scale = own.sum()
        epistemic = several["squared_gap"] - several["correction"]
        loss = at["predicted_squared"] - 2.0 * at["product"] + seen
        for name, mine, theirs in (
            ("weight", own, several["weight"]),
            ("disagreement", seen, several["disagreement"]),
            ("epistemic", at["epistemic"], epistemic),
            ("loss", loss, several["disagreement_loss"]),
        ):
            yield (
                f"disagreement: {name}{suffix} differs from label_uncertainty",
                near(mine.sum(), theirs.sum(), scale),
            )
        squared, seen_squared = at["weight_squared"], at["disagreement_weight_squared"]
        yield (
            f"disagreement: squared weights{suffix} out of range",
            square_within(own, counts[0], squared, scale) & (squared <= own**2 + slack(scale**2)),
        )
        yield (
            f"disagreement: squares{suffix} below the square of their mean",
            square_within(
                seen_squared, squared, at["disagreement_squared_weight_squared"], scale**2
            ),
        )
    several = sums_of_several(pane)
    table = kept["replicates"].sums.reshape(
        len(rater_pairs.REPLICATE_SUMS), -1, rater_pairs.REPLICATE_BINS
    )
    predicted = table.sum(axis=1)[1]
    scale = several["weight"].sum()
    yield (
        "disagreement (replicates): predicted differs from the cells",
        near(predicted.sum(), sums["predicted"].sum(), scale),
    )
    for at_row, name in ((0, "weight"), (2, "disagreement")):
        yield (
            f"disagreement (replicates): {name} differs from label_uncertainty",
            near(table[at_row].sum(axis=1), several[name], scale),
        )


_STEP = np.log(2.0)  # between concentrations, whose logarithm is what slopes are by


def of_concentration(pane: Pane) -> Invariants:
    block = pane["concentration"].blocks["profile"]
    profile = block.counts
    kept = dict(zip(concentration.SUMS, block.sums, strict=True))
    weight, nll, slope, bend = (kept[name] for name in ("weight", "nll", "nll_d1", "nll_d2"))
    complete = sums_of_several(pane)["weight"].sum()
    ratings = sums_of_several(pane, "_by_ratings")["weight"].sum()
    further = max(ratings - complete, 0.0)  # ratings beyond the first of each prediction
    yield "concentration: more weight than predictions", inside(0.0, weight, complete, complete)
    if not profile[1].any():
        yield (
            "concentration: weight differs from label_uncertainty",
            near(weight, complete, complete),
        )
    for name in ("weight", "nll_limit"):
        yield (
            f"concentration: {name} depends on the concentration",
            near(kept[name], kept[name][0], ratings),
        )
    for name, values, rate, bound in (("nll", nll, slope, 0.0963), ("nll_d1", slope, bend, 0.125)):
        rise = np.diff(values)
        wanted = _STEP * (rate[1:] + rate[:-1]) / 2.0
        most = _STEP**3 / 12.0 * 2.0 * bound * further  # error of the trapezoid rule
        agree = np.abs(rise - wanted) <= most + slack(np.abs(values[1:]) + ratings)
        yield f"concentration: {name} rises otherwise than its slopes", agree
    yield "concentration: a negative nll", nll >= -slack(ratings)
    yield "concentration: nll_d1 beyond the ratings", np.abs(slope) <= further + slack(ratings)
    yield "concentration: nll_d2 beyond the ratings", np.abs(bend) <= further / 4.0 + slack(ratings)
    n_units = pane.counts["n_units"]
    yield (
        "concentration: nll_d1_squared below the square of the slope",
        square_within(slope, n_units, kept["nll_d1_squared"], np.abs(slope) + ratings),
    )
