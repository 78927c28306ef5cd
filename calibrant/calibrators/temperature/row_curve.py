"""Losses as functions of the inverse temperature, from raw rows by the kernel.

Of many rows the kernel stores relative logits as float32, once: losses are then within a relative 1e-7 of those in float64.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.temperature import BETAS, N_BETAS, STEPS_PER_OCTAVE
from calibrant.calibrators.temperature.curve import Curve, Minimum, signs
from calibrant.calibrators.temperature.ece_interpolation import stored_ece
from calibrant.calibrators.temperature.hermite import (
    LOG_BETAS,
    NODES,
    Hermite,
    Root,
    quintic,
    root,
    window,
)
from calibrant.core.arrays import Floats, ratio
from calibrant.core.batch import Batch
from calibrant.core.logits import relative_logits
from calibrant.kernel.tempered import (
    MANY_SCORES,
    SUMS,
    WITH_BRIER,
    WITH_BRIER_DERIVATIVES,
    WITHOUT_BRIER,
    TemperedRows,
    TemperedSums,
)

MAX_NEWTON = 20
# Last relative step of Newton's method, whose error is its square: of sums in float64, and of rows as float32.
STILL, STILL_OF_MANY = 1e-8, 1e-5
# Relative error of T from rows as float32.
ERROR_OF_MANY = 1e-8
# Of so many betas the tables are computed one by one; of more, from normalisers at this many nodes per octave.
FEW_BETAS, NODES_PER_OCTAVE = 32, 8


class RowCurve(Curve):
    """Losses of raw rows at any inverse temperature.

    Parameters
    ----------
    batch : Batch; predictions without ratings do not count
    policy, bins, min_count : as in `Curve`; any number of bins
    objective : "nll", "brier" or "ece", whose minima may be requested
    scale : the logits are divided by it, so that temperatures are multiples of it
    """

    method = "raw"

    def __init__(
        self,
        batch: Batch,
        policy: int,
        bins: int,
        min_count: float = 0.0,
        objective: str = "nll",
        scale: float = 1.0,
    ) -> None:
        self.batch, self.policy, self.bins, self.min_count = batch, policy, bins, min_count
        self.objective, self.scale = objective, scale
        self.rows = _tempered(batch, policy)
        self._order = WITH_BRIER_DERIVATIVES if objective == "brier" else WITH_BRIER
        self._at: dict[float, tuple[dict[str, float], float]] = {}
        self._near = np.full((3, N_BETAS), np.nan)
        if self.rows.is_exact:
            self._exact(1.0)  # a first pass gives the weights too; storing rows is one
        self.weight, self.weight_all = self.rows.weight, self.rows.weight_all
        self.n_zero_probability, self.unit_counts = self._count_impossible(), self._count_units()

    @cached_property
    def _stored(self) -> TemperedSums:
        """Sums and tables at the temperatures that a profile stores."""
        return self._pass(BETAS, self._order, bins=self.bins, doubles_every=STEPS_PER_OCTAVE)

    @cached_property
    def sums(self) -> dict[str, Floats]:  # type: ignore[override]
        found = dict(zip(SUMS, self._stored.sums.T, strict=True))
        is_known = self._order == WITH_BRIER_DERIVATIVES
        return {name: each for name, each in found.items() if is_known or "brier_d" not in name}

    @cached_property
    def ece_points(self) -> Floats:
        assert self._stored.tables is not None
        return self._errors(self._stored.tables)

    @cached_property
    def _nll(self) -> Hermite:
        return Hermite(self._nll_near)

    def _nll_near(self, near: slice) -> Floats:
        """Return `nll_points` of some stored points, each computed when it is first read."""
        missing = np.flatnonzero(np.isnan(self._near[0, near])) + near.start
        if len(missing):
            run = slice(int(missing[0]), int(missing[-1]) + 1)
            betas = BETAS[run]
            doubles = STEPS_PER_OCTAVE if len(betas) > STEPS_PER_OCTAVE else 0
            value, d1, d2, *_ = self._pass(betas, WITHOUT_BRIER, doubles_every=doubles).sums.T
            self._near[:, run] = [value, betas * d1, betas**2 * d2 + betas * d1]
            self._near[:, run] /= self.weight
        return self._near[:, near]

    def _signs(self, objective: str) -> Floats:
        """Return the signs of all slopes; of NLL, which is convex, from the points around its minimum."""
        if objective != "nll":
            return super()._signs(objective)
        first, last = window(0.0, NODES).start, window(0.0, NODES).stop
        while True:
            near = signs(self._nll_near(slice(first, last))[1])
            if not near.max() > 0.0 and last < N_BETAS:
                last = min(last + NODES // 2, N_BETAS)
            elif not near.min() < 0.0 and first > 0:
                first = max(first - NODES // 2, 0)
            else:
                return np.pad(near, (first, N_BETAS - last), constant_values=(-1.0, 1.0))

    def scaled(self, scale: float) -> RowCurve:
        """Return the losses of the logits divided by another number."""
        return RowCurve(self.batch, self.policy, self.bins, self.min_count, self.objective, scale)

    def _pass(self, betas: Floats, order: int, **options: Any) -> TemperedSums:
        """Return the sums at betas of the scaled logits, with derivatives in these."""
        found = self.rows.sums(betas / self.scale, order, **options)
        powers = [0, 1, 2, 2, 0, 1, 2, 2]
        return TemperedSums(found.sums / self.scale ** np.array(powers), found.tables, found.rows)

    def _exact(self, beta: float) -> tuple[dict[str, float], float]:
        """Return the sums and the ECE; those of the scores as sent are computed with the first others."""
        if beta not in self._at:
            betas = np.array([beta] if 1.0 in self._at or beta == 1.0 else [1.0, beta])
            found = self._pass(betas, self._order, bins=self.bins)
            assert found.tables is not None
            for at, sums, ece in zip(
                betas.tolist(),
                found.sums.tolist(),
                self._errors(found.tables).tolist(),
                strict=True,
            ):
                self._at[at] = (dict(zip(SUMS, sums, strict=True)), ece)
        return self._at[beta]

    def _sums(self, beta: float) -> dict[str, float]:
        return self._exact(beta)[0]

    def _count_impossible(self) -> int:
        if not self.rows.n_impossible:
            return 0
        chosen = self.batch.chosen_ratings(self.policy)
        return int(chosen[_is_impossible(self.batch)].sum())

    def _count_units(self) -> dict[str, int]:
        incorrect = self.rows.is_incorrect
        if not self.batch.has_units:
            return {"incorrect_units": int(np.count_nonzero(incorrect))}
        return {"incorrect_units": len(np.unique(self.batch.unit_key[incorrect]))}

    def nll(self, beta: float) -> float:
        return self._sums(beta)["nll"] / self.weight

    def brier(self, beta: float) -> float:
        return self._sums(beta)["brier"] / self.weight_all

    def slope(self, objective: str, beta: float) -> float:
        total = self.weight if objective == "nll" else self.weight_all
        return beta * self._sums(beta)[f"{objective}_d1"] / total

    def curvature(self, beta: float) -> float:
        return self._sums(beta)["nll_d2"] / self.weight

    def total_curvature(self, objective: str, beta: float) -> float:
        return self._sums(beta)[f"{objective}_d2"]

    def squares(self, objective: str, beta: float) -> float | None:
        if not self.batch.has_units:
            return self._sums(beta)[f"{objective}_d1_squared"]
        found = self._pass(np.array([beta]), self._order, by_row=True, is_exact=True)
        assert found.rows is not None
        slopes = found.rows[1 if objective == "nll" else 2] / self.scale
        return float((np.bincount(self.batch.unit_index, slopes) ** 2).sum())

    def squared_slope(self, beta: float) -> float:
        return self.squares("nll", beta) or 0.0

    def unit_losses(self, beta: float, n_units: int) -> float:
        found = self._pass(np.array([beta]), WITHOUT_BRIER, by_row=True, is_exact=True)
        assert found.rows is not None
        loss = np.bincount(self.batch.unit_index, found.rows[0])
        weight = np.bincount(self.batch.unit_index, self._possible_weight, len(loss))
        return float(ratio(loss, weight).sum())

    @cached_property
    def _possible_weight(self) -> Floats:
        """Weight of each row's ratings of positive probability, (n,)."""
        weight = self.batch.rating_weights(self.policy) * ~_is_impossible(self.batch)
        return np.bincount(self.batch.ratings.row, weight, self.batch.n).astype(np.float64)

    def _between(self, objective: str, a: int, b: int, rises: bool) -> list[Root]:
        return [
            self._refined(objective, start, (float(LOG_BETAS[a]), float(LOG_BETAS[b])))
            for start in super()._between(objective, a, b, rises)
        ]

    def _refined(self, objective: str, start: Root, ends: tuple[float, float]) -> Root:
        """Return the root of the slope by Newton's method; by bisection where that leaves the interval."""
        still = STILL if self.rows.is_exact else STILL_OF_MANY
        order = WITHOUT_BRIER if objective == "nll" else WITH_BRIER_DERIVATIVES
        first, second = (SUMS.index(f"{objective}_{name}") for name in ("d1", "d2"))
        beta = start.beta
        for step in range(1, MAX_NEWTON + 1):
            sums = self._pass(np.array([beta]), order).sums[0]
            if not sums[second] > 0.0:
                break
            move = float(sums[first] / sums[second])
            beta -= move
            if not np.exp(ends[0]) <= beta <= np.exp(ends[1]):
                break
            if abs(move) <= still * beta:
                return Root(beta, step)
        return root(lambda at: self.slope(objective, float(np.exp(at))), *ends)

    @property
    def precision(self) -> str:
        return "rows"

    def root_error(self, objective: str, at: Minimum) -> float:
        return 0.0 if self.rows.is_exact else ERROR_OF_MANY

    def ece_error(self, beta: float) -> float:
        return 0.0

    def ece(self, beta: float) -> float:
        return self._exact(beta)[1]

    def eces(self, betas: Floats) -> Floats:
        """Return the ECE at each beta of an increasing array."""
        if len(betas) <= FEW_BETAS:
            tables = self._pass(betas, WITHOUT_BRIER, bins=self.bins).tables
            assert tables is not None
            return self._errors(tables)
        log_betas = np.log(betas / self.scale)
        n_nodes = int(np.ceil(np.ptp(log_betas) / np.log(2.0) * NODES_PER_OCTAVE)) + 1
        nodes = np.linspace(log_betas[0], log_betas[-1], n_nodes)
        left = np.clip(np.searchsorted(nodes, log_betas, "right") - 1, 0, n_nodes - 2)
        basis = np.concatenate(
            [quintic(nodes[j], nodes[j + 1], log_betas[left == j]) for j in range(n_nodes - 1)]
        )
        return self._errors(
            self.rows.tables(betas / self.scale, np.exp(nodes), left, basis, self.bins)
        )

    def _errors(self, tables: Floats) -> Floats:
        count, score, correct = np.moveaxis(tables, 2, 0)
        return stored_ece(count, correct - score, self.min_count)


