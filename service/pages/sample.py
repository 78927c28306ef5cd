"""A body of predictions to try the service with: 2,000 rows of three classes with labels, of a model that is overconfident."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import orjson
import scipy

N_ROWS, N_CLASSES, SPREAD, TEMPERATURE = 2000, 3, 2.0, 1.6


@lru_cache(maxsize=1)
def sample_body() -> bytes:
    """Return JSON columns for `POST predictions`; the labels follow the probabilities of logits divided by 1.6."""
    rng = np.random.default_rng(7)
    logits = SPREAD * rng.normal(size=(N_ROWS, N_CLASSES))
    shares = scipy.special.softmax(logits / TEMPERATURE, axis=1)
    labels = (shares.cumsum(axis=1) < rng.random((N_ROWS, 1))).sum(axis=1)
    columns = {
        "batch_id": "sample",
        "probabilities": scipy.special.softmax(logits, axis=1).round(4).tolist(),
        "labels": labels.clip(0, N_CLASSES - 1).tolist(),
    }
    return orjson.dumps(columns)
