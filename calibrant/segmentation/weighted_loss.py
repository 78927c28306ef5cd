"""Training losses of posted cases: hL1-ACE, sL1-ACE, soft Dice, cross-entropy and their weighted sum, with gradients.

Every term is computed per case and averaged over cases, so that each image counts alike. Background is included and a
class without a rating in a case contributes 0 to the calibration terms, as in the published training code.

Source
------
Barfoot et al., Average Calibration Losses, hL1-ACE and sL1-ACE with weights 1 : 1 : 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats
from calibrant.core.batch_sums import BatchSums
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.logits import relative_logits
from calibrant.core.view import NoResultError, View
from calibrant.segmentation.case_bins import MEMBERSHIPS
from calibrant.segmentation.case_options import MEMBERSHIP
from calibrant.segmentation.case_tables import numbered
from calibrant.segmentation.training_loss import l1_ace_loss
from calibrant.segmentation.voxel_losses import cross_entropy_loss, dice_loss

# Of one response: about 60 MB of text.
MAX_GRADIENT_VALUES = 1_000_000
# Classes of all cases together, each computed in about 0.1 ms whatever it holds; in more than so many bins, in proportion to them.
MAX_CASE_CLASSES, BINS_AT_ONCE = 20_000, 1_000
VARIABLES = ("probabilities", "logits")
TERMS = ("hl1_ace", "sl1_ace", "dice", "cross_entropy")


@dataclass(frozen=True)
class LossWeights:
    """Factors of the terms of the weighted sum.

    Parameters
    ----------
    ace : of hL1-ACE or sL1-ACE, whichever the membership selects
    dice, cross_entropy : of the other two terms
    """

    ace: float = 1.0
    dice: float = 1.0
    cross_entropy: float = 1.0

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> LossWeights:
        """Read the weights of a query; absent ones are 1.

        Raises
        ------
        CalibrationInputError
            An unknown name, or a weight that is negative, not finite or no number.
        """
        known = [field.name for field in fields(cls)]
        for name, value in (given or {}).items():
            if name not in known:
                raise CalibrationInputError.at(
                    f"/loss_weights/{name[:60]}",
                    "unknown_field",
                    f"Received an unknown weight; expected one of {', '.join(known)}.",
                )
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise CalibrationInputError.at(
                    f"/loss_weights/{name}", "type", "Received another type; expected a number."
                )
            if not 0.0 <= value <= 1e6:
                raise CalibrationInputError.at(
                    f"/loss_weights/{name}",
                    "range",
                    f"Received {value}; expected a number in [0, 1000000].",
                )
        return cls(**{name: float(value) for name, value in (given or {}).items()})


def training_losses(
    view: View, weights: LossWeights | None = None, gradients: str | None = None
) -> Result:
    """Return the losses of the view's rows, as JSON-able values.

    Parameters
    ----------
    view : with raw rows and their cases; `bins`, `edges`, `raters` and the option `membership` of its query apply
    weights : of the sum. Default: 1 each.
    gradients : "probabilities" or "logits", by which the derivatives are added. Default: none.

    Returns
    -------
    dict with the four terms and `weighted_sum` (None with a `reason` if a rated class has probability 0), the options,
    `n_cases`, `cases` (terms of each), and with `gradients` those of `hl1_ace`, `sl1_ace` and `weighted_sum`: one
    list of class values per posted row, 0 for rows without a rating or a case.

    Raises
    ------
    NoResultError
        No raw rows (`needs_raw_rows`), or none of them names its case (`no_cases`).
    CalibrationInputError
        An option outside its range, more than a million values of gradients, or too many cases for so many classes and bins.
    """
    weights = weights or LossWeights()
    membership = _membership(view)
    if view.batch_sums is None:
        raise NoResultError("needs_raw_rows", "losses are of rows: post them to score them")
    if gradients is not None:
        _check_gradients(gradients, view.batch_sums.complete_batch.scores.size)
    images = _images(view.batch_sums, view.pane_query.raters, view.pane_query.bins)
    if not images:
        raise NoResultError("no_cases", "no labelled prediction names its case")
    terms = {name: np.empty(len(images)) for name in TERMS}
    slopes = {name: np.zeros(view.batch_sums.batch.scores.shape) for name in TERMS}
    for i, image in enumerate(images.values()):
        for name, (value, slope) in image.losses(view, gradients == "logits").items():
            terms[name][i] = value
            slopes[name][image.rows] = slope / len(images)
    factors = {
        "hl1_ace" if membership == "hard" else "sl1_ace": weights.ace,
        "dice": weights.dice,
        "cross_entropy": weights.cross_entropy,
    }
    total = sum(factor * terms[name] for name, factor in factors.items() if factor)
    values = {**terms, "weighted_sum": np.broadcast_to(total, len(images))}
    finite = bool(np.isfinite(terms["cross_entropy"]).all())
    result: Result = {
        **{name: _number(float(each.mean())) for name, each in values.items()},
        **({} if finite else {"reason": "zero_probability"}),
        "weights": asdict(weights),
        "membership": membership,
        "bins": view.pane_query.bins,
        "edges": view.pane_query.edges,
        "raters": view.pane_query.raters,
        "n_cases": len(images),
        "cases": [
            {"case": case, **{name: _number(float(each[i])) for name, each in values.items()}}
            for i, case in enumerate(images)
        ],
    }
    if gradients is None:
        return result
    slopes["weighted_sum"] = sum(
        (factor * slopes[name] for name, factor in factors.items() if factor),
        np.zeros(view.batch_sums.batch.scores.shape),
    )
    return result | {
        "gradients": {
            "by": gradients,
            **{name: _rows(slopes[name], view) for name in ("hl1_ace", "sl1_ace", "weighted_sum")},
        }
    }


@dataclass(frozen=True)
class _Image:
    """Rows of one case, with the shares of their ratings and the factors of their pixels."""

    rows: NDArray[np.int64]
    probabilities: Floats
    log_probabilities: Floats | None
    shares: Floats
    factors: Floats

    def losses(self, view: View, by_logits: bool) -> dict[str, tuple[float, Floats]]:
        """Return each term with its gradient."""
        pixels, bins = (self.probabilities, self.shares), view.pane_query.bins
        found = {
            "hl1_ace": l1_ace_loss(
                *pixels, bins, membership="hard", edges=view.pane_query.edges, weights=self.factors
            ),
            "sl1_ace": l1_ace_loss(*pixels, bins, membership="soft", weights=self.factors),
            "dice": dice_loss(*pixels, weights=self.factors),
        }
        entropy = cross_entropy_loss(
            *pixels, weights=self.factors, log_probabilities=self.log_probabilities
        )
        slopes = {
            name: self._by_logits(loss.gradient) if by_logits else loss.gradient
            for name, loss in found.items()
        }
        share = (self.factors / self.factors.sum())[:, None] if self.factors.any() else 0.0
        # Of the cross-entropy directly: by probabilities it may be infinite where by logits it is not.
        slopes["cross_entropy"] = (
            share * (self.probabilities * self.shares.sum(axis=1, keepdims=True) - self.shares)
            if by_logits
            else entropy.gradient
        )
        values = {name: loss.value for name, loss in found.items()}
        values["cross_entropy"] = entropy.value
        return {name: (values[name], slopes[name]) for name in TERMS}

    def _by_logits(self, gradient: Floats) -> Floats:
        mean = (gradient * self.probabilities).sum(axis=1, keepdims=True)
        return np.asarray(self.probabilities * (gradient - mean), np.float64)


def _images(batch_sums: BatchSums, raters: str, bins: int) -> dict[str, _Image]:
    batch = batch_sums.batch
    if batch.cases is None:
        return {}
    named = np.flatnonzero(np.array([case is not None for case in batch.cases], bool))
    if not len(named):
        return {}
    names, place = numbered(batch.cases[named])
    _check_cases(len(names), batch.n_classes, bins)
    shares, logs = _shares(batch_sums, raters), _log_probabilities(batch_sums)
    factors = batch_sums.weights * (batch_sums.n_ratings if raters == "pooled" else 1.0)
    found = {}
    order = named[np.argsort(place, kind="stable")]
    ends = np.cumsum(np.bincount(place, minlength=len(names)))
    for name, rows in zip(names, np.split(order, ends[:-1]), strict=True):
        found[name] = _Image(
            rows,
            batch.probabilities[rows],
            None if logs is None else logs[rows],
            shares[rows],
            factors[rows],
        )
    return found


def _shares(batch_sums: BatchSums, raters: str) -> Floats:
    batch = batch_sums.batch
    if raters in ("pooled", "mean"):
        return np.asarray(batch.label_counts / batch.row_total[:, None], np.float64)
    class_index = batch.majority[0] if raters == "majority" else batch.chosen_rating
    return np.asarray(np.eye(batch.n_classes)[class_index], np.float64)


def _log_probabilities(batch_sums: BatchSums) -> Floats | None:
    if not batch_sums.batch.is_logits:
        return None
    logit = relative_logits(batch_sums.batch.scores, 1)
    return np.asarray(logit - np.log(np.exp(logit).sum(axis=1, keepdims=True)), np.float64)


def _membership(view: View) -> str:
    membership = str(MEMBERSHIP.of(view.pane_query))
    if membership not in MEMBERSHIPS:
        raise CalibrationInputError.at(
            "/membership",
            "one_of",
            f"Received membership {membership!r}; losses are defined for {' and '.join(MEMBERSHIPS)}.",
        )
    return membership


def _check_cases(n_cases: int, n_classes: int, bins: int) -> None:
    most = MAX_CASE_CLASSES * BINS_AT_ONCE // (n_classes * max(bins, BINS_AT_ONCE))
    if n_cases > most:
        raise CalibrationInputError.at(
            "/cases",
            "too_many",
            f"Received {n_cases} cases; losses of {n_classes} classes in {bins} bins are computed of at most {most}. "
            "Name the image of each row as its case, or send several batches.",
        )


def _check_gradients(by: str, n_values: int) -> None:
    if by not in VARIABLES:
        raise CalibrationInputError.at(
            "/gradients", "one_of", f"Received {by[:60]!r}; expected one of {', '.join(VARIABLES)}."
        )
    if n_values > MAX_GRADIENT_VALUES:
        raise CalibrationInputError.at(
            "/gradients",
            "too_many",
            f"Received {n_values} scores; gradients are returned for at most {MAX_GRADIENT_VALUES}.",
        )


def _rows(slopes: Floats, view: View) -> list[list[float]] | None:
    """Return the gradient of every posted row; None if it is infinite."""
    assert view.batch_sums is not None
    if not np.isfinite(slopes).all():
        return None
    every = np.zeros(view.batch_sums.complete_batch.scores.shape)
    every[view.batch_sums.labelled] = slopes
    return [[float(value) for value in row] for row in every]


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
