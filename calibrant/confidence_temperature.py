"""Losses over temperatures: from the confidence histogram of a model of two classes, and from raw rows of any.

A histogram of class 1's probability says everything about a scalar temperature of two classes: softmax(z / T) is
the sigmoid of logit(p) / T. With one temperature a class it does not, since softmax forgets what is common to both
logits; the surface from a histogram takes log-probabilities for logits, as networks that end in a log-softmax have
them. On the diagonal the two agree. From rows with logits both are exact.

Source
------
Kock, Thielke et al., section 2.3 and appendix B; where they descend along the gradient, one-dimensional problems
are solved here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from calibrant.batch import Batch
from calibrant.confidence_histogram import ConfidenceHistogram
from calibrant.confidence_measures import BINS, DENOMINATORS, LEAST
from calibrant.errors import CalibrationInputError
from calibrant.filling import Filling
from calibrant.policies import policy_index

TEMPERATURES = np.arange(100, 2001) / 200.0
SURFACE_TEMPERATURES = np.arange(2, 41) / 4.0
PLATEAU = 1e-3
OBJECTIVES = ("nll", "brier", "ece")
MOST_TEMPERATURES = 10_000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EceOptions:
    """How the top label's calibration error is taken: coarse bins [lo, hi), smallest bin, what divides."""

    bins: int = BINS
    least: float = LEAST
    denominator: str = "kept"

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise CalibrationInputError.at("/bins", "range", "bins is at least 1")
        if self.denominator not in DENOMINATORS:
            raise CalibrationInputError.at(
                "/denominator", "one_of", f"denominator is one of {', '.join(DENOMINATORS)}"
            )

    def error(self, confidence: Floats, mass: Floats, hits: Floats) -> float:
        """Calibration error of samples with masses; nan where no bin is kept."""
        place = np.minimum((confidence * self.bins).astype(np.int64), self.bins - 1)
        total, expected, found = (
            np.bincount(place, v, self.bins) for v in (mass, mass * confidence, hits)
        )
        kept = (total >= self.least) & (total > 0)
        under = total.sum() if self.denominator == "full" else total[kept].sum()
        return float(np.abs(found - expected)[kept].sum() / under) if kept.any() else float("nan")


@dataclass(frozen=True)
class Losses:
    """NLL (nats, of ratings whose probability is not 0), Brier (sum over classes) and ECE; nan without mass."""

    nll: float
    brier: float
    ece: float


class HistogramLosses:
    """Losses of a model of two classes from the label histogram of class 1.

    Raises
    ------
    CalibrationInputError
        More than two classes: a histogram of single probabilities does not hold what a temperature needs.
    """

    def __init__(self, histogram: ConfidenceHistogram, options: EceOptions) -> None:
        if histogram.n_classes != 2:
            detail = "temperatures come from histograms of two classes only; of more, from rows or a pane's profile"
            raise CalibrationInputError.at("/classes", "n_classes", detail)
        filled = np.flatnonzero(histogram.label[1].sum(axis=0))
        self.wrong, self.right = histogram.label[1][:, filled]
        centres = histogram.centres[filled]
        self.log_p = np.stack([np.log1p(-centres), np.log(centres)])
        self.mass, self.options = self.wrong + self.right, options

    def at(self, temperatures: Floats) -> Losses:
        """Losses at one temperature a class, float64 (2,)."""
        return Losses(*(self.loss(objective, temperatures) for objective in OBJECTIVES))

    def loss(self, objective: str, temperatures: Floats) -> float:
        """One of the losses at one temperature a class."""
        total = float(self.mass.sum())
        if not total:
            return float("nan")
        margin = self.log_p[1] / temperatures[1] - self.log_p[0] / temperatures[0]
        if objective == "nll":
            loss = _dot(self.right, np.logaddexp(0.0, -margin)) + _dot(
                self.wrong, np.logaddexp(0.0, margin)
            )
            return loss / total
        score = _sigmoid(margin)
        if objective == "brier":
            return 2.0 * (_dot(self.right, (1.0 - score) ** 2) + _dot(self.wrong, score**2)) / total
        confidence, hits = (
            np.maximum(score, 1.0 - score),
            np.where(margin > 0, self.right, self.wrong),
        )
        return self.options.error(confidence, self.mass, hits)

    def slope(self, objective: str, beta: float) -> float:
        """Derivative of NLL or Brier by the inverse temperature."""
        margin = self.log_p[1] - self.log_p[0]
        score = _sigmoid(beta * margin)
        away = self.mass * score - self.right
        if objective == "nll":
            return _dot(away, margin)
        bend = 4.0 * score * (1.0 - score) * margin
        return _dot(self.right, (score - 1.0) * bend) + _dot(self.wrong, score * bend)


