"""A window that is read again and again while its newest pane grows: every read is that of the rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from scipy.special import softmax

import calibrant as cal
from tests.end_to_end.deployment import Deployment

URL = "/v1/models/growing"
DAYS, A_DAY, ROUNDS = 6, 20, 6


def test_the_temperature_of_a_window_that_grows_is_that_of_its_rows(embedded: Deployment) -> None:
    """A merge is cached without a sample, and gets that of the window."""
    settings = {"task": "multiclass", "classes": 3, "pane": "P1D", "label_horizon": "P1D"}
    assert embedded.client.put(URL, json=settings).status_code == 201
    rng, now = np.random.default_rng(4), datetime.now(UTC)
    logits, labels = np.empty((0, 3)), np.empty(0, dtype=int)
    for turn in range(ROUNDS):
        new = rng.normal(0, 2, (DAYS * A_DAY, 3)).round(3)
        truth = (softmax(new, axis=1).cumsum(axis=1) > rng.random((len(new), 1))).argmax(axis=1)
        first = now - timedelta(days=DAYS + 1, seconds=turn)
        body = {
            "logits": new.tolist(),
            "labels": truth.tolist(),
            "event_times": [
                (first + timedelta(days=day, minutes=i)).isoformat()
                for day in range(DAYS)
                for i in range(A_DAY)
            ],
        }
        embedded.post(f"{URL}/predictions", body)
        logits, labels = np.vstack([logits, new]), np.append(labels, truth)
        expected = float(cal.fit_temperature(logits=logits, labels=labels))
        for window in ({}, {"window": "P30D"}, {"window": "P30D", "include": "curve"}):
            found = embedded.get(f"{URL}/temperature", **window)
            assert found["n"] == len(labels)
            np.testing.assert_allclose(found["temperature"], expected, rtol=1e-6)
