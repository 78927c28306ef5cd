"""Panes that the client fills equal the rows that it would have sent."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import calibrant as cal
from tests.waiting import PATIENCE_S

RNG = np.random.default_rng(7)
N = 240
LOGITS = RNG.normal(size=(N, 3))
LABELS = [[int(a), int(b)] for a, b in RNG.integers(0, 3, (N, 2))]
NOW = datetime.now(UTC)
TIMES = [NOW - timedelta(hours=int(h)) for h in RNG.integers(0, 3, N)]
SITES = [str(each) for each in RNG.choice(["A", "B"], N)]
DEVICES = [str(each) for each in RNG.choice(["x", "y", "z"], N)]
UNITS = [f"u{i // 4}" for i in range(N)]


@pytest.fixture
def client(embedded):
    with cal.Client(f"http://127.0.0.1:{embedded.port}") as client:
        yield client


def columns(part: slice) -> dict:
    return {
        "logits": LOGITS[part],
        "labels": LABELS[part],
        "slices": {"site": SITES[part], "device": DEVICES[part]},
        "event_times": TIMES[part],
        "units": UNITS[part],
    }


def test_panes_give_the_results_of_the_rows(client, embedded):
    definition = {
        "task": "multiclass", "classes": 3, "grid": 720, "pane": "PT30M", "slices": {"site": ["A", "B"], "device": ["x", "y", "z"]},
    }  # fmt: skip
    for name in ("reduced", "plain"):
        made = embedded.client.put(f"/v1/models/{name}", json=definition)
        assert made.status_code == 201, made.text
    reduced = client.model("reduced", reduce=True)
    for start in range(0, N, 60):
        reduced.log(**columns(slice(start, start + 60)))
    assert reduced.flush(PATIENCE_S)
    assert reduced.log_statistics.acknowledged == N, reduced.log_statistics
    client.model("plain").send(**columns(slice(0, N)), wait=60)
    embedded.post("/v1/models/reduced/predictions", {"logits": [[0, 0, 0]], "labels": [0]})
    embedded.post("/v1/models/plain/predictions", {"logits": [[0, 0, 0]], "labels": [0]})
    for query in ({}, {"slice": "site:A"}, {"slice": "device:z"}, {"window": "PT1H"}):
        found, expected = (
            client.model(name).metrics("ece,brier,nll,disagreement_loss", **query)
            for name in ("reduced", "plain")
        )
        assert (found.n_predictions, found.n_ratings) == (
            expected.n_predictions, expected.n_ratings,
        )  # fmt: skip
        for slug in expected:
            assert float(found[slug]) == pytest.approx(float(expected[slug]), rel=1e-9)


def test_rows_do_not_leave(embedded, client, monkeypatch):
    bodies: list[bytes] = []
    from calibrant.client.transport import Transport

    def spy(self, operation, original=Transport.response):
        bodies.append(operation.body or b"")
        return original(self, operation)

    monkeypatch.setattr(Transport, "response", spy)
    model = client.model("discreet", reduce=True)
    model.log([0.9, 0.25], [1, 0], ids=["secret-1", "secret-2"], units=["patient-7", "patient-8"])
    assert model.flush(PATIENCE_S)
    assert model.log_statistics.acknowledged == 2, model.log_statistics
    (body,) = [each for each in bodies if each]
    assert b'"kind": "pane"' in body
    assert not re.search(rb"secret|patient|0\.9|probabilities", body)


def test_rows_without_a_label_are_rejected(client):
    model = client.model("unlabelled", reduce=True)
    model.log([0.9, 0.2, 0.4], [1, None, 7])
    assert model.flush(PATIENCE_S)
    found = model.log_statistics
    assert (found.acknowledged, found.rejected) == (1, 2)
    assert "label" in found.last_error


def test_a_call_of_another_shape_costs_no_other_its_rows(client):
    model = client.model("shapes", reduce=True, linger=PATIENCE_S)
    model.log([[0.7, 0.2, 0.1]], [0])
    assert model.flush(PATIENCE_S)
    model.log([[0.7, 0.3]], [0])
    model.log([[0.1, 0.2, 0.7]], [2])
    assert model.flush(PATIENCE_S)
    found = model.log_statistics
    assert (found.acknowledged, found.rejected) == (2, 1)
