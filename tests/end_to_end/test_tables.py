"""Results as CSV and Arrow through the complete service: other programs read the numbers of the JSON."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import calibrant as cal
from tests.end_to_end.deployment import Deployment
from tests.waiting import eventually

CSV, ARROW = "text/csv", "application/vnd.apache.arrow.stream"
URL = "/v1/models/tabled"
START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=4)
WINDOW = {"from": START.isoformat(), "to": (START + timedelta(days=3)).isoformat()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Three classes, two sites, three days; cohorts are sealed after an hour."""
    directory = tmp_path_factory.mktemp("tabled")
    with Deployment(directory, CALIBRANT_HOUSEKEEPING="0.5") as deployment:
        post(deployment)
        yield deployment


def post(embedded: Deployment) -> None:
    settings = {
        "task": "multiclass", "classes": 3, "slices": {"site": ["A", "B"]}, "label_horizon": "PT1H",
    }  # fmt: skip
    assert embedded.client.put(URL, json=settings).status_code == 201
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(3), 300)
    body = {
        "probabilities": p.tolist(),
        "labels": [int(rng.choice(3, p=row)) for row in p],
        "ids": [f"i{i}" for i in range(300)],
        "slices": {"site": ["AB"[i % 2] for i in range(300)]},
        "event_times": [(START + timedelta(hours=4 * (i // 17))).isoformat() for i in range(300)],
    }
    embedded.post(f"{URL}/predictions", body)


def table(model: Deployment, path: str, media_type: str, **params: object) -> pd.DataFrame:
    """Read a table as a user of pandas does."""
    response = model.client.get(f"{URL}{path}", params=params, headers={"Accept": media_type})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].partition(";")[0] == media_type
    data = io.BytesIO(response.content)
    if media_type == CSV:
        return pd.read_csv(data)
    return pa.ipc.open_stream(data).read_all().to_pandas()


@pytest.mark.parametrize("media_type", [CSV, ARROW])
def test_metrics_are_rows(model: Deployment, media_type: str) -> None:
    query = WINDOW | {"metrics": "ece,classwise_ece,brier"}
    expected = model.get(f"{URL}/metrics", **query)["metrics"]
    found = table(model, "/metrics", media_type, **query)
    overall = found[found["class"].isna()].set_index("metric")
    for name, each in expected.items():
        assert overall.value[name] == each["value"]
        assert [overall.interval_low[name], overall.interval_high[name]] == each["interval"]
        assert overall.n[name] == 300
    by_class = found[found["class"].notna()]
    assert by_class.value.tolist() == expected["classwise_ece"]["by_class"]
    starts = pd.to_datetime(found["from"], utc=True)
    assert (starts == pd.Timestamp(START)).all()


def test_parts_and_slices_are_rows(model: Deployment) -> None:
    query = WINDOW | {"metrics": "ece", "every": "P1D", "by": "site"}
    slices = model.get(f"{URL}/metrics", **query)["slices"]
    found = table(model, "/metrics", ARROW, **query)
    expected = [
        (f"site:{name}", part["metrics"]["ece"]["value"])
        for name, each in slices.items()
        for part in each["series"]
    ]
    assert list(zip(found.slice, found.value, strict=True)) == expected and len(expected) > 4


@pytest.mark.parametrize("media_type", [CSV, ARROW])
def test_the_reliability_table_is_rows(model: Deployment, media_type: str) -> None:
    expected = model.get(f"{URL}/reliability", **WINDOW)["table"]
    found = table(model, "/reliability", media_type, **WINDOW)
    for name in ("bin", "lower", "upper", "count", "sum_confidence"):
        assert found[name].tolist() == [each[name] for each in expected]
    means = found.accuracy.astype(object).where(found.accuracy.notna(), None)
    assert means.tolist() == [each["accuracy"] for each in expected]


def test_cohorts_are_rows(model: Deployment) -> None:
    to = {"from": WINDOW["from"], "to": datetime.now(UTC).isoformat()}

    def rows() -> list[dict[str, str]]:
        response = model.client.get(f"{URL}/drift/history", params=to, headers={"Accept": CSV})
        assert response.status_code == 200, response.text
        return list(csv.DictReader(io.StringIO(response.text)))

    eventually(lambda: len(rows()) >= 2)
    expected = model.get(f"{URL}/drift/history", **to)["cohorts"]
    found = rows()
    assert [each["from"] for each in found] == [each["cohort"]["from"] for each in expected]
    assert [int(each["n_labelled"]) for each in found] == [each["n_labelled"] for each in expected]


@pytest.mark.parametrize("media_type", [CSV, ARROW])
def test_panes_add_up_to_the_window(model: Deployment, media_type: str) -> None:
    found = table(model, "/export", media_type)
    packed = found.pane.map(base64.b64decode) if media_type == CSV else found.pane
    everything = found.slice.isna() | (found.slice == "")
    panes = [cal.Pane.from_bytes(each) for each in packed[everything]]
    assert len(panes) >= 3 and found.n_predictions[everything].sum() == 300
    expected = model.get(f"{URL}/metrics", metrics="ece", **WINDOW)["metrics"]["ece"]["value"]
    assert sum(panes).evaluate(["ece"])["ece"].value == pytest.approx(expected, abs=1e-12)
    assert set(found.slice.dropna()) >= {"site:A", "site:B"}


def test_the_table_has_an_etag_of_its_own(model: Deployment) -> None:
    path = f"{URL}/metrics"
    tags = {
        media: model.client.get(path, params=WINDOW, headers={"Accept": media}).headers["etag"]
        for media in ("application/json", CSV, ARROW)
    }
    assert len(set(tags.values())) == 3
    again = {"Accept": CSV, "If-None-Match": tags[CSV]}
    assert model.client.get(path, params=WINDOW, headers=again).status_code == 304


def test_an_unknown_type_is_not_acceptable(model: Deployment) -> None:
    response = model.client.get(f"{URL}/metrics", headers={"Accept": "application/x-excel"})
    assert response.status_code == 406 and "text/csv" in response.json()["detail"]
