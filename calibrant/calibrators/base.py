"""What a calibration map is: how it is solved from scores in order, what it does to a score, what it says of itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.rows import LabelledRows
from calibrant.core.cells import Cells
from calibrant.core.view import View

Floats = NDArray[np.float64]
CLIP = 1e-12
REASONS = {
    "no_labels": "no labelled prediction carries weight here",
    "one_class": "every rating agrees, so there is nothing to fit against",
    "constant_scores": "every score is the same, so a slope means nothing",
    "separable": "some score parts the outcomes without overlap, so the best slope is infinite and the best temperature 0",
    "decreasing": "the outcome falls as the score rises; bins of a falling map would reorder predictions",
    "not_in_histogram": "the window holds plain histograms, which do not carry what this map needs",
    "flat": "the loss does not depend on the temperature",
    "all_zero_probability": "every rating is of a class that was given probability 0",
    "not_converged": "the fit did not come to rest",
    "few_rows": "fewer than two independent units a free parameter",
    "missing_class": "a class has no rating, so its parameters have no finite best value",
    "not_kept": "the panes keep no sample of whole rows",
}


@dataclass(frozen=True)
class Options:
    """What a fit may be told beside the question.

    Parameters
    ----------
    bins, binning : of the maps that bin: "equal_width" or "equal_mass"
    centred : isotonic only: one point a block, at its mean score, so that distinct scores stay distinct inside
    regularisation : dirichlet only: factor of the mean of squares off the diagonal, and of that of intercepts
    """

    bins: int = 15
    binning: str = "equal_width"
    centred: bool = False
    regularisation: float = 1e-2


@dataclass
class Solved:
    """Parameters, or None with a `reason` of `REASONS`; `details` go into the answer as they are."""

    parameters: dict[str, Any] | None
    reason: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class MapMethod:
    """One method of recalibration.

    Parameters
    ----------
    slug, title, source : name in the API, name for people, where it comes from
    input : what the formula takes: "logit", "probability" or "probabilities"
    objective : the loss that the fit minimises
    scopes : which probabilities it can map
    needs : accumulators beside that of the scope's cells
    solve : cells to parameters
    at : parameters and scores (n,) to recalibrated scores (n,)
    options : names of `Options` that it reads
    solve_view : where the fit needs more than cells; `solve` then serves the held-out halves
    solve_rows : in place of `solve`, where the fit needs rows; with it `at_rows` suffices
    at_rows : parameters and log-probabilities (n, n_classes) to probabilities (n, n_classes)
    """

    slug: str
    title: str
    source: str
    input: str
    objective: str
    scopes: tuple[str, ...]
    solve: Callable[[Cells, Options], Solved] | None = None
    at: Callable[[Mapping[str, Any], Floats], Floats] | None = None
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    solve_view: Callable[[View, Options], Solved] | None = None
    solve_rows: Callable[[LabelledRows, Options], Solved] | None = None
    at_rows: Callable[[Mapping[str, Any], Floats], Floats] | None = None

    def at_scores(self, parameters: Mapping[str, Any], score: Floats) -> Floats:
        """Recalibrated scores (n,) of scores (n,) of one class; of class 1 of two where the map is one of rows."""
        if self.at is not None:
            return self.at(parameters, score)
        assert self.at_rows is not None
        with np.errstate(divide="ignore"):
            logits = np.column_stack([np.log1p(-score), np.log(score)])
        return np.asarray(self.at_rows(parameters, logits)[:, 1])


def log_odds(score: Floats, clip: float = CLIP) -> Floats:
    """ln p - ln(1 - p) of scores held within [clip, 1 - clip]."""
    held = np.clip(score, clip, 1.0 - clip)
    return np.asarray(np.log(held) - np.log1p(-held))


def logistic(value: Floats) -> Floats:
    """1 / (1 + exp(-value)), exact in both tails."""
    small = np.exp(-np.abs(value))
    return np.asarray(np.where(value >= 0, 1.0, small) / (1.0 + small))


def why_not(cells: Cells) -> str | None:
    """The reason why no curve can be fitted to these cells; None where one can."""
    weight, correct = float(cells.weight.sum()), float(cells.correct.sum())
    if not weight > 0.0:
        return "no_labels"
    if correct <= 1e-12 * weight or correct >= weight * (1.0 - 1e-12):
        return "one_class"
    return None


def digest(answer: Mapping[str, Any]) -> str:
    """Thirty-two hexadecimal digits of what determines a map: method, scope, class, input and parameters."""
    content = {name: answer[name] for name in ("method", "scope", "class", "input", "parameters")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
