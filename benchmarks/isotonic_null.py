"""`python -m benchmarks.isotonic_null`: the constants of the null reference of CORP, and the reference against drawn labels; not a timing.

Gains of isotonic recalibration of normal noise on equal steps, in rows of two lengths: what they differ by belongs to the cells, the rest to
the ends. `calibrant/inference/isotonic_null.py` has the constants, smoothed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from calibrant.core.cells import Cells
from calibrant.inference.isotonic_null import isotonic_null
from calibrant.inference.null_reference import drawn_correct, quantiles_of
from calibrant.metrics.corp import _lost

Floats = NDArray[np.float64]
STEPS = (0.01, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 0.354, 0.5, 0.707, 1.0, 1.414, 2.0, 2.83, 4.0, 8.0)
_TOGETHER = 1 << 20


def cumulants(step: float, n: int, draws: int, rng: np.random.Generator) -> Floats:
    """Return mean, variance and third cumulant of the gain of n cells of weight and variance one."""
    score = step * np.arange(n, dtype=np.float64)
    found = []
    for some in np.array_split(np.arange(draws), -(-draws * n // _TOGETHER)):
        rate = score + rng.standard_normal((len(some), n))
        found.append(n * _lost(np.ones(n), rate, score, "brier"))
    gain = np.concatenate(found)
    rest = gain - gain.mean()
    return np.array([gain.mean(), (rest**2).mean(), (rest**3).mean()])


def constants(draws: int) -> Table:
    """Return the table of constants by step."""
    names = ("mean", "variance", "third", "mean of an end", "variance", "third")
    table = Table("step", *names, title=f"Constants, {draws:,} draws")
    rng = np.random.default_rng(1)
    for step in STEPS:
        local = min(1.0, step ** (2.0 / 3.0))
        n = max(24, int(16.0 / local))
        short, long = cumulants(step, n, draws, rng), cumulants(step, 3 * n, draws, rng)
        cell = (long - short) / (2 * n)
        found = [*(cell / local), *((short - n * cell) / 2.0)]
        table.add_row(f"{step:.4f}", *(f"{value:.3f}" for value in found))
    return table


def scores(n: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Return scores of several distributions."""
    return {
        "uniform": rng.random(n),
        "top of ten classes": rng.dirichlet(np.full(10, 0.3), n).max(axis=1),
        "middle": 0.3 + 0.4 * rng.random(n),
        "confident": 1.0 - rng.beta(0.3, 4.0, n),
        "two decimals": np.round(np.clip(rng.random(n), 0.01, 0.99), 2),
    }


def cells_of(score: Floats, unit_size: int = 1, weights: Floats | None = None) -> Cells:
    """Return the cells of a calibrated model's scores on a grid, with units of so many predictions with one label."""
    place = np.unique(np.minimum((score * 3600).astype(np.int64), 3599), return_inverse=True)[1]
    given = np.ones(len(score)) if weights is None else weights
    count = np.bincount(place).astype(np.int64)
    weight = np.bincount(place, given).astype(np.float64)
    confidence = np.bincount(place, given * score).astype(np.float64)
    mean = confidence / weight
    variance = np.asarray(
        np.bincount(place, given**2 * score * (1.0 - score)) * unit_size, np.float64
    )
    squared = np.bincount(place, given**2).astype(np.float64)
    return Cells(
        mean,
        mean,
        count,
        count,
        weight,
        confidence,
        confidence,
        confidence,
        squared,
        variance,
    )


def compared(cells: Cells, draws: int) -> tuple[float, float, float] | None:
    """Return mean and 95 % quantile over those of draws, and the relative error of 2,000 draws; None where the gain is drawn."""
    closed = isotonic_null(cells)
    if closed is None:
        return None
    found, score = [], cells.mean
    n_parts = max(1, draws * len(cells) // _TOGETHER)
    for seed in range(n_parts):
        rate = drawn_correct(cells, draws // n_parts, seed) / cells.weight
        found.append(_lost(cells.weight, np.clip(rate, 0.0, 1.0), score, "brier"))
    drawn = quantiles_of(np.concatenate(found))
    error = float(drawn.q95_error or 0.0) * (draws / 2000.0) ** 0.5 / drawn.q95
    return closed.mean / drawn.mean, closed.q95 / drawn.q95, error


def comparisons(draws: int) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield one row for each setting."""
    rng = np.random.default_rng(2)
    for n in (1000, 5000, 48_000):
        for name, score in scores(n, rng).items():
            yield f"{name}, {n:,}", *_shown(compared(cells_of(score), draws))
    score = rng.random(48_000)
    weighted = cells_of(score, weights=rng.lognormal(0.0, 1.0, len(score)))
    yield "uniform, 48,000, uneven weights", *_shown(compared(weighted, draws))
    for size in (2, 5):
        yield f"uniform, 48,000, units of {size}", *_shown(compared(cells_of(score, size), draws))


def _shown(found: tuple[float, float, float] | None) -> tuple[str, str, str, str]:
    if found is None:
        return "drawn", "", "", ""
    mean, q95, error = found
    return f"{mean:.4f}", f"{q95:.4f}", f"{error:.4f}", f"{(q95 - 1.0) / error:.1f}"


def main(draws: int) -> None:
    """Print the constants and the comparison."""
    console = Console(width=110)
    console.print(constants(draws))
    table = Table("scores", "mean / drawn", "q95 / drawn", "error of 2,000 draws", "errors")
    for row in comparisons(draws):
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=20_000)
    main(parser.parse_args().draws)
