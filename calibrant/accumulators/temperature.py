"""The temperature profile: losses of softmax(z / T) on a fixed geometric grid of 1 / T.

NLL as a function of beta = 1 / T is convex and additive over predictions, and so are its derivatives; with them on a
grid of ratio sqrt(2) the temperature is the root of a piecewise polynomial, without raw rows. Because exp(2 beta z) is
the square of exp(beta z), two exponentials give the whole grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.filling import Filling
from calibrant.grid import equal_width_bin
from calibrant.policies import N_POLICIES

STEPS_PER_OCTAVE = 2
OCTAVES = 5
BETAS = 2.0 ** (
    np.arange(-OCTAVES * STEPS_PER_OCTAVE, OCTAVES * STEPS_PER_OCTAVE + 1) / STEPS_PER_OCTAVE
)
N_BETAS = len(BETAS)
TABLE_BINS = 60
AS_SENT = N_BETAS // 2
NEAR_EDGE = 1e-9
LOGS_AT_ONCE = 16
CURVE_COUNTS = ("predictions", "n_zero_probability")
CURVE_SUMS = (
    "weight",
    "nll",
    "nll_d1",
    "nll_d2",
    "nll_d1_squared",
    "weight_all",
    "brier",
    "brier_d1",
)
TABLE_SUMS = (
    "weight_pooled",
    "weight",
    "confidence_pooled",
    "confidence",
    "correct_pooled",
    "correct_mean",
    "correct_majority",
    "correct_single",
)
_CHUNK, _MOST_ROWS = 1 << 14, 1 << 10
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class TemperatureProfile(Accumulator):
    """Block `curve` (policies x betas) and block `tables` (betas x 60 bins of the score), flat in that order.

    The table at beta 1 bins the scores as they were sent, so that scores on an edge stay there. `nll_d1_squared` sums
    squares by unit, so that the standard error allows any dependence inside a unit of a batch. Ratings of a class at
    probability 0 stay out of the NLL columns and are counted; `weight_all` is the Brier columns' weight.
    """

    name = "temperature"

    def zero(self) -> dict[str, Block]:
        return {
            "curve": Block(len(CURVE_COUNTS), len(CURVE_SUMS), N_POLICIES * N_BETAS),
            "tables": Block(1, len(TABLE_SUMS), N_BETAS * TABLE_BINS),
        }

    def fill(self, filling: Filling) -> None:
        if not filling.n:
            return
        curve, tables = self.blocks["curve"], self.blocks["tables"]
        sums = curve.sums.reshape(len(CURVE_SUMS), N_POLICIES, N_BETAS)
        by_unit = np.zeros((N_POLICIES, N_BETAS, filling.n_units)) if filling.has_units else None
        rows = min(max(256, _CHUNK // self.spec.n_classes), _MOST_ROWS)
        for start in range(0, filling.n, rows):
            part = rows_of(filling, slice(start, min(start + rows, filling.n)))
            moments = _moments(part)
            curve.counts[0] += part.n
            curve.counts[1] += np.repeat(part.n_zero, N_BETAS)
            sums += _losses(part, moments)
            if by_unit is not None:
                _add_by_unit(by_unit, part, moments)
            else:
                sums[4] += _squared_gradient(part, moments)
            _fill_tables(tables, part, moments)
        if by_unit is not None:
            sums[4] += np.einsum("pbu,pbu->pb", by_unit, by_unit)


@dataclass
class Rows:
    """Some rows: relative logits by class, their vote entries with each policy's weights, what their tables add."""

    n: int
    zed: Floats  # (n_classes, n), at most 0; minus infinity for probability 0
    finite: Floats  # the same with 0 for minus infinity
    score: Floats  # (n,), as sent: the score at beta 1
    row: Ints  # entries
    entry_zed: Floats
    weight: Floats  # (policies, entries), 0 where the probability is 0
    weight_all: Floats
    n_zero: Ints  # (policies,)
    unit: Ints
    is_binary: bool
    constant: int | None
    table_weights: tuple[Floats, Floats]
    table_hits: list[Floats]

    def by_row(self, values: Floats) -> Floats:
        return np.stack([np.bincount(self.row, column, self.n) for column in values])

    @cached_property
    def row_weight(self) -> Floats:
        """Weight of each row's ratings of positive probability, (policies, n)."""
        return self.by_row(self.weight)

    @cached_property
    def row_weight_all(self) -> Floats:
        return self.by_row(self.weight_all) if self.n_zero.any() else self.row_weight

    @cached_property
    def row_zed(self) -> Floats:
        """Weighted sum of z over each row's ratings, (policies, n)."""
        return self.by_row(self.weight * self.entry_zed)


