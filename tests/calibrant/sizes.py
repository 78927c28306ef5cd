"""How large a packed pane becomes: fill many predictions in process and measure.

    python -m tests.calibrant.sizes 1000000 10000000

prints the measured numbers of docs/state.md; `bound` is its formula.
"""

from __future__ import annotations

import sys

import numpy as np

from calibrant import Batch, Pane, PaneSpec

N_CLASSES = 10
STEP = 50_000
DATA = ("realistic", "uniform")
LABELS = ("one label", "1 to 5 raters", "1 to 5 raters, weights")


# Bytes that a filled cell takes before compression: of the fine grid, and of the equal-width tables beside it.
CELL_BYTES = dict(zip(LABELS, ((26, 18), (70, 46), (114, 70)), strict=True))
REST = 16 * 1024 + 84 * 72 + 84 * 20 + 60 * 104 + 4 * 64 * 48 + 4096
# Label uncertainty: its sums by replicate, the disagreement's cells and replicates, the concentrations.
VOTES = 128 * 90 + 122 * 150 + 64 * 15 * 30 + 21 * 58


def bound(spec: PaneSpec, labels: str, *, every_position: bool = False) -> int:
    """Most bytes of a packed pane of fewer than 2^31 ratings, by kind of labels.

    Scores on an edge of the grid have positions of their own, which continuous scores do not fill.
    """
    classes, top = spec.class_grid, spec.top_grid
    fine = len(spec.stored_classes) * (
        classes.n_positions if every_position else classes.cells + 2 * classes.refinement
    )
    fine += top.n_positions if every_position else top.cells + 2 * top.refinement
    if not spec.keeps_all_classes:
        fine += classes.n_positions if every_position else classes.cells + 2 * classes.refinement
    # Pairs of bins of a unit: each bin with itself where rows are units.
    tables = 65 * (60 + 15 * (spec.n_classes if spec.n_classes <= 20 else 0)) + 21 * 60
    per_cell, per_bin = CELL_BYTES[labels]
    ratings = VOTES + (
        spec.n_classes * (121 if every_position else 62) * 90 if spec.keeps_all_classes else 0
    )
    return fine * per_cell + tables * per_bin + ratings + REST


def probabilities(rng: np.random.Generator, data: str, n: int) -> np.ndarray:
    """Rows of a network that is mostly sure, or rows whose class of choice has a uniform probability."""
    if data == "realistic":
        z = rng.normal(size=(n, N_CLASSES)) * 1.5
        z[np.arange(n), rng.integers(0, N_CLASSES, n)] += rng.gamma(3.0, 3.0, n)
        rows = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))
    rows = rng.dirichlet(np.ones(N_CLASSES), n)
    chosen, p = rng.integers(0, N_CLASSES, n), rng.random(n)
    rows[np.arange(n), chosen] = 0.0
    rows *= ((1.0 - p) / rows.sum(axis=1))[:, None]
    rows[np.arange(n), chosen] = p
    return rows


def filled(pane: Pane, seed: int, n: int, data: str, labels: str) -> Pane:
    """The pane with `n` more predictions."""
    rng = np.random.default_rng(seed)
    for start in range(0, n, STEP):
        rows = min(STEP, n - start)
        columns: dict[str, np.ndarray] = {"probabilities": probabilities(rng, data, rows)}
        if labels == "one label":
            columns["labels"] = rng.integers(0, N_CLASSES, rows)
        else:
            share = rng.dirichlet(np.full(N_CLASSES, 0.3), rows)
            columns["label_counts"] = rng.multinomial(rng.integers(1, 6, rows), share)
        if labels.endswith("weights"):
            columns["weights"] = rng.random(rows)
        pane.fill_batch(Batch.from_columns(columns).batch)
    return pane


def main(numbers: list[int]) -> None:
    for data in DATA:
        for labels in LABELS:
            pane, n, sizes = Pane(PaneSpec("multiclass", N_CLASSES)), 0, []
            for number in numbers:
                filled(pane, n, number - n, data, labels)
                n = number
                sizes.append(len(pane.pack()))
                parts = sorted(
                    ((len(part), name) for name, part in pane.parts().items()), reverse=True
                )[:4]
                print(data, labels, number, sizes[-1], parts, flush=True)


if __name__ == "__main__":
    main([int(number) for number in sys.argv[1:]])
