"""Independent events of one row through the complete service: the library's numbers, labels that arrive later, repeats and moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import calibrant as cal
from tests.end_to_end.deployment import Deployment

RNG = np.random.default_rng(12)
N, NAMES = 90, ["car", "dog, small", "sky"]
P = RNG.uniform(0.03, 0.97, (N, 3))
Y = (RNG.uniform(size=(N, 3)) < P**1.3).astype(float)
IDS = [f"img {i}" for i in range(N)]
METRICS = "ece,brier,nll"
SETTINGS = {"task": "binary", "classes": 2, "slices": {"label": NAMES}}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder: Path = tmp_path_factory.mktemp("multilabel")
    with Deployment(folder) as found:
        yield found


@pytest.fixture(scope="module")
def client(service: Deployment) -> Iterator[cal.Client]:
    with cal.Client(f"http://127.0.0.1:{service.port}") as found:
        yield found


def check(found: cal.MultilabelReport, labels: np.ndarray) -> None:
    """Compare with naive sums, and with the library from the same rows."""
    own = cal.evaluate(P, labels, METRICS, task="multilabel", classes=NAMES)
    assert isinstance(own, cal.MultilabelReport) and list(found.labels) == NAMES
    brier = [2 * np.nanmean((P[:, k] - labels[:, k]) ** 2) for k in range(3)]
    assert [each["brier"].value for each in found.labels.values()] == pytest.approx(brier, abs=1e-9)
    assert found["brier"].value == pytest.approx(np.mean(brier), abs=1e-9)
    for name in NAMES:
        for slug in ("ece", "nll"):
            expected = own.labels[name][slug].value
            assert found.labels[name][slug].value == pytest.approx(expected, abs=1e-9)
        assert float(found.temperatures[name]) == pytest.approx(
            float(own.temperatures[name]), rel=2e-5
        )
    n_labelled = (~np.isnan(labels)).sum(axis=0)
    assert (found.n_ratings, found.n_units) == (n_labelled.sum(), n_labelled.max())


def test_events_have_the_numbers_of_the_library(service: Deployment, client: cal.Client) -> None:
    assert service.client.put("/v1/models/tags", json=SETTINGS).status_code == 201
    model = client.model("tags").multilabel(NAMES)
    early = Y.copy()
    early[20:, 1] = np.nan
    early[50:] = np.nan
    for _ in range(2):
        model.send(P, early, ids=IDS, batch_id="first", wait=20)
    check(model.evaluate(METRICS), early)
    model.label(IDS[20:], np.where(np.isnan(early), Y, np.nan)[20:], wait=20)
    check(model.evaluate(METRICS), Y)
    pooled = client.model("tags").metrics("ece")
    own = cal.ece(P.reshape(-1), Y.reshape(-1), units=np.repeat(IDS, 3))
    assert pooled["ece"].value == pytest.approx(own.value, abs=1e-9)
    assert (pooled.n_labelled, pooled.n_units) == (3 * N, N)


def test_logits_and_more_events_than_a_batch_has(service: Deployment, client: cal.Client) -> None:
    names = [f"e{i}" for i in range(40)]
    settings = SETTINGS | {"slices": {"label": names}}
    assert service.client.put("/v1/models/many", json=settings).status_code == 201
    logits = RNG.normal(size=(12, 40))
    labels = (RNG.uniform(size=(12, 40)) < 0.5).astype(int)
    model = client.model("many").multilabel(names)
    receipts = model.send(logits=logits, labels=labels, ids=range(12), wait=20)
    assert [each.accepted for each in receipts] == [360, 120]
    p = 1 / (1 + np.exp(-logits))
    found = model.evaluate("brier")
    assert found["brier"].value == pytest.approx(2 * ((p - labels) ** 2).mean(), abs=1e-9)


def test_what_is_refused(client: cal.Client) -> None:
    with pytest.raises(cal.CalibrationInputError, match="expected each event once"):
        client.model("tags").multilabel(["a", "a"])
    model = client.model("tags").multilabel(NAMES)
    with pytest.raises(cal.CalibrationInputError, match=r"expected \(n, 3\)"):
        model.send(P[:, :2], ids=IDS)
    with pytest.raises(cal.CalibrationInputError, match="expected units"):
        model.send(P, ids=IDS, label_counts=Y)