class RowLosses:
    """Losses of raw rows, any number of classes; probabilities count as log-probabilities.

    Parameters
    ----------
    batch : Batch
    options : EceOptions
    raters : label policy
    """

    def __init__(self, batch: Batch, options: EceOptions, raters: str = "pooled") -> None:
        policy, filling = policy_index(raters), Filling(batch)
        self.options, self.n_classes, self.n = options, batch.n_classes, filling.n
        hits = filling.hits
        self.mass = filling.weights * (filling.n_ratings if policy == 0 else 1)
        self.right = np.zeros((filling.n, batch.n_classes))
        self.right[hits.row, hits.klass] = filling.policy_weights[policy]
        with np.errstate(divide="ignore"):
            self.zed = filling.batch.scores if batch.is_logits else np.log(filling.batch.scores)

    def at(self, temperatures: Floats) -> Losses:
        """Losses at one temperature a class, float64 (n_classes,)."""
        total = float(self.mass.sum())
        if not total:
            return Losses(np.nan, np.nan, np.nan)
        zed = self.zed / temperatures
        log_p = zed - zed.max(axis=1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
        p = np.exp(log_p)
        finite = np.isfinite(log_p)
        weight = float(self.right[finite].sum())
        nll = (
            -float((self.right * np.where(finite, log_p, 0.0)).sum()) / weight if weight else np.nan
        )
        squares = _dot(self.mass, (p**2).sum(axis=1))
        brier = (squares - 2.0 * float((self.right * p).sum()) + float(self.right.sum())) / total
        top = p.argmax(axis=1)
        rows = np.arange(self.n)
        return Losses(
            nll, brier, self.options.error(p[rows, top], self.mass, self.right[rows, top])
        )


def loss_curve(
    losses: HistogramLosses | RowLosses, temperatures: Floats = TEMPERATURES
) -> dict[str, list[float | None]]:
    """NLL, Brier and ECE over scalar temperatures; lists, None where there is no number.

    Raises
    ------
    CalibrationInputError
        Temperatures that are not positive, none, or more than 10000.
    """
    n_classes = losses.n_classes if isinstance(losses, RowLosses) else 2
    found = [losses.at(np.full(n_classes, t)) for t in _checked(temperatures)]
    curve: dict[str, list[float | None]] = {
        "temperature": list(np.asarray(temperatures, np.float64).tolist())
    }
    return curve | {name: [_number(getattr(one, name)) for one in found] for name in OBJECTIVES}


def loss_surface(
    losses: HistogramLosses | RowLosses,
    background: Floats = SURFACE_TEMPERATURES,
    foreground: Floats = SURFACE_TEMPERATURES,
) -> dict[str, Any]:
    """NLL, Brier and ECE over one temperature for class 0 and one for class 1; rows of two classes.

    Returns
    -------
    dict with `background` (a,), `foreground` (b,) and by objective a list (b, a), as the figures have them:
    background along.

    Raises
    ------
    CalibrationInputError
        Another number of classes, or temperatures as in `loss_curve`.
    """
    if isinstance(losses, RowLosses) and losses.n_classes != 2:
        raise CalibrationInputError.at(
            "/classes", "n_classes", "a surface is of two temperatures, so of two classes"
        )
    along, up = _checked(background), _checked(foreground)
    found = [[losses.at(np.array([t0, t1])) for t0 in along] for t1 in up]
    surface: dict[str, Any] = {"background": along.tolist(), "foreground": up.tolist()}
    return surface | {
        name: [[_number(getattr(one, name)) for one in row] for row in found] for name in OBJECTIVES
    }


def fit_histogram_temperature(
    histogram: ConfidenceHistogram,
    objective: str = "nll",
    options: EceOptions | None = None,
    low: float = 0.5,
    high: float = 10.0,
) -> dict[str, Any]:
    """Scalar temperature of a model of two classes from its histogram.

    NLL is convex in 1 / T and solved; Brier is solved around the best point of the grid; ECE is the best point of
    the grid in steps of .005, with the temperatures around it that are within .001 of it.

    Parameters
    ----------
    histogram : ConfidenceHistogram of two classes
    objective : "nll", "brier" or "ece"
    low, high : range of T

    Returns
    -------
    dict with temperature, objective, at_bound, plateau (ECE only), before and after; temperature None and a
    `reason` without data. All is of the fine bins' centres.

    Raises
    ------
    CalibrationInputError
        An option outside its range, or more than two classes.
    """
    if objective not in OBJECTIVES:
        raise CalibrationInputError.at(
            "/objective", "one_of", f"objective is one of {', '.join(OBJECTIVES)}"
        )
    if not 0.0 < low < high:
        raise CalibrationInputError.at("/low", "range", "temperatures lie in 0 < low < high")
    losses = HistogramLosses(histogram, options or EceOptions())
    answer: dict[str, Any] = {
        "objective": objective,
        "range": [low, high],
        "temperature": None,
        "at_bound": False,
    }
    before = losses.at(np.ones(2))
    if not np.isfinite(getattr(before, objective)):
        return answer | {"before": None, "after": None, "reason": "no_data"}
    if objective == "nll":
        found = {"temperature": _nll_temperature(losses, low, high)}
    else:
        found = _on_grid(losses, objective, low, high)
    at = float(found["temperature"])
    after = losses.at(np.full(2, at))
    return (
        answer
        | found
        | {"at_bound": at in (low, high), "before": _named(before), "after": _named(after)}
    )


def fold_temperature(weights: Floats, bias: Floats, temperature: float) -> tuple[Floats, Floats]:
    """The last layer that gives logits / T: weights and bias divided by T, any shape.

    Raises
    ------
    CalibrationInputError
        T is not a positive number.

    Examples
    --------
    >>> fold_temperature(np.array([[2.0]]), np.array([1.0]), 2.0)
    (array([[1.]]), array([0.5]))
    """
    if not (np.isfinite(temperature) and temperature > 0):
        raise CalibrationInputError.at(
            "/temperature", "range", "a temperature is a positive number"
        )
    return weights / temperature, bias / temperature


def _nll_temperature(losses: HistogramLosses, low: float, high: float) -> float:
    if losses.slope("nll", 1.0 / low) <= 0.0:
        return low
    if losses.slope("nll", 1.0 / high) >= 0.0:
        return high
    return 1.0 / float(
        brentq(lambda beta: losses.slope("nll", beta), 1.0 / high, 1.0 / low, xtol=1e-14)
    )


def _on_grid(losses: HistogramLosses, objective: str, low: float, high: float) -> dict[str, Any]:
    inner = np.arange(np.floor(low * 200.0) + 1, np.ceil(high * 200.0)) / 200.0
    grid = np.concatenate([[low], inner, [high]])
    values = np.array([losses.loss(objective, np.full(2, t)) for t in grid])
    best = int(np.nanargmin(values))
    if objective == "brier":
        return {"temperature": _brier_temperature(losses, grid, best)}
    worse = np.flatnonzero(~(values <= values[best] + PLATEAU))
    first = worse[worse < best].max(initial=-1) + 1
    last = worse[worse > best].min(initial=len(grid)) - 1
    return {
        "temperature": float(grid[best]),
        "plateau": [float(grid[first]), float(grid[last])],
        "plateau_tolerance": PLATEAU,
    }


def _brier_temperature(losses: HistogramLosses, grid: Floats, best: int) -> float:
    """The root of the slope beside the grid's best point; that point where the slope does not change its sign."""
    ends = 1.0 / grid[min(best + 1, len(grid) - 1)], 1.0 / grid[max(best - 1, 0)]
    if losses.slope("brier", ends[0]) < 0.0 < losses.slope("brier", ends[1]):
        return 1.0 / float(brentq(lambda beta: losses.slope("brier", beta), *ends, xtol=1e-14))
    return float(grid[best])


def _dot(one: Floats, other: Floats) -> float:
    """Not by BLAS, whose threads cost more than they give at these lengths."""
    return float((one * other).sum())


def _checked(temperatures: Floats) -> Floats:
    values = np.asarray(temperatures, np.float64)
    if (
        values.ndim != 1
        or not 1 <= len(values) <= MOST_TEMPERATURES
        or not (np.isfinite(values) & (values > 0)).all()
    ):
        detail = f"1 to {MOST_TEMPERATURES} positive temperatures"
        raise CalibrationInputError.at("/temperatures", "range", detail)
    return values


def _named(losses: Losses) -> dict[str, float | None]:
    return {name: _number(getattr(losses, name)) for name in OBJECTIVES}


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _sigmoid(x: Floats) -> Floats:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))
