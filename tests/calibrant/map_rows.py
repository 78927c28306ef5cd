"""Rows for tests of calibration maps, fits of them, and naive losses."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit, softmax, xlog1py, xlogy

from calibrant.calibrators import MAPS, fit
from calibrant.core.batch import Batch
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View

ONE_SCORE = [slug for slug, method in MAPS.items() if "class" in method.scopes]


def scores_and_labels(n=4000, seed=0, slope=0.6, intercept=-0.3):
    """Confidences whose true log odds are slope logit(p) + intercept, some of them exactly on cell edges."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.6, 0.6, n)
    p = np.clip(np.where(rng.random(n) < 0.1, np.round(p, 2), p), 1e-9, 1 - 1e-9)
    return p, (rng.random(n) < expit(slope * logit(p) + intercept)).astype(int)


def binary(p, y, **more):
    labels = y.tolist() if hasattr(y, "tolist") else y
    return Batch.from_columns({"confidences": np.asarray(p, float), "labels": labels, **more}).batch


def pane_of(batch, sample_bytes=None, **spec):
    pane = Pane(PaneSpec(batch.task, batch.n_classes, **spec), sample_bytes=sample_bytes)
    pane.fill_batch(batch)
    return pane


def fitted(method, batch, raw=False, options=None, evaluate=True, **pane_query):
    """The result of a fit; its held-out evaluation takes six times as long as the rest."""
    view = View(pane_of(batch), PaneQuery(**pane_query), batch if raw else None)
    return fit(method, view, options, evaluate)


def many_classes(n=3000, n_classes=5, seed=1, raters=3):
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(n, n_classes)) * 2
    chance = softmax(true, axis=1)
    counts = np.zeros((n, n_classes), int)
    for _ in range(raters):
        counts[np.arange(n), (chance.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)] += 1
    return Batch.from_columns({"logits": true * 1.7, "label_counts": counts}).batch


def plain(value):
    """Whether only what JSON knows is inside, NumPy's numbers not counted."""
    if isinstance(value, dict):
        return all(type(key) is str and plain(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return value is None or type(value) in (str, int, float, bool)


def naive_losses(p, y, bins=15):
    place = np.clip(np.ceil(p * bins) - 1, 0, bins - 1)
    gaps = [abs((y - p)[place == b].sum()) for b in range(bins)]
    nll = -np.mean(xlogy(y, p) + xlog1py(1 - y, -p))
    return {"nll": nll, "brier": np.mean((y - p) ** 2), "ece": sum(gaps) / len(p)}