@dataclass
class _Moments:
    """Per beta and row: normaliser, its inverse, mean of z and z^2 under softmax(beta z), sums of p^2 and p^2 z."""

    total: Floats
    inverse: Floats
    mean: Floats
    mean_square: Floats
    squares: Floats
    squares_zed: Floats
    score: Floats


def rows_of(filling: Filling, rows: slice) -> Rows:
    """What the losses of some rows are made of, at whatever temperature."""
    batch, hits = filling.batch, filling.hits
    first, last = np.searchsorted(hits.row, [rows.start, rows.stop])
    row, klass = hits.row[first:last] - rows.start, hits.klass[first:last]
    scores = np.ascontiguousarray(batch.scores[rows].T)
    weight_all = filling.policy_weights[:, first:last]
    if batch.is_logits:
        zed = finite = scores - scores.max(axis=0)
        zero = np.zeros(len(row), bool)
    else:
        with np.errstate(divide="ignore"):
            zed = np.log(scores / scores.max(axis=0))
        finite = np.where(np.isfinite(zed), zed, 0.0)
        zero = scores[klass, row] == 0.0
    chosen = (hits.votes, hits.votes, hits.majority, hits.single)
    score_hits = filling.score_hits
    begin, end = np.searchsorted(score_hits.row, [rows.start, rows.stop])
    at = score_hits.row[begin:end] - rows.start
    weights = filling.weights[rows]
    n = rows.stop - rows.start
    columns = (score_hits.votes, score_hits.share, score_hits.majority, score_hits.single)
    return Rows(
        n=n,
        zed=zed,
        finite=finite,
        score=filling.score[rows],
        row=row,
        entry_zed=finite[klass, row],
        weight=np.where(zero, 0.0, weight_all) if zero.any() else weight_all,
        weight_all=weight_all,
        n_zero=np.array([int((zero * votes[first:last]).sum()) for votes in chosen], np.int64),
        unit=filling.unit_index[rows],
        is_binary=batch.task == "binary",
        constant=filling.constant_ratings,
        table_weights=(weights * filling.n_ratings[rows], weights),
        table_hits=[
            np.bincount(at, weights[at] * column[begin:end], n).astype(np.float64)
            for column in columns
        ],
    )


def _moments(part: Rows) -> _Moments:
    """From two exponentials and repeated squaring, two steps past the grid for the squares."""
    steps = N_BETAS + STEPS_PER_OCTAVE
    total, first = np.empty((2, steps, part.n))
    second, score = np.empty((2, N_BETAS, part.n))
    squared = part.finite**2
    chains = [np.exp(BETAS[0] * part.zed), np.exp(BETAS[1] * part.zed)]
    for step in range(steps):
        power = chains[step % STEPS_PER_OCTAVE]
        power.sum(axis=0, out=total[step])
        np.einsum("kn,kn->n", power, part.finite, out=first[step])
        if step < N_BETAS:
            np.einsum("kn,kn->n", power, squared, out=second[step])
            if part.is_binary:
                score[step] = power[1]
        np.multiply(power, power, out=power)
    inverse = 1.0 / total[:N_BETAS]
    square = inverse * inverse
    score = score * inverse if part.is_binary else inverse.copy()
    score[AS_SENT] = part.score
    return _Moments(
        total=total[:N_BETAS],
        inverse=inverse,
        mean=first[:N_BETAS] * inverse,
        mean_square=np.multiply(second, inverse, out=second),
        squares=total[STEPS_PER_OCTAVE:] * square,
        squares_zed=first[STEPS_PER_OCTAVE:] * square,
        score=score,
    )


def _losses(part: Rows, moments: _Moments) -> Floats:
    """The columns of `CURVE_SUMS` but `nll_d1_squared`, which stays 0; (8, policies, betas)."""
    weight, weight_all = part.row_weight, part.row_weight_all
    zed = (part.weight @ part.entry_zed)[:, None]
    entry = _powers(part.entry_zed)
    entry *= np.take(moments.inverse, part.row, axis=1)
    if part.n_zero.any():
        entry[:, (part.weight_all > part.weight).any(axis=0)] = 0.0
    chosen = part.weight_all @ entry.T
    slope = (part.weight_all * part.entry_zed) @ entry.T
    entry *= np.take(moments.mean, part.row, axis=1)
    slope -= part.weight_all @ entry.T
    result = np.zeros((len(CURVE_SUMS), N_POLICIES, N_BETAS))
    result[0] = weight.sum(axis=1, keepdims=True)
    result[1] = _weighted_logs(weight, moments.total) - zed * BETAS
    result[2] = weight @ moments.mean.T - zed
    result[3] = weight @ (moments.mean_square - moments.mean**2).T
    result[5] = weight_all.sum(axis=1, keepdims=True)
    result[6] = weight_all @ (1.0 + moments.squares).T - 2.0 * chosen
    change = moments.squares_zed - moments.squares * moments.mean
    result[7] = 2.0 * (weight_all @ change.T - slope)
    return result


