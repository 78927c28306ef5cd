"""Interface of a recalibration method: its options, fit, effect on scores, reasons without a fit, and digest of the result."""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.calibrators.labelled_rows import LabelledRows
from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells
from calibrant.core.documents import Extra, Parameters
from calibrant.core.view import View

# Scopes of a map of one score; `full` is that of each class against the rest.
ONE_SCORE = ("positive", "class", "top_label", "full")
REASONS = {
    "no_labels": "no labelled prediction has a weight above 0",
    "one_class": "all ratings agree, so there is nothing to fit against",
    "constant_scores": "all scores are equal, so a slope is undefined",
    "separable": "a threshold on the score separates the outcomes, so the best slope is infinite and the best temperature 0",
    "decreasing": "the outcome decreases with the score; bins of a decreasing map would reorder predictions",
    "not_in_histogram": "the window contains plain histograms, which lack the data that this map needs",
    "flat": "the loss does not depend on the temperature",
    "all_zero_probability": "every rating is of a class with probability 0",
    "not_converged": "the fit did not converge",
    "few_rows": "too few independent units per free parameter",
    "too_many_classes": "the map would have more than 600 parameters",
    "at_bound": "a temperature is at the end of its range",
    "beyond_grid": "the best temperature is outside [1/32, 32], for which the state stores the losses: divide the logits",
    "unsettled": "the data do not determine a temperature",
    "unrelated": "the labels look unrelated to the probabilities",
    "inverse": "the labels are inversely related to the probabilities",
    "not_kept": "the panes store no sample of complete rows",
    "class_not_kept": "the panes do not store the cells of every class",
    "many_classes": "each of more than 1000 classes would need a map",
}


@dataclass(frozen=True)
class Options:
    """Options of a fit in addition to the query.

    Parameters
    ----------
    bins, binning : for maps with bins: "equal_width" or "equal_mass"
    centred : isotonic only: one point per block, at its mean score, so that distinct scores stay distinct inside
    regularisation : maps with parameters per class: factor of the mean square of their deviations from the common temperature;
        0: chosen by the data
    temperature : to which these maps shrink. Default: fitted to the rows.
    knots : spline only: number of equidistant knots of the quantile
    shrunk : spline only: whether the correction is multiplied by the factor of least estimated error; the publication does not
    """

    bins: int = 15
    binning: str = "equal_width"
    centred: bool = False
    regularisation: float = 0.0
    temperature: float | None = None
    knots: int = 6
    shrunk: bool = True


@dataclass
class FitResult:
    """Parameters, or None with a `reason` of `REASONS`; `details` go into the result unchanged."""

    parameters: Parameters | None
    reason: str | None = None
    details: Extra = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class MapMethod:
    """One recalibration method.

    Parameters
    ----------
    slug, title, source : name in the API, name for people, publication
    input : input of the formula: "logit", "probability" or "probabilities"
    objective : the loss that the fit minimises
    scopes : which probabilities it can map
    solve : cells to parameters
    at : parameters and scores (n,) to recalibrated scores (n,)
    options : names of `Options` that it reads
    solve_view : if the fit needs more than cells; `solve` then serves the held-out halves
    solve_rows : instead of `solve`, if the fit needs rows; with it `at_rows` suffices
    at_rows : parameters and log-probabilities (n, n_classes) to probabilities (n, n_classes)
    """

    slug: str
    title: str
    source: str
    input: str
    objective: str
    scopes: tuple[str, ...]
    solve: Callable[[Cells, Options], FitResult] | None = None
    at: Callable[[Mapping[str, Any], Floats], Floats] | None = None
    options: tuple[str, ...] = ()
    solve_view: Callable[[View, Options], FitResult] | None = None
    solve_rows: Callable[[LabelledRows, Options], FitResult] | None = None
    at_rows: Callable[[Mapping[str, Any], Floats], Floats] | None = None

    @property
    def is_of_scores(self) -> bool:
        """Whether it maps one score; all classes are then mapped one against the rest."""
        return self.at_rows is None

    def at_scores(self, parameters: Mapping[str, Any], score: Floats) -> Floats:
        """Return recalibrated scores (n,) of scores (n,) of one class; of class 1 of two if the map is one of rows."""
        if self.at is not None:
            return self.at(parameters, score)
        assert self.at_rows is not None
        with np.errstate(divide="ignore"):
            logits = np.column_stack([np.log1p(-score), np.log(score)])
        return np.asarray(self.at_rows(parameters, logits)[:, 1])


def digest(result: Mapping[str, Any]) -> str:
    """Return 32 hexadecimal digits of what determines a map: method, scope, class, input and parameters."""
    content = {name: result[name] for name in ("method", "scope", "class", "input", "parameters")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=1)
def map_methods() -> dict[str, MapMethod]:
    """Return every map of the folder by its slug, sorted by slug."""
    maps: dict[str, MapMethod] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        found = importlib.import_module(f"calibrant.calibrators.{module.name}")
        maps |= {each.slug: each for each in getattr(found, "MAPS", ())}
    return dict(sorted(maps.items()))
