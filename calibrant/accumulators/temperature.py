"""The temperature profile: losses of softmax(z / T) on a fixed geometric grid of 1 / T.

NLL as a function of beta = 1 / T is convex and additive over predictions, and so are its derivatives; with them on a
grid of ratio sqrt(2) the temperature is the root of a piecewise polynomial, without raw rows. Because exp(2 beta z) is
the square of exp(beta z), two exponentials give the whole grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.filling import Filling
from calibrant.grid import equal_width_bin
from calibrant.policies import N_POLICIES

STEPS_PER_OCTAVE = 2
OCTAVES = 5
BETAS = 2.0 ** (np.arange(-OCTAVES * STEPS_PER_OCTAVE, OCTAVES * STEPS_PER_OCTAVE + 1) / STEPS_PER_OCTAVE)
N_BETAS = len(BETAS)
TABLE_BINS = 60
CURVE_COUNTS = ("predictions", "n_zero_probability")
CURVE_SUMS = ("weight", "nll", "nll_d1", "nll_d2", "nll_d1_squared", "weight_all", "brier", "brier_d1")
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
_CHUNK = 1 << 14
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class TemperatureProfile(Accumulator):
    """Block `curve` (policies x betas) and block `tables` (betas x 60 bins of the score), flat in that order.

    `nll_d1_squared` sums squares by unit, so that the standard error allows any dependence inside a unit of a batch.
    Ratings of a class at probability 0 stay out of the NLL columns and are counted; `weight_all` is the Brier columns'
    weight.
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
        rows = max(256, _CHUNK // self.spec.n_classes)
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


@dataclass
class _Moments:
    """Per beta and row: normaliser, mean of z and of z squared under softmax(beta z), sums of p^2 and p^2 z; score."""

    total: Floats
    mean: Floats
    mean_square: Floats
    squares: Floats
    squares_zed: Floats
    score: Floats


def rows_of(filling: Filling, rows: slice) -> Rows:
    batch, hits = filling.batch, filling.hits
    first, last = np.searchsorted(hits.row, [rows.start, rows.stop])
    row, klass = hits.row[first:last] - rows.start, hits.klass[first:last]
    scores = np.ascontiguousarray(batch.scores[rows].T)
    if batch.is_logits:
        zed = scores - scores.max(axis=0)
    else:
        with np.errstate(divide="ignore"):
            zed = np.log(scores / scores.max(axis=0))
    possible = np.isfinite(zed)
    weight_all = filling.policy_weights[:, first:last]
    zero = ~possible[klass, row]
    chosen = (hits.votes, hits.votes, hits.majority, hits.single)
    score_hits = filling.score_hits
    begin, end = np.searchsorted(score_hits.row, [rows.start, rows.stop])
    at = score_hits.row[begin:end] - rows.start
    weights = filling.weights[rows]
    n = rows.stop - rows.start
    finite = np.where(possible, zed, 0.0)
    columns = (score_hits.votes, score_hits.share, score_hits.majority, score_hits.single)
    return Rows(
        n=n,
        zed=zed,
        finite=finite,
        row=row,
        entry_zed=finite[klass, row],
        weight=np.where(zero, 0.0, weight_all),
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
    total, first, second = np.empty((3, steps, part.n))
    score = np.empty((N_BETAS, part.n))
    chains = [np.exp(BETAS[0] * part.zed), np.exp(BETAS[1] * part.zed)]
    for step in range(steps):
        power = chains[step % STEPS_PER_OCTAVE]
        weighted = power * part.finite
        power.sum(axis=0, out=total[step])
        weighted.sum(axis=0, out=first[step])
        if step < N_BETAS:
            np.einsum("kn,kn->n", weighted, part.finite, out=second[step])
            score[step] = power[1] if part.is_binary else 1.0
        np.multiply(power, power, out=power)
    square = total[:N_BETAS] ** 2
    return _Moments(
        total=total[:N_BETAS],
        mean=first[:N_BETAS] / total[:N_BETAS],
        mean_square=second[:N_BETAS] / total[:N_BETAS],
        squares=total[STEPS_PER_OCTAVE:] / square,
        squares_zed=first[STEPS_PER_OCTAVE:] / square,
        score=score / total[:N_BETAS],
    )


def _losses(part: Rows, moments: _Moments) -> Floats:
    """The columns of `CURVE_SUMS` but `nll_d1_squared`, which stays 0; (8, policies, betas)."""
    weight, weight_all = part.by_row(part.weight), part.by_row(part.weight_all)
    zed = (part.weight @ part.entry_zed)[:, None]
    entry = _powers(part.entry_zed)
    entry /= np.take(moments.total, part.row, axis=1)
    if part.n_zero.any():
        entry[:, (part.weight_all > part.weight).any(axis=0)] = 0.0
    slope = part.entry_zed - np.take(moments.mean, part.row, axis=1)
    slope *= entry
    result = np.zeros((len(CURVE_SUMS), N_POLICIES, N_BETAS))
    result[0] = weight.sum(axis=1, keepdims=True)
    result[1] = weight @ np.log(moments.total).T - zed * BETAS
    result[2] = weight @ moments.mean.T - zed
    result[3] = weight @ (moments.mean_square - moments.mean**2).T
    result[5] = weight_all.sum(axis=1, keepdims=True)
    result[6] = weight_all @ (1.0 + moments.squares).T - 2.0 * part.weight_all @ entry.T
    change = moments.squares_zed - moments.squares * moments.mean
    result[7] = 2.0 * (weight_all @ change.T - part.weight_all @ slope.T)
    return result


def _powers(zed: Floats) -> Floats:
    """exp(beta z) for every beta by repeated squaring; (betas, entries)."""
    result = np.empty((N_BETAS, len(zed)))
    for step in range(N_BETAS):
        if step < STEPS_PER_OCTAVE:
            np.exp(BETAS[step] * zed, out=result[step])
        else:
            np.multiply(result[step - STEPS_PER_OCTAVE], result[step - STEPS_PER_OCTAVE], out=result[step])
    return result


def _squared_gradient(part: Rows, moments: _Moments) -> Floats:
    """Sum over rows of the squared derivative of a row's NLL; (policies, betas)."""
    weight, zed = part.by_row(part.weight), part.by_row(part.weight * part.entry_zed)
    result = np.empty((N_POLICIES, N_BETAS))
    for policy in range(N_POLICIES):
        gradient = weight[policy] * moments.mean - zed[policy]
        result[policy] = np.einsum("bn,bn->b", gradient, gradient)
    return result


def _add_by_unit(by_unit: Floats, part: Rows, moments: _Moments) -> None:
    """Add the derivative of each row's NLL to its unit's, so that units can be squared when complete."""
    weight, zed = part.by_row(part.weight), part.by_row(part.weight * part.entry_zed)
    for policy in range(N_POLICIES):
        gradient = weight[policy] * moments.mean - zed[policy]
        for step in range(N_BETAS):
            by_unit[policy, step] += np.bincount(part.unit, gradient[step], by_unit.shape[2])


def _fill_tables(block: Block, part: Rows, moments: _Moments) -> None:
    score = np.minimum(moments.score, 1.0)
    place = (equal_width_bin(score, TABLE_BINS) + TABLE_BINS * np.arange(N_BETAS)[:, None]).ravel()
    n = np.bincount(place, minlength=block.size)
    block.counts[0] += n
    if part.constant is not None:
        confidence = np.bincount(place, score.ravel(), block.size)
        block.sums[:4] += np.stack([part.constant * n, n, part.constant * confidence, confidence])
    else:
        for i, weight in enumerate(part.table_weights):
            block.sums[i] += np.bincount(place, np.tile(weight, N_BETAS), block.size)
            block.sums[2 + i] += np.bincount(place, (weight * score).ravel(), block.size)
    for i, hit in enumerate(part.table_hits):
        block.sums[4 + i] += np.bincount(place, np.tile(hit, N_BETAS), block.size)


ACCUMULATOR = TemperatureProfile