def _weighted_logs(weight: Floats, total: Floats) -> Floats:
    """Sum of weighted logarithms, (policies, betas); of products of several rows where all weigh the same."""
    n = weight.shape[1]
    if n < LOGS_AT_ONCE or (weight != weight[:, :1]).any():
        return np.asarray(weight @ np.log(total).T)
    even = n - n % LOGS_AT_ONCE
    products = total[:, :even].reshape(N_BETAS, LOGS_AT_ONCE, -1).prod(axis=1)
    logs = np.log(products).sum(axis=1) + np.log(total[:, even:]).sum(axis=1)
    return np.asarray(weight[:, :1] * logs)


def _powers(zed: Floats) -> Floats:
    """exp(beta z) for every beta by repeated squaring; (betas, entries)."""
    result = np.empty((N_BETAS, len(zed)))
    for step in range(N_BETAS):
        if step < STEPS_PER_OCTAVE:
            np.exp(BETAS[step] * zed, out=result[step])
        else:
            np.multiply(
                result[step - STEPS_PER_OCTAVE], result[step - STEPS_PER_OCTAVE], out=result[step]
            )
    return result


def _squared_gradient(part: Rows, moments: _Moments) -> Floats:
    """Sum over rows of the squared derivative of a row's NLL, multiplied out; (policies, betas)."""
    weight, zed = part.row_weight, part.row_zed
    crossed = weight**2 @ (moments.mean**2).T - 2.0 * (weight * zed) @ moments.mean.T
    return np.maximum(crossed + (zed**2).sum(axis=1, keepdims=True), 0.0)


def _add_by_unit(by_unit: Floats, part: Rows, moments: _Moments) -> None:
    """Add the derivative of each row's NLL to its unit's, so that units can be squared when complete."""
    order = np.argsort(part.unit, kind="stable")
    unit = part.unit[order]
    starts = np.flatnonzero(np.diff(unit, prepend=-1))
    mean = np.take(moments.mean, order, axis=1)
    weight, zed = part.row_weight[:, order], part.row_zed[:, order]
    for policy in range(N_POLICIES):
        gradient = weight[policy] * mean - zed[policy]
        by_unit[policy][:, unit[starts]] += np.add.reduceat(gradient, starts, axis=1)


def _table_bin(score: Floats) -> Ints:
    """As `equal_width_bin` with right edges: only scores near an inner edge are compared with it."""
    scaled = score * TABLE_BINS
    place = np.ceil(scaled)
    distance = np.rint(scaled)
    distance -= scaled
    near = np.abs(distance, out=distance) < NEAR_EDGE
    near &= scaled < TABLE_BINS - 0.5
    place -= 1.0
    result = np.maximum(place, 0.0, out=place).astype(np.int64)
    if near.any():
        result[near] = equal_width_bin(score[near], TABLE_BINS)
    return result


def _fill_tables(block: Block, part: Rows, moments: _Moments) -> None:
    score = np.minimum(moments.score, 1.0, out=moments.score)
    place = _table_bin(score)
    place += TABLE_BINS * np.arange(N_BETAS)[:, None]
    place = place.ravel()
    n = np.bincount(place, minlength=block.size)
    block.counts[0] += n
    hits = dict(enumerate(part.table_hits))
    if part.constant is not None:
        confidence = np.bincount(place, score.ravel(), block.size)
        block.sums[:4] += np.stack([part.constant * n, n, part.constant * confidence, confidence])
        pooled = hits.pop(0)
        if part.constant == 1:
            hits = {1: pooled}
    else:
        for i, weight in enumerate(part.table_weights):
            block.sums[i] += np.bincount(place, np.tile(weight, N_BETAS), block.size)
            block.sums[2 + i] += np.bincount(place, (weight * score).ravel(), block.size)
    added = {i: np.bincount(place, np.tile(hit, N_BETAS), block.size) for i, hit in hits.items()}
    if part.constant is not None:
        added[0] = part.constant * added[1]
        added |= {i: added[1] for i in (2, 3) if i not in added}
    for i, column in added.items():
        block.sums[4 + i] += column


ACCUMULATOR = TemperatureProfile
