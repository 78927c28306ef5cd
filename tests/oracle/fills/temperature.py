"""numpy fill of the accumulator `temperature`: the specification of the kernel's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrant.accumulators.block import Block
from calibrant.accumulators.temperature import (
    CURVATURE_SUMS,
    CURVE_SUMS,
    N_BETAS,
    TABLE_BINS,
    UNIT_COUNTS,
    TemperatureProfile,
)
from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch_sums import BatchSums
from calibrant.core.grid import equal_width_bin
from calibrant.core.label_policies import N_POLICIES
from tests.oracle.derived import derived_bin, score_correct
from tests.oracle.temperature_losses import RatingLanes, TemperedRows

# Results of `TemperedRows.losses` by their place among the columns; `nll_d1_squared` is not a sum over rows.
_LOSSES = (0, 1, 2, 3, 5, 6, 7)
_CHUNK, _MAX_ROWS = 1 << 15, 1 << 11
# Integers packed into the 53 bits of one float64, with this many bits each, lowest first.
_FIELD, _MAX_RATINGS = 12, 1 << 5


class Filled(TemperatureProfile):
    """The accumulator with its fill."""

    def fill(self, batch_sums: BatchSums) -> None:
        if not batch_sums.n:
            return
        curve, tables = self.blocks["curve"], self.blocks["tables"]
        sums = curve.sums.reshape(len(CURVE_SUMS), N_POLICIES, N_BETAS)
        curvatures = np.zeros((len(CURVATURE_SUMS), N_POLICIES, N_BETAS))
        ratings, table = RatingLanes(batch_sums), _TableRows(batch_sums)
        squares = (
            _SquaresByUnit(batch_sums, len(ratings.of_policy))
            if batch_sums.has_units
            else _SquaresByRow()
        )
        rows = min(max(256, _CHUNK // self.spec.n_classes), _MAX_ROWS)
        for start in range(0, batch_sums.n, rows):
            chosen = slice(start, min(start + rows, batch_sums.n))
            part = ratings.part(chosen)
            curve.counts[0] += part.n
            curve.counts[1] += np.repeat(part.n_zero, N_BETAS)
            *losses, curvature = part.losses()
            for place, values in zip(_LOSSES, losses, strict=True):
                sums[place] += values
            curvatures[0] += curvature
            squares.add(chosen, part)
            table.fill(tables, chosen, part.moments.score)
        sums[4] += squares.nll
        curvatures[1] = squares.brier
        self._fill_later_blocks(batch_sums, curvatures)

    def _fill_later_blocks(self, batch_sums: BatchSums, curvatures: Floats) -> None:
        if "curvature" in self.blocks:
            curvature = self.blocks["curvature"]
            curvature.counts[0] += batch_sums.n
            curvature.sums.reshape(curvatures.shape).__iadd__(curvatures)
        if "units" in self.blocks:
            self.blocks["units"].counts.__iadd__(_count_units(batch_sums))


class _SquaresByRow:
    """Sums of squared derivatives where every row is a unit, (policies, betas)."""

    def __init__(self) -> None:
        self.nll, self.brier = np.zeros((2, N_POLICIES, N_BETAS))

    def add(self, rows: slice, part: TemperedRows) -> None:
        self.nll += part.squared_gradient()
        self.brier += part.squared_brier_gradient()


class _SquaresByUnit:
    """Derivatives of each unit, squared when the units are complete, (policies, betas)."""

    def __init__(self, batch_sums: BatchSums, policies: int) -> None:
        self._units = batch_sums.unit_index
        self._of_unit = np.zeros((2, policies, N_BETAS, batch_sums.n_units))
        self._all_four: Callable[..., Floats] | None = None

    def add(self, rows: slice, part: TemperedRows) -> None:
        order = np.argsort(self._units[rows], kind="stable")
        units = self._units[rows][order]
        starts = np.flatnonzero(np.diff(units, prepend=-1))
        for loss, gradients in enumerate((part.gradients(), part.brier_gradients())):
            for policy, gradient in enumerate(gradients):
                added = np.add.reduceat(np.take(gradient, order, axis=1), starts, axis=1)
                self._of_unit[loss, policy][:, units[starts]] += added
        self._all_four = part.policies.all_four

    @property
    def nll(self) -> Floats:
        return self._squared(0)

    @property
    def brier(self) -> Floats:
        return self._squared(1)

    def _squared(self, loss: int) -> Floats:
        assert self._all_four is not None
        squared = np.einsum("pbu,pbu->pb", self._of_unit[loss], self._of_unit[loss])
        return self._all_four(squared, power=2)


def _distinct(units: Ints, n_units: int) -> int:
    found = np.zeros(n_units, np.bool_)
    found[units] = True
    return int(np.count_nonzero(found))


def _count_units(batch_sums: BatchSums) -> Ints:
    """Return the columns of the block `units`, (4, policies)."""
    correct_ratings, weighted = batch_sums.correct_ratings, batch_sums.weights > 0
    result = np.full((len(UNIT_COUNTS), N_POLICIES), batch_sums.n, np.int64)
    result[1] = _distinct(batch_sums.unit_index[weighted], batch_sums.n_units)
    is_top = correct_ratings.class_index == batch_sums.top_class[correct_ratings.row]
    rated = np.ones(len(correct_ratings.row), bool)
    for policy, chosen in enumerate(
        (rated, rated, correct_ratings.majority, correct_ratings.single)
    ):
        counted = chosen & weighted[correct_ratings.row]
        for column, own in ((2, is_top), (3, ~is_top)):
            units = batch_sums.unit_index[correct_ratings.row[counted & own]]
            result[column, policy] = _distinct(units, batch_sums.n_units)
    return result


class _TableRows:
    """Contributions of a batch's rows to the tables of their scores."""

    def __init__(self, batch_sums: BatchSums) -> None:
        correct_ratings, n = score_correct(batch_sums), batch_sums.n
        weight = batch_sums.weights[correct_ratings.row]
        self.constant = batch_sums.constant_ratings
        self.rules = batch_sums.batch.edge_rules
        self.correct_ratings = [
            np.bincount(correct_ratings.row, weight * column, n).astype(np.float64)
            for column in (
                correct_ratings.ratings,
                correct_ratings.share,
                correct_ratings.majority,
                correct_ratings.single,
            )
        ]
        self.weights = (batch_sums.weights * batch_sums.n_ratings, batch_sums.weights)
        ratings, _, majority, single = self.correct_ratings
        self.code = 1.0 + majority * 2.0**_FIELD + single * 4.0**_FIELD + ratings * 8.0**_FIELD

    def fill(self, block: Block, rows: slice, score: Floats) -> None:
        """Add some rows, at most `_MAX_ROWS`, with their scores at every beta, (betas, n)."""
        score = np.minimum(score, 1.0, out=score)
        place = derived_bin(score, TABLE_BINS)
        sent = N_BETAS // 2
        rules = None if self.rules is None else self.rules[rows]
        place[sent] = equal_width_bin(score[sent], TABLE_BINS, rules=rules)
        place += TABLE_BINS * np.arange(N_BETAS)[:, None]
        place = place.ravel()
        if self.constant is not None and self.constant <= _MAX_RATINGS:
            self._fill_even(block, rows, place, score)
        else:
            self._fill_any(block, rows, place, score)

    def _fill_even(self, block: Block, rows: slice, place: Ints, score: Floats) -> None:
        """Add rows of weight one with equally many ratings. All sums but the scores are small integers and are packed into one."""
        assert self.constant is not None
        code = np.bincount(place, np.tile(self.code[rows], N_BETAS), block.size).astype(np.int64)
        n, majority, single = (code >> (_FIELD * i) & ((1 << _FIELD) - 1) for i in range(3))
        ratings = code >> (3 * _FIELD)
        confidence = np.bincount(place, score.ravel(), block.size)
        block.counts[0] += n
        columns = (
            self.constant * n,
            n,
            self.constant * confidence,
            confidence,
            ratings,
            ratings / self.constant,
        )
        for i, column in enumerate((*columns, majority, single)):
            block.sums[i] += column

    def _fill_any(self, block: Block, rows: slice, place: Ints, score: Floats) -> None:
        block.counts[0] += np.bincount(place, minlength=block.size)
        for i, weight in enumerate(self.weights):
            block.sums[i] += np.bincount(place, np.tile(weight[rows], N_BETAS), block.size)
            block.sums[2 + i] += np.bincount(place, (weight[rows] * score).ravel(), block.size)
        for i, hit in enumerate(self.correct_ratings):
            block.sums[4 + i] += np.bincount(place, np.tile(hit[rows], N_BETAS), block.size)
