"""The client reads the library's own objects from a real service."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import pytest

import calibrant as cal
from calibrant.client import AsyncClient, Client, ServiceError, ServiceUnreachable
from tests.ports import reserved_port

RNG = np.random.default_rng(3)
LOGITS = 2 * RNG.normal(size=(300, 3))
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
SOFT = np.exp(LOGITS / 2) / np.exp(LOGITS / 2).sum(axis=1, keepdims=True)
LABELS = (SOFT.cumsum(axis=1) < RNG.random((300, 1))).sum(axis=1)


@pytest.fixture(scope="module")
def client(embedded) -> Iterator[Client]:
    with cal.Client(f"http://127.0.0.1:{embedded.port}") as client:
        receipt = client.model("client-reads").send(
            probabilities=PROBABILITIES, labels=LABELS, ids=[f"r{i}" for i in range(300)], wait=60
        )
        assert (receipt.status, receipt.accepted) == ("merged", 300)
        yield client


@pytest.fixture
def model(client):
    return client.model("client-reads")


def test_metrics_are_a_report_of_the_library(model):
    report = model.metrics(["ece", "brier", "dice"], bins=10)
    assert isinstance(report, cal.Report)
    expected = cal.Pane.fill(PROBABILITIES, LABELS).evaluate(["ece", "brier", "dice"], bins=10)
    assert float(report["ece"]) == pytest.approx(float(expected["ece"]), rel=1e-12)
    assert float(report["brier"]) == pytest.approx(float(expected["brier"]), rel=1e-12)
    assert report["dice"].value is None
    assert report["dice"].reason == expected["dice"].reason
    assert (report.n_labelled, report.n_units) == (300, 300)
    assert "ece" in repr(report)


@pytest.mark.parametrize("slugs", [None, "ece(bins=5),lp_ece(order=3)"])
def test_estimates_have_every_value_of_the_response(model, embedded, slugs):
    served = embedded.get(
        "/v1/models/client-reads/metrics", **({"metrics": slugs} if slugs else {})
    )
    report = model.metrics(slugs)
    assert list(report) == list(served["metrics"])
    for name, values in served["metrics"].items():
        assert report[name].to_dict() == values


def test_declared_results_are_objects_of_the_library(model, embedded):
    served = embedded.get("/v1/models/client-reads/roc", scope="top_label")
    roc = model.roc(scope="top_label")
    assert roc.to_dict() == served
    assert (roc.auc, roc.area.value) == (served["auc"], served["area"]["value"])
    assert model.stability().raters["pooled"].tv.absolute >= 0.0
    with pytest.raises(AttributeError, match="has no 'rocs'; results are"):
        _ = model.rocs


def test_a_pane_that_a_program_has_filled_counts_once(client):
    half = cal.Pane.fill(PROBABILITIES[:150], LABELS[:150])
    model, at = client.model("sent-panes"), datetime.now(UTC)
    for _ in range(2):
        receipt = model.send_pane(
            half, event_time=at, slice={"site": "A"}, batch_id="first-half", wait=60
        )
    assert receipt.status == "merged" and receipt.duplicate
    model.send_pane(cal.Pane.fill(PROBABILITIES[150:], LABELS[150:]), wait=60)
    for found, rows in ((model.metrics("ece"), 300), (model.metrics("ece", slice="site:A"), 150)):
        expected = cal.Pane.fill(PROBABILITIES[:rows], LABELS[:rows]).evaluate("ece")
        assert found.n_labelled == rows
        assert found["ece"].value == pytest.approx(expected["ece"].value, rel=1e-12)


HOURS = [f"2026-11-20T{hour:02d}:30:00Z" for hour in range(12)]
TABLE = {
    "probabilities": PROBABILITIES,
    "labels": LABELS,
    "at": HOURS * 25,
    "site": ["ABC"[i // 12 % 3] for i in range(300)],
}


def test_panes_of_a_table_count_once_however_often_they_are_sent(client):
    """Also if groups differ from those of an earlier run: the service then names where to continue."""
    options = {"time": "at", "slices": ["site"], "combine_slices": True}
    panes = cal.fill_by(TABLE, cal.PaneSpec("multiclass", 3), **options)
    model = client.model("sent-tables")
    first = sorted(panes)[:20]
    model.send_panes({key: panes[key] for key in first}, source="log@1", wait=60)
    receipts = model.send_panes(panes, source="log@1", wait=60)
    assert [each.duplicate for each in receipts] == [False, False]
    repeated = model.send_panes(((key, panes[key]) for key in sorted(panes)), source="log@1")
    assert [each.duplicate for each in repeated] == [True, True]
    window = {"from_": datetime(2026, 11, 20, tzinfo=UTC), "to": datetime(2026, 11, 21, tzinfo=UTC)}
    for found, rows in (
        (model.metrics("ece", **window), slice(None)),
        (model.metrics("ece", **window, slice="site:A"), np.array(TABLE["site"]) == "A"),
    ):
        expected = cal.Pane.fill(PROBABILITIES[rows], LABELS[rows]).evaluate("ece")
        assert found.n_labelled == expected.n_labelled
        assert found["ece"].value == pytest.approx(expected["ece"].value, abs=1e-12)


def test_reliability_plots(model):
    table = model.reliability(bins=5)
    assert isinstance(table, cal.ReliabilityTable)
    assert table.bin_weight.sum() == 300
    expected = cal.ece(PROBABILITIES, LABELS, bins=5)
    assert table.ece == pytest.approx(float(expected))
    assert table.plot().lines


def test_temperature_recalibrates_and_plots(model):
    temperature = model.temperature()
    assert isinstance(temperature, cal.Temperature)
    assert float(temperature) == pytest.approx(2.0, abs=0.5)
    assert temperature(PROBABILITIES).shape == (300, 3)
    assert temperature.plot().lines


def test_maps_and_drift(model, embedded):
    fitted = model.calibration_map(method="temperature")
    assert isinstance(fitted, cal.CalibrationMap)
    assert model.maps() == () and model.maps().current is None
    made = embedded.client.post("/v1/models/client-reads/maps", json={"method": "temperature"})
    assert made.status_code == 201, made.text
    maps = model.maps()
    assert [each.version for each in maps] == [1]
    frozen = model.frozen_map(1)
    assert np.array_equal(frozen(PROBABILITIES), fitted(PROBABILITIES))
    assert model.drift().change.word == "not_armed"
    assert model.drift().recommendation.action is not None
    assert model.alarms(state="open") == []


def test_labels_replace_by_rater(client, embedded):
    model = client.model("client-labels")
    model.send(probabilities=[0.9, 0.2], ids=["a", "b"], wait=60)
    receipt = model.label(["a", "b"], [1, 0], raters=["r1", "r1"], wait=60)
    assert (receipt.status, receipt.accepted) == ("merged", 2)
    model.label(["a"], [0], raters=["r1"], wait=60)
    assert model.metrics("accuracy").n_ratings == 2
    assert float(model.metrics("accuracy")["accuracy"]) == 0.5


def test_errors_carry_pointer_and_rule(model):
    with pytest.raises(ServiceError) as caught:
        model.metrics("nope")
    error = caught.value
    assert (error.status, error.slug, error.retryable) == (422, "invalid-query", False)
    assert (error.violations[0].pointer, error.violations[0].rule) == ("/metrics", "unknown_metric")
    assert "nope" in str(error) and "unknown_metric" in str(error)
    with pytest.raises(ServiceError) as caught:
        model.send(probabilities=[[0.7, 0.2, 0.4]], labels=[0])
    assert caught.value.violations[0].pointer == "/probabilities/0"
    assert caught.value.violations[0].rule == "row_sum"


def test_no_rows_are_rejected_here(model):
    with pytest.raises(cal.CalibrationInputError, match="no rows"):
        model.send(probabilities=[], labels=[])


def test_the_same_batch_id_counts_once(client):
    model = client.model("client-repeats")
    first = model.send(probabilities=[0.9], labels=[1], batch_id="one", wait=60)
    again = model.send(probabilities=[0.9], labels=[1], batch_id="one", wait=60)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert model.metrics("accuracy").n_predictions == 1


def test_times_and_windows(client):
    from datetime import UTC, datetime, timedelta

    model = client.model("client-windows")
    now = datetime.now(UTC)
    times = [now - timedelta(days=3), now]
    model.send(probabilities=[0.9, 0.2], labels=[1, 0], event_times=times, wait=60)
    assert model.metrics("accuracy", window=timedelta(days=7)).n_predictions == 2
    assert model.metrics("accuracy", from_=now - timedelta(days=1)).n_predictions == 1


def test_an_unreachable_service_is_named(monkeypatch):
    monkeypatch.setattr("calibrant.client.transport.READ_RETRIES_S", 0.01)
    client = cal.Client(f"http://127.0.0.1:{reserved_port()}")
    with pytest.raises(ServiceUnreachable, match="ConnectError"):
        client.model("m").metrics()
    client.close()


def test_an_address_without_a_scheme_is_rejected():
    with pytest.raises(ValueError, match="http://"):
        cal.Client("localhost:8000")


@pytest.mark.anyio
async def test_the_asynchronous_client_returns_the_same(client, embedded):
    model = client.model("client-reads")
    async with AsyncClient(f"http://127.0.0.1:{embedded.port}") as other:
        same = other.model("client-reads")
        assert (await same.metrics("ece"))["ece"] == model.metrics("ece")["ece"]
        assert (await same.reliability()).to_dict() == model.reliability().to_dict()
        assert (await same.temperature()).value == model.temperature().value
        assert await same.alarms() == []
        assert (await same.maps()) == model.maps() or len(await same.maps()) == len(model.maps())
        assert (await same.drift()).change.word == "not_armed"
        with pytest.raises(ServiceError):
            await same.metrics("nope")
        sent = other.model("client-async")
        receipt = await sent.send(probabilities=[0.9], ids=["x"], wait=60)
        assert receipt.accepted == 1
        assert (await sent.label(["x"], [1], wait=60)).status == "merged"
        panes = cal.fill_by(TABLE, cal.PaneSpec("multiclass", 3), time="at")
        tables = other.model("client-async-tables")
        for duplicate in (False, True):
            (receipt,) = await tables.send_panes(panes, source="log@1", wait=60)
            assert (receipt.accepted, receipt.duplicate) == (12, duplicate)
        assert sent.log([0.3, 0.4], [0, 1]) == 2
        assert await sent.flush(60)
        assert sent.log_statistics.acknowledged == 2
