"""The report of a model through the whole service: the numbers of the reads, in one page."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from calibrant.metrics import METRICS
from tests.end_to_end.deployment import Deployment

URL = "/v1/models/reported"
START = datetime(2026, 3, 1, tzinfo=UTC)
WINDOW = {"from": START.isoformat(), "to": (START + timedelta(days=4)).isoformat()}


@pytest.fixture(scope="module")
def model(embedded: Deployment) -> Deployment:
    """An overconfident model with patients, a declared subgroup without data, and a promoted map."""
    settings = {
        "task": "multiclass", "classes": ["benign", "malignant", "other"],
        "slices": {"site": ["A", "B", "C"]},
    }  # fmt: skip
    response = embedded.client.put(URL, json=settings)
    assert response.status_code in (200, 201), response.text
    rng = np.random.default_rng(3)
    z = rng.normal(0.0, 3.0, (600, 3))
    p = np.exp(z / 3)
    p /= p.sum(axis=1, keepdims=True)
    labels: list[int | None] = [int(rng.choice(3, p=row)) for row in p]
    labels[:5] = [None] * 5
    body = {
        "logits": z.tolist(),
        "labels": labels,
        "ids": [f"i{i}" for i in range(600)],
        "units": [f"patient-{i // 2}" for i in range(600)],
        "slices": {"site": ["A" if i < 500 else "B" for i in range(600)]},
        "event_times": [(START + timedelta(days=i // 2 % 4)).isoformat() for i in range(600)],
    }
    embedded.post(f"{URL}/predictions", body)
    made = embedded.client.post(f"{URL}/maps", json=WINDOW)
    assert made.status_code == 201, made.text
    promoted = embedded.client.put(
        f"{URL}/maps/current",
        json={"version": 1, "reason": "<img src=x onerror=alert(1)>", "override": True},
        headers={"If-None-Match": "*"},
    )
    assert promoted.status_code == 200, promoted.text
    return embedded


def test_it_has_the_numbers_of_the_reads(model: Deployment) -> None:
    query = WINDOW | {"tolerance": "0.05"}
    response = model.client.get(f"{URL}/report", params=query)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/html")
    assert "style-src 'unsafe-inline'" in response.headers["content-security-policy"]
    assert "script" not in response.headers["content-security-policy"]
    found = model.client.get(f"{URL}/metrics", params=query).json()
    ece = found["metrics"]["ece"]
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", response.text, flags=re.DOTALL)
    text = " ".join(text.split())
    assert f"Expected calibration error is {ece['value']:.3f}" in text
    assert f"{ece['interval'][0]:.3f} to {ece['interval'][1]:.3f}" in text
    assert ece["tolerance_verdict"] == "outside" and "Outside tolerance" in text
    assert "5 predictions without a label" in text
    assert "Patients or other units 298" in text
    for name in ("site:A", "site:B", "site:C"):
        assert name in text
    assert "After 90 more days" in text and "Not a medical device" in text
    assert "benign, malignant, other" in text


def test_a_decision_threshold_is_a_sentence(model: Deployment) -> None:
    """The metric `net_benefit` has the numbers; the sentence has them as numbers of 100."""
    query = WINDOW | {"metrics": "ece,net_benefit(threshold=0.6)"}
    each = model.client.get(f"{URL}/metrics", params=query | {"include": "details"}).json()[
        "metrics"
    ]
    found = each["net_benefit(threshold=0.6)"]
    text = model.client.get(f"{URL}/report", params=query).text.replace("\u00a0", " ")
    assert 0.1 < found["observed"] < found["predicted"] < 0.9
    assert (
        f"Threshold 0.6: the model was at least 60 % sure of its class in {100 * found['acted_on']:.0f} % of the predictions. Of 100 of these, "
        f"{100 * found['observed']:.0f} were correct; the model predicted {100 * found['predicted']:.0f}."
    ) in text


def test_a_binary_model_has_its_decision_curve(model: Deployment, embedded: Deployment) -> None:
    rng = np.random.default_rng(3)
    scores = rng.uniform(0.02, 0.98, 300)
    labels = (rng.uniform(size=300) < scores).astype(int)
    path = "/v1/models/report-binary"
    rows = {"confidences": scores.tolist(), "labels": labels.tolist()}
    sent = embedded.client.post(f"{path}/predictions", json=rows, headers={"Prefer": "wait=60"})
    assert sent.status_code == 200, sent.text
    page = embedded.client.get(f"{path}/report").text
    assert "Decision curve" in page and "Net benefit of acting from a threshold on" in page
    assert "Decision curve" not in model.client.get(f"{URL}/report").text
    chosen = {"metrics": "ece,net_benefit(threshold=0.3)"}
    assert "Decision curve" in model.client.get(f"{URL}/report", params=chosen).text


def test_more_days_of_a_window_without_a_start_are_those_of_its_data(model: Deployment) -> None:
    """The window of all data would start in 1970: thirty more days of so many would change nothing."""
    found = model.client.get(f"{URL}/metrics", params={"metrics": "ece", "tolerance": 0.05}).json()
    start, end = (datetime.fromisoformat(found["window"][each]) for each in ("from", "to"))
    assert start >= START
    sizes = found["detectable"]
    growth = sizes["in_30_days"]["n_effective"] / sizes["now"]["n_effective"]
    assert growth == pytest.approx(1 + timedelta(days=30) / (end - start))


def test_what_a_person_wrote_is_escaped(model: Deployment) -> None:
    """The reason of the promotion is shown, and is no element of the page."""
    text = model.client.get(f"{URL}/report", params=WINDOW).text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text and "<img src=x" not in text


def test_an_unchanged_report_is_not_sent_again(model: Deployment) -> None:
    first = model.client.get(f"{URL}/report", params=WINDOW)
    again = {"If-None-Match": first.headers["etag"]}
    assert model.client.get(f"{URL}/report", params=WINDOW, headers=again).status_code == 304
    stricter = WINDOW | {"tolerance": "0.01"}
    assert model.client.get(f"{URL}/report", params=stricter, headers=again).status_code == 200


def test_a_report_of_nothing_and_of_an_unknown_model(model: Deployment) -> None:
    empty = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"}
    response = model.client.get(f"{URL}/report", params=empty)
    assert response.status_code == 200 and "Not enough data" in response.text
    assert model.client.get("/v1/models/nobody/report").status_code == 404
    assert "2020-01-01 00:00 UTC to 2020-01-02 00:00 UTC, event time" in response.text
    assert model.client.put("/v1/models/empty", json={"task": "binary"}).status_code == 201
    without_data = model.client.get("/v1/models/empty/report").text
    assert "1970" not in without_data and ">all until " in without_data
    rejected = model.client.get(f"{URL}/report", headers={"Accept": "application/json"})
    assert rejected.status_code == 406
    wrong = model.client.get(f"{URL}/report", params={"tolerance": "2"})
    assert wrong.status_code == 422
    every = model.client.get(f"{URL}/report", params={"metrics": ",".join(METRICS)})
    assert every.status_code == 422
    assert [each["rule"] for each in every.json()["errors"]] == ["too_many_values"]


def test_a_report_names_the_subgroups_that_it_leaves_out(model: Deployment) -> None:
    """Those with data come first; the others are computed when they are requested."""
    url = "/v1/models/wards"
    names = [f"w{i:02}" for i in range(45)]
    made = model.client.put(url, json={"task": "binary", "slices": {"ward": names}})
    assert made.status_code in (200, 201), made.text
    rows = {
        "probabilities": [[0.3, 0.7]] * 4,
        "labels": [1, 0, 1, 1],
        "slices": {"ward": ["w44", "w43", "w44", "w43"]},
    }
    model.post(f"{url}/predictions", rows)

    def listed(**query: str) -> tuple[set[str], str]:
        response = model.client.get(f"{url}/report", params=query)
        assert response.status_code == 200, response.text
        rows = re.findall(r'<th scope="row">(ward:w\d\d)</th>', response.text)
        assert len(rows) == len(set(rows))
        return set(rows), response.text

    found, text = listed()
    assert found == {f"ward:{name}" for name in (*names[:34], "w43", "w44")}
    left_out = ", ".join(f"ward:{name}" for name in names[34:43])
    assert f"9 subgroups: {left_out}." in text
    assert "subgroups=ward:w34" in text and "Some are left out" in text
    found, text = listed(subgroups="ward:w42,ward:w44")
    assert found == {"ward:w42", "ward:w44"} and "9 subgroups:" not in text
    for subgroups, rule in (("ward:x", "undeclared_slice"), ("ward", "pattern")):
        rejected = model.client.get(f"{url}/report", params={"subgroups": subgroups})
        assert rejected.status_code == 422
        assert [each["rule"] for each in rejected.json()["errors"]] == [rule]
    both = {"slice": "ward:w44", "subgroups": "ward:w43"}
    rejected = model.client.get(f"{url}/report", params=both)
    assert rejected.status_code == 422
    assert rejected.json()["errors"][0]["rule"] == "subgroups_of_slice"
