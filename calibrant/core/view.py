"""A pane seen through a question: cells, tables and sums under the asked scope, policy and bins.

Metrics, maps and diagrams read a `View` and nothing else. Given the raw batch beside the pane, cells come from raw rows
(one for each distinct score); so one formula serves the kept state and `POST /v1/score`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import scores as score_sums
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import Filling
from calibrant.core.cells import Cells, equal_mass_groups, rank_groups
from calibrant.core.grid import equal_width_bin
from calibrant.core.label_policies import policy_index
from calibrant.core.pane import Pane
from calibrant.core.policy_cells import cells_of_rows, cells_of_scores, under_policy, with_histogram
from calibrant.core.query import PaneQuery

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
T = TypeVar("T")


class NotAnswerable(Exception):
    """The state cannot answer; `reason` is a word for machines, `detail` a sentence, `n_excluded` what was left out."""

    def __init__(self, reason: str, detail: str, n_excluded: float | None = None) -> None:
        self.reason, self.detail, self.n_excluded = reason, detail, n_excluded
        super().__init__(f"{reason}: {detail}")


@dataclass(frozen=True)
class Table:
    """Cells added up by bin, with the bins' nominal edges.

    `edges` float64 (n_bins + 1,) are k / n_bins for equal-width bins and the observed cuts for equal-mass ones.
    Bins below the question's `min_count` are zero, and `discarded_weight` says what they held.
    """

    cells: Cells
    edges: Floats
    discarded_weight: float

    @property
    def n_bins(self) -> int:
        return len(self.cells)


class View:
    """A pane and a question.

    Parameters
    ----------
    pane : Pane
    question : PaneQuery, checked against the pane's spec
    batch : the raw rows that the pane was filled from, where they are at hand
    """

    def __init__(self, pane: Pane, question: PaneQuery, batch: Batch | None = None) -> None:
        self.pane, self.question = pane, question.check(pane.spec, exact=batch is None)
        self.spec = pane.spec
        self.policy = policy_index(question.raters)
        self.scope = question.scope_for(pane.spec)
        self.filling = None if batch is None else Filling(batch)
        self._made: dict[Any, Any] = {}

    def asking(self, question: PaneQuery) -> View:
        """Return a view of the same data under another question."""
        other = View.__new__(View)
        other.pane, other.question = (
            self.pane,
            question.check(self.spec, exact=self.filling is None),
        )
        other.spec, other.filling = self.spec, self.filling
        other.policy, other.scope = policy_index(question.raters), question.scope_for(self.spec)
        other._made = {}
        return other

    @cached_property
    def counts(self) -> dict[str, int]:
        return self.pane.counts

    @property
    def is_raw(self) -> bool:
        """Whether cells are of raw rows."""
        return self.filling is not None

    @property
    def _splits_ties(self) -> bool:
        return self.is_raw and self.question.options.get("ties") == "split"

    @cached_property
    def weighted(self) -> bool:
        """Whether predictions carry weights other than one."""
        cells = self.cells_of(self.scope)
        return bool((cells.weight != cells.count).any())

    def cells(self) -> Cells:
        """Cells of the asked scope; predictions only.

        Raises
        ------
        NotAnswerable
            The window holds plain histograms, or the classes' cells are not kept.
        """
        self.refuse_histograms()
        return self.cells_of(self.scope)

    def table(self) -> Table:
        """The asked bins of the asked scope. Plain histograms count where they are of this kind, policy and edges.

        Raises
        ------
        NotAnswerable
            The window holds histograms that cannot speak of this, or the classes' cells are not kept.
        """
        return self.table_of(self.scope)

    def table_of(self, scope: str) -> Table:
        """As `table`, of another scope."""
        return self.binned(scope, self.question.binning, self.question.bins)

    def binned(self, scope: str, binning: str, bins: int) -> Table:
        """A scope's table under another binning than the question's."""
        if binning == "equal_mass":
            self.refuse_histograms()
            return self.once((scope, binning, bins), lambda: self._mass_table(scope, bins))
        self._check_histograms(scope)
        return self.once((scope, binning, bins), lambda: self._width_table(scope, bins))

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` returns, made once a view and shared by the metrics that ask for the same."""
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def class_tables(self) -> list[Table]:
        """One table a class, one class against the rest.

        Raises
        ------
        NotAnswerable
            Not every class's cells are kept.
        """
        return [self.table_of(f"class:{k}") for k in range(self.spec.n_classes)]

    def _mass_table(self, scope: str, bins: int) -> Table:
        """Equal-mass bins of a scope: mass under the policy, cuts at cell limits, ties together."""
        cells = self.cells_of(scope)
        cells = cells.kept(cells.weight > 0)
        if self._splits_ties:
            group = rank_groups(len(cells), bins)
        else:
            group = equal_mass_groups(cells.weight, bins)
        grouped = cells.grouped(group, int(group[-1]) + 1 if len(group) else 0)
        edges = (
            np.concatenate([[0.0], grouped.upper[:-1], [1.0]])
            if len(group)
            else np.array([0.0, 1.0])
        )
        return self._discarding(grouped, edges)

    def cells_of(self, scope: str) -> Cells:
        """Cells of a scope under the policy, filled ones only.

        Raises
        ------
        NotAnswerable
            The class's cells are not kept.
        """
        return self.once(("cells", scope), lambda: self._cells_of(scope))

    def _cells_of(self, scope: str) -> Cells:
        if self.filling is not None:
            if self._splits_ties:
                return self.row_cells(scope)
            return cells_of_scores(self.filling, self.policy, scope)
        places, counts, sums = self._kept_cells(scope)
        grid = self.spec.grid_for(scope)
        return under_policy(self.policy, grid.lower[places], grid.upper[places], counts, sums)

    def scores(self) -> dict[str, float]:
        """The policy's column of the score sums: samples, weight, brier, nll and so on.

        Raises
        ------
        NotAnswerable
            The window holds plain histograms.
        """
        self.refuse_histograms()
        block = self.pane["scores"].blocks["scores"]
        counts = dict(zip(score_sums.COUNTS, block.counts[:, self.policy].tolist(), strict=True))
        return counts | dict(zip(score_sums.SUMS, block.sums[:, self.policy].tolist(), strict=True))

    def refuse_histograms(self) -> None:
        """Raise where the window holds plain histograms, which carry binned tables and nothing else."""
        if not self.pane.keeps("histograms") or self.pane["histograms"].is_empty:
            return
        held = max(self.pane.histograms.weight(key) for key in self.pane.histograms.blocks)
        detail = "the window holds plain histograms, which feed equal-width bins of their own kind, policy and edges only"
        raise NotAnswerable("not_in_histogram", detail, held)

    def refuse_partial(self, n_held: int, name: str) -> None:
        """Raise where an accumulator holds fewer predictions than were labelled: some came before it was kept."""
        missing = self.counts["n_labelled"] - n_held
        if missing:
            raise NotAnswerable(
                "not_kept", f"{name} of {missing} predictions of the window was not kept", missing
            )

    def histogram_keys(self, scope: str) -> tuple[str, ...]:
        """Keys of the plain histograms that speak of a scope under this question: of all labels, those of every class."""
        kind, _, name = scope.partition(":")
        end = f"{self.question.raters}|{self.question.edges}"
        if kind == "all":
            return tuple(f"class|{k}|{end}" for k in range(self.spec.n_classes))
        return (f"{kind}|{name}|{end}",)

    def _held_keys(self, scope: str) -> tuple[str, ...]:
        """Those keys, where the window holds histograms of every one; else none."""
        if not self.pane.keeps("histograms"):
            return ()
        keys = self.histogram_keys(scope)
        return keys if all(key in self.pane.histograms.blocks for key in keys) else ()

    def histogram_counts(self, scope: str) -> dict[str, Any]:
        """Numbers of predictions and ratings with the plain histograms that a scope's table took in; empty without.

        `n` is None where the clients did not say how many predictions lie behind their ratings.
        """
        keys = self._held_keys(scope)
        if not keys:
            return {}
        held = self.pane.histograms
        # Every class counts every rating once.
        weight, predictions = held.weight(keys[0]), held.n_predictions(keys[0])
        pooled = self.question.raters == "pooled"
        return {
            "n": None if predictions is None else self.counts["n_labelled"] + predictions,
            "n_ratings": self.counts["n_ratings"] + round(weight)
            if pooled
            else self.counts["n_ratings"],
            "weight_in_histograms": weight,
        }

    def histogram_share(self) -> float:
        """Share of the asked table's weight that came as plain histograms."""
        held = self.pane.histograms.weight(self.histogram_keys(self.scope)[0])
        rest = (
            self.counts["n_ratings"]
            if self.question.raters == "pooled"
            else self.counts["n_labelled"]
        )
        return held / (held + rest) if held else 0.0

    def _check_histograms(self, scope: str) -> None:
        """Raise where some histograms of the window hold predictions that the asked key does not."""
        if not self.pane.keeps("histograms") or self.pane["histograms"].is_empty:
            return
        held = self.pane.histograms
        keys = self._held_keys(scope)
        if not keys:
            self.refuse_histograms()
        for key, other in product(keys, held.blocks):
            missing = held.uncovered(key, other)
            if missing:
                detail = f"histograms of {other.replace('|', ' ')} hold predictions that those of {key.replace('|', ' ')} do not"
                raise NotAnswerable("not_in_histogram", detail, missing)

    def _width_table(self, scope: str, bins: int) -> Table:
        edges = self.question.edges
        grid = self.spec.grid_for(scope)
        if self.filling is None and bins not in grid.exact_bins:
            raise NotAnswerable(
                "bins_not_exact", f"the grid of {scope} cannot give {bins} bins exactly"
            )
        if self.filling is not None:
            cells = self.cells_of(scope)
            grouped = cells.grouped(equal_width_bin(cells.lower, bins, edges), bins)
        else:
            places = self._kept_cells(scope)[0]
            grouped = self.cells_of(scope).grouped(grid.bins(bins, edges)[places], bins)
        for key in self._held_keys(scope):
            grouped = with_histogram(grouped, self.pane.histograms.table(key), bins)
        return self._discarding(grouped, np.arange(bins + 1) / bins)

    def _discarding(self, cells: Cells, edges: Floats) -> Table:
        """A table without the bins below `min_count`: samples, or mass where predictions carry weights."""
        least = self.question.min_count
        if not least:
            return Table(cells, edges, 0.0)
        size = cells.weight if self.weighted else cells.count.astype(np.float64)
        few = (size < least) & (cells.weight > 0)
        discarded = float(cells.weight[few].sum())
        emptied = Cells(
            *(np.where(few, 0, getattr(cells, name)) if name not in ("lower", "upper") else getattr(cells, name)
              for name in Cells.__dataclass_fields__)
        )  # fmt: skip
        return Table(emptied, edges, discarded)

    def _kept_cells(self, scope: str) -> tuple[Ints, Ints, Floats]:
        """Places on the scope's grid, counts and sums of the filled cells."""
        return self.once(("kept", scope), lambda: self._read_kept_cells(scope))

    def _read_kept_cells(self, scope: str) -> tuple[Ints, Ints, Floats]:
        kind, _, name = scope.partition(":")
        if kind in ("top_label", "positive"):
            return self.pane[kind].blocks["cells"].filled()
        if kind == "class":
            return self._class_cells(int(name))
        if not self.spec.keeps_all_classes:
            return self.pane["all_labels"].blocks["cells"].filled()
        places, counts, sums = self.once("classes", self.pane["classes"].blocks["cells"].filled)
        width = self.spec.class_grid.n_positions
        unique, index = np.unique(places % width, return_inverse=True)
        merged_counts = np.stack([np.bincount(index, c, len(unique)) for c in counts]).astype(
            np.int64
        )
        return unique, merged_counts, np.stack([np.bincount(index, s, len(unique)) for s in sums])

    def _class_cells(self, klass: int) -> tuple[Ints, Ints, Floats]:
        if klass not in self.spec.kept_classes:
            listed = "the first 64 classes are kept by themselves only where a model has no more; list others when it is made"
            raise NotAnswerable("class_not_kept", listed)
        width = self.spec.class_grid.n_positions
        start = self.spec.kept_classes.index(klass) * width
        places, counts, sums = self.once("classes", self.pane["classes"].blocks["cells"].filled)
        first, last = np.searchsorted(places, [start, start + width])
        return places[first:last] - start, counts[:, first:last], sums[:, first:last]

    def rows(self, scope: str) -> Cells:
        """One cell for each labelled raw row, in the rows' order; for `all`, class after class.

        Raises
        ------
        NotAnswerable
            There are no raw rows.
        """
        filling = self.filling
        if filling is None:
            raise NotAnswerable("needs_rows", "the kept state holds cells, no rows")
        return self.once(("rows", scope), lambda: cells_of_rows(filling, self.policy, scope))

    def row_cells(self, scope: str) -> Cells:
        """One cell for each labelled raw row, in order of score; equal scores stay in the rows' order.

        Raises
        ------
        NotAnswerable
            There are no raw rows.
        """
        rows = self.rows(scope)
        return rows.kept(np.argsort(rows.lower, kind="stable"))