def counts_of(batch: Batch) -> dict[str, int]:
    """Return the numbers of predictions, labelled ones, ratings, and units with a label."""
    labelled = np.zeros(batch.n, np.bool_)
    labelled[batch.ratings.row] = True
    n = int(np.count_nonzero(labelled))
    return {
        "n_predictions": batch.n,
        "n_labelled": n,
        "n_ratings": int(batch.ratings.count.sum()) // batch.notes.per_rating,
        "n_units": len(np.unique(batch.unit_key[labelled])) if batch.has_units else n,
    }


def _tempered(batch: Batch, policy: int) -> TemperedRows:
    ratings, scores = batch.ratings, batch.scores
    if scores.size < MANY_SCORES:
        # They are read again when the curve is: a caller may have changed them by then. Of more, the kernel stores logits.
        scores = np.array(scores)
    return TemperedRows(
        scores,
        ratings.row,
        ratings.class_index,
        None if _is_plain(batch) else batch.rating_weights(policy),
        is_logits=batch.is_logits,
        is_binary=batch.task == "binary",
        edge_rules=batch.edge_rules,
    )


def _is_plain(batch: Batch) -> bool:
    """Return whether every rated row has one rating of weight one, so that all policies agree."""
    row, count = batch.ratings.row, batch.ratings.count
    return batch.weights is None and bool((count == 1).all() and (row[1:] != row[:-1]).all())


def _is_impossible(batch: Batch) -> NDArray[np.bool_]:
    """Return whether the class of each entry of the ratings has probability 0; (entries,)."""
    row, class_index = batch.ratings.row, batch.ratings.class_index
    if not batch.is_logits:
        return np.asarray(batch.scores[row, class_index] == 0.0)
    return np.asarray(
        relative_logits(batch.scores[row], axis=1)[np.arange(len(row)), class_index] == -np.inf
    )
