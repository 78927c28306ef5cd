"""Invariants of counts, scores and the temperature profile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import cells, temperature
from calibrant.core.label_policies import N_POLICIES
from calibrant.core.pane import Pane
from tests.calibrant.invariants.basis import (
    Floats,
    Invariants,
    inside,
    near,
    score_bins,
    score_sums,
    slack,
    square_within,
    weight_of,
)
from tests.calibrant.invariants.tables import of_bins


def of_counts(pane: Pane) -> Invariants:
    n = pane.counts
    labelled = n["n_labelled"]
    yield "counts: fewer ratings than labelled", n["n_ratings"] >= 2 * labelled - n["n_one_rating"]
    yield "counts: labelled predictions without a unit", n["n_units"] > 0 or labelled == 0


def of_scores(pane: Pane) -> Invariants:
    n, (counts, sums) = pane.counts, score_sums(pane)
    weight, finite = sums["weight"], sums["weight_finite"]
    samples = np.array([n["n_ratings"], *[n["n_labelled"]] * (N_POLICIES - 1)])
    yield "scores: more ratings at probability 0 than ratings", counts[2] <= n["n_ratings"]
    yield "scores: weight differs from counts", near(weight[1:], weight_of(pane), weight_of(pane))
    yield "scores: samples differ from counts", counts[0] == samples
    yield (
        "scores: accuracy_null below chance",
        sums["accuracy_null"] >= weight / pane.spec.n_classes - slack(weight),
    )
    impossible = weight - finite
    yield (
        "scores: brier beyond twice the loss",
        sums["brier"] <= 2.0 * (sums["nll"] + impossible) + slack(weight),
    )
    chance = pane.spec.n_classes
    most = weight * (1.0 - 1.0 / chance)
    yield (
        "scores: brier_null and accuracy_null are of different predictions",
        inside(weight - sums["accuracy_null"], sums["brier_null"], most, weight)
        & square_within(sums["accuracy_null"], weight, weight - sums["brier_null"], weight),
    )


def of_temperature(pane: Pane) -> Invariants:
    """At temperature 1 the profile's losses are the scores."""
    counts, sums = score_sums(pane)
    blocks, betas = pane["temperature"].blocks, temperature.N_BETAS
    numbers = blocks["curve"].counts.reshape(2, N_POLICIES, betas)
    curve = blocks["curve"].sums.reshape(len(temperature.CURVE_SUMS), N_POLICIES, betas)
    kept = dict(zip(temperature.CURVE_SUMS, curve, strict=True))
    one = int(np.flatnonzero(temperature.BETAS == 1.0)[0])
    yield (
        "temperature: ratings at probability 0 differ from scores",
        numbers[1] == counts[2][:, None],
    )
    for own, name in (("weight", "weight_finite"), ("weight_all", "weight")):
        scale = sums["weight"][:, None]
        yield (
            f"temperature: {own} differs from scores",
            near(kept[own], sums[name][:, None], scale),
        )
    for name in ("nll", "brier"):
        scale = np.abs(sums[name]) + sums["weight"]
        yield (
            f"temperature: {name} at 1 differs from scores",
            near(kept[name][:, one], sums[name], scale),
        )
    yield from of_bins(pane, "temperature (tables)", blocks["tables"], betas)
    yield from _temperature_of_curve(pane, kept, numbers[1])
    if "curvature" in blocks:
        yield from _temperature_of_later_blocks(pane, kept["brier_d1"], sums["weight"])
    yield from _temperature_of_tables(pane)


def _temperature_of_curve(
    pane: Pane, kept: dict[str, Floats], n_zero: NDArray[np.int64]
) -> Invariants:
    """NLL is convex in the inverse temperature and at most log K at 0; slopes are sums of what their squares are kept of."""
    nll, slope, weight = kept["nll"], kept["nll_d1"], kept["weight"]
    step, rise = np.diff(temperature.BETAS), np.diff(nll, axis=1)
    low, high = slope[:, :-1] * step, slope[:, 1:] * step
    scale = np.abs(nll[:, 1:]) + np.abs(low) + np.abs(high) + weight[:, 1:]
    yield "temperature: nll rises otherwise than its slopes", inside(low, rise, high, scale)
    at_zero = nll[:, 0] - temperature.BETAS[0] * slope[:, 0]
    most = weight[:, 0] * np.log(pane.spec.n_classes)
    yield (
        "temperature: nll beyond that of a guess",
        at_zero <= most + slack(np.abs(nll[:, 0]) + most),
    )
    yield (
        "temperature: nll_d1_squared below the square of the slope",
        square_within(
            slope, pane.counts["n_units"], kept["nll_d1_squared"], np.abs(slope) + weight
        ),
    )
    steep = square_within(
        kept["brier_d1"], 4.0 * weight, kept["nll_d2"], np.abs(kept["brier_d1"]) + weight
    )
    yield "temperature: brier_d1 beyond what nll_d2 allows", steep | (n_zero > 0)


def _temperature_of_later_blocks(pane: Pane, slope: Floats, weight: Floats) -> Invariants:
    blocks, n_units = pane["temperature"].blocks, pane.counts["n_units"]
    squares = blocks["curvature"].sums[1].reshape(slope.shape)
    yield (
        "temperature: brier_d1_squared below the square of the slope",
        square_within(slope, n_units, squares, np.abs(slope) + weight[:, None]),
    )
    _, units, correct, incorrect = blocks["units"].counts
    yield "temperature: other units than counts", units <= n_units
    yield "temperature: units without a rating", units <= correct + incorrect


def _temperature_of_tables(pane: Pane) -> Invariants:
    """Every beta's table is of the same predictions and hits; the top class's probability rises with beta."""
    block, betas = pane["temperature"].blocks["tables"], temperature.N_BETAS
    counts = block.counts[0].reshape(betas, -1)
    sums = block.sums.reshape(len(temperature.TABLE_SUMS), betas, -1)
    kept = dict(zip(temperature.TABLE_SUMS, sums.sum(axis=2), strict=True))
    name = "positive" if pane.spec.task == "binary" else "top_label"
    complete = pane[name].blocks["cells"].filled()[2].sum(axis=1)
    score = dict(zip(cells.SUMS, complete, strict=True))
    for column, values in kept.items():
        scale = score["weight_pooled"] + score["weight"]
        if not column.startswith("confidence"):
            yield (
                f"temperature (tables): {column} differs from {name}",
                near(values, score[column], scale),
            )
            continue
        one = betas // 2
        yield (
            f"temperature (tables): {column} at 1 differs from {name}",
            near(values[one], score[column], scale),
        )
        if name == "top_label":
            rises = np.diff(values) >= -slack(scale)
            yield f"temperature (tables): {column} falls with beta", rises
    bins = score_bins(pane, temperature.TABLE_BINS)
    if bins is not None:
        yield "temperature (tables): other bins at 1", counts[betas // 2] == bins[0]
