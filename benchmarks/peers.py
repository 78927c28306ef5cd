"""CPU of calibrant and of related packages on the same arrays, in one run: `make bench-peers`.

    .venv-adapters/peers/bin/python -m benchmarks.peers [--rows 100000 1000000] [--classes 2 10]

Each line is a result. `rows`: calibrant from the arrays, with intervals and null references, which the others do not compute. `state`:
calibrant from a pane that was filled before, as the service computes it. The other columns are the CPU of a package, and in
brackets how many times that of `rows`. Values are printed, because definitions differ (docs/library.md). One thread each. SQL reads
tables in memory: of the score of the top class and whether it is the label, or of one column per class.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

import calibrant as cal
from benchmarks import peers_in_sql
from calibrant.calibrators.fitting import fit
from calibrant.calibrators.map_method import Options
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics

N_CLASSES, BINS = (2, 10, 100, 1_000), 15
# Larger tables are left out.
MAX_SCORES = 2 * 10**7
# A peer that takes longer for the smaller table is not run with the larger one.
SLOWEST_S = 20.0
Values = NDArray[Any]
Call = Callable[[], float | None]


@dataclass(frozen=True)
class Rows:
    """Predictions of an overconfident model and its pane."""

    logits: Values
    probabilities: Values
    labels: Values
    pane: cal.Pane

    @property
    def top(self) -> tuple[Values, Values]:
        """Score of the top class, and whether it is the label."""
        best = self.probabilities.argmax(axis=1)
        return self.probabilities[np.arange(len(best)), best], (best == self.labels).astype(float)


@dataclass(frozen=True)
class Line:
    """One result: calibrant's two ways to it, and the peers'."""

    name: str
    rows: Call
    state: Call
    peers: dict[str, Call] = field(default_factory=dict)


def draw(n: int, n_classes: int) -> Rows:
    """Draw rows whose true probabilities have the temperature 1.5."""
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.standard_normal((n, n_classes))
    true = softmax(logits / 1.5, axis=1).cumsum(axis=1)
    labels = (true < rng.random((n, 1))).sum(axis=1).clip(max=n_classes - 1)
    probabilities = softmax(logits, axis=1)
    return Rows(logits, probabilities, labels, cal.Pane.fill(logits=logits, labels=labels))


def lines(rows: Rows) -> list[Line]:
    """Return the results that are compared."""
    import calibration
    import netcal.binning
    import netcal.metrics
    import netcal.scaling
    import relplot
    import torch
    from mapie.metrics.calibration import expected_calibration_error
    from sklearn.calibration import _TemperatureScaling, calibration_curve
    from sklearn.isotonic import IsotonicRegression
    from torchmetrics.functional.classification import multiclass_calibration_error

    torch.set_num_threads(1)
    p, y, z = rows.probabilities, rows.labels, rows.logits
    score, outcome = rows.top
    tensors, top = (torch.tensor(p), torch.tensor(y)), {"score": score, "outcome": outcome}

    def of_state(slug: str) -> float | None:
        found = compute_metrics(View(rows.pane, PaneQuery(bins=BINS)), [slug])[slug]
        value: float | None = found["value"]
        return value

    def curve(strategy: str) -> float:
        true, predicted = calibration_curve(outcome, score, n_bins=BINS, strategy=strategy)
        return float(np.abs(true - predicted).mean())

    def temperature_of_netcal() -> float:
        fitted = netcal.scaling.TemperatureScaling(detection=False).fit(p, y)
        return 1.0 / float(np.ravel(fitted.temperature)[0])  # Theirs multiplies logits.

    def isotonic_of_netcal() -> float:
        fitted = netcal.binning.IsotonicRegression().fit(score, outcome)
        return float(fitted.transform(np.array([0.8]))[0])

    def isotonic_of_state() -> float:
        found = fit("isotonic", View(rows.pane, PaneQuery(scope="top_label")), Options())
        at = found["parameters"]
        return float(np.interp(0.8, at["x"], at["y"]))

    return [
        Line(
            "ECE, 15 equal-width bins",
            lambda: cal.ece(p, y, bins=BINS).value,
            partial(of_state, "ece"),
            {
                "netcal": lambda: netcal.metrics.ECE(BINS).measure(p, y),
                "torchmetrics": lambda: float(
                    multiclass_calibration_error(*tensors, p.shape[1], BINS)
                ),
                "scikit-learn": partial(curve, "uniform"),
                "uncertainty-calibration": lambda: calibration.get_ece(p, y, num_bins=BINS),
                "relplot": lambda: float(relplot.metrics.binnedECE(score, outcome, BINS)),
                "MAPIE": lambda: float(
                    expected_calibration_error(outcome, score, BINS, split_strategy="uniform")
                ),
                **peers_in_sql.calls(top, p, y, BINS),
            },
        ),
        Line(
            "class-wise error",
            lambda: cal.classwise_ece(p, y, bins=BINS).value,
            partial(of_state, "classwise_ece"),
            {
                "uncertainty-calibration": lambda: calibration.lower_bound_scaling_ce(
                    p, y, num_bins=BINS, mode="marginal"
                )
            },
        ),
        Line(
            "ECE, 15 equal-mass bins",
            lambda: cal.adaptive_ece(p, y, bins=BINS).value,
            partial(of_state, "adaptive_ece"),
            {
                "netcal": lambda: netcal.metrics.ECE(BINS, equal_intervals=False).measure(p, y),
                "scikit-learn": partial(curve, "quantile"),
                "uncertainty-calibration": lambda: calibration.get_ece_em(p, y, num_bins=BINS),
            },
        ),
        Line(
            "temperature",
            lambda: cal.fit_temperature(logits=z, labels=y).value,
            lambda: rows.pane.temperature().value,
            {
                "netcal": temperature_of_netcal,
                "scikit-learn": lambda: 1.0 / float(_TemperatureScaling().fit(z, y).beta_),
            },
        ),
        Line(
            "isotonic map of the top class, at 0.8",
            lambda: float(
                cal.fit_map(score, outcome.astype(int), method="isotonic")(np.array([0.8]))[0]
            ),
            isotonic_of_state,
            {
                "netcal": isotonic_of_netcal,
                "scikit-learn": lambda: float(
                    IsotonicRegression(out_of_bounds="clip").fit(score, outcome).predict([0.8])[0]
                ),
            },
        ),
        Line("kdeECE", lambda: cal.kde_ece(p, y).value, partial(of_state, "kde_ece")),
        Line(
            "smooth ECE",
            lambda: cal.smooth_ece(p, y).value,
            partial(of_state, "smooth_ece"),
            {"relplot": lambda: float(relplot.smECE(score, outcome))},
        ),
    ]


def timed(call: Call) -> tuple[float, float | None]:
    """Return CPU seconds, the least of two calls, and the value."""
    least = float("inf")
    for _ in range(2):
        start = time.process_time()
        value = call()
        least = min(least, time.process_time() - start)
        if least > SLOWEST_S:
            break
    return least, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--classes", type=int, nargs="+", default=N_CLASSES)
    given = parser.parse_args()
    for n_classes in given.classes:
        slow: set[tuple[str, str]] = set()
        for n in sorted(given.rows):
            if n * n_classes <= MAX_SCORES:
                compare(draw(n, n_classes), slow)


def compare(rows: Rows, slow: set[tuple[str, str]]) -> None:
    """Print every line of some rows; peers that are slow are noted, and not run again."""
    n, n_classes = rows.probabilities.shape
    print(f"\n{n:,} rows of {n_classes} classes: CPU in ms (times calibrant from rows), value")
    for line in lines(rows):
        own_s, value = timed(line.rows)
        state_s, of_state = timed(line.state)
        print(line.name)
        _print("calibrant, rows", own_s, None, value)
        _print("calibrant, state", state_s, own_s, of_state)
        for name, call in line.peers.items():
            if (line.name, name) in slow:
                print(f"  {name:28}{'not run: slow':>20}")
                continue
            try:
                seconds, found = timed(call)
            except (MemoryError, ValueError) as error:
                print(f"  {name:28}{type(error).__name__:>20}")
                continue
            if seconds > SLOWEST_S:
                slow.add((line.name, name))
            _print(name, seconds, own_s, found)


def _print(name: str, seconds: float, own_s: float | None, value: float | None) -> None:
    times = "" if own_s is None else f"{seconds / own_s:9.2f}×"
    print(f"  {name:28}{1e3 * seconds:10.1f}{times:>10}{_shown(value)}")


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:12.5f}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
