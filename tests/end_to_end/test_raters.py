"""Each named rater by himself, from retained records, against the library on the same rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.input.labels import named_raters
from calibrant.report import raters_compared
from calibrant.stability.rater_differences import LabelsByRater, rater_differences
from tests.waiting import eventually

N = 240
RATERS = ["ann", "bob", "cy"]
PATH = "/v1/models/by-rater"


@pytest.fixture(scope="module")
def sent(embedded):
    """Predictions of two hours with ids, labelled later by some of three raters, who differ."""
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(3), N)
    truth = np.array([rng.choice(3, p=row) for row in p])
    who = [sorted(rng.choice(RATERS, rng.integers(1, 4), replace=False).tolist()) for _ in range(N)]
    labels = [
        [int(t) if rng.random() < 0.8 else int(rng.integers(3)) for _ in w]
        for t, w in zip(truth, who, strict=True)
    ]
    weights = rng.uniform(0.5, 2, N).tolist()
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    times = [(now - timedelta(hours=3 * (i >= N // 2))).isoformat() for i in range(N)]
    ids = [f"i{i}" for i in range(N)]
    body = {"probabilities": p.tolist(), "ids": ids, "event_times": times, "weights": weights}
    embedded.post(f"{PATH}/predictions", body)
    embedded.post(f"{PATH}/labels", {"ids": ids, "labels": labels, "raters": who})
    embedded.post(f"{PATH}/predictions", {"probabilities": [[0.2, 0.3, 0.5]] * 2, "labels": [0, 1]})
    return embedded, p, labels, who, weights, now


def library(p, labels, who, weights, slug, bins=10):
    ids = [f"i{i}" for i in range(len(p))]  # by which `single` picks its rating
    columns = {"probabilities": p, "labels": labels, "weights": np.array(weights), "ids": ids}
    batch = Batch.from_columns(columns).batch
    pane = Pane(PaneSpec("multiclass", 3))
    pane.fill_batch(batch)
    found = raters_compared(
        View(pane, PaneQuery(bins=bins), batch), [slug], named_raters(labels, who, 3)
    )
    return found, found["metrics"][slug]


@pytest.mark.parametrize("slug", ["ece", "brier", "nll"])
def test_the_answer_is_the_librarys_on_the_same_rows(sent, slug):
    deployment, *rows, _ = sent
    complete, expected = library(*rows, slug)
    bins = {"bins": 10} if slug == "ece" else {}
    found = deployment.get(f"{PATH}/raters", metric=slug, **bins)
    assert (found["n_labelled"], found["n_records"], found["n_raters"], found["n_raters_over"]) == (
        N + 2,
        N,
        3,
        0,
    )
    assert found["reason"] is None and found["consistent"] is True
    assert set(found["by_rater"]) == set(RATERS)
    for name, each in expected["by_rater"].items():
        assert found["by_rater"][name]["n"] == each["n"]
        assert found["by_rater"][name]["value"] == pytest.approx(each["value"], rel=1e-9)
    assert found["policies"] == pytest.approx(expected["policies"], rel=1e-9)
    assert found["mean_of_raters"] == pytest.approx(expected["mean_of_raters"], rel=1e-9)
    assert found["disagreement"] == pytest.approx(complete["disagreement"], rel=1e-9)
    assert found["n_majority_ties"] == complete["n_majority_ties"]


def test_raters_agree_as_in_the_report(sent):
    deployment, _, labels, who, *_ = sent
    given = [dict(zip(names, row, strict=True)) for names, row in zip(who, labels, strict=True)]
    found = deployment.get(f"{PATH}/raters", metric="ece")["by_rater"]
    for name in RATERS:
        pairs = [
            row[name] == row[other]
            for row in given
            for other in row
            if name in row and other != name
        ]
        assert found[name]["agreement"] == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)
    report = deployment.client.get(f"{PATH}/report", headers={"Accept": "text/html"}).text
    assert "Reader by reader: Cohen" in report
    for name, each in found.items():
        assert f"{100 * each['agreement']:.0f} %" in report.replace("\N{NO-BREAK SPACE}", " ")
        for kappa in each["kappa"].values():
            assert f">{kappa:.3f}<" in report, name


def test_a_window_holds_its_own_rows(sent):
    deployment, p, labels, who, weights, now = sent
    half = slice(0, N // 2)
    _, expected = library(p[half], labels[half], who[half], weights[half], "ece")
    window = {"from": now.isoformat(), "to": (now + timedelta(hours=1)).isoformat()}
    found = deployment.get(f"{PATH}/raters", bins=10, **window)
    assert (found["n_labelled"], found["n_records"]) == (N // 2, N // 2)
    for name, each in expected["by_rater"].items():
        assert found["by_rater"][name]["value"] == pytest.approx(each["value"], rel=1e-9)


def test_each_rater_is_compared_with_an_earlier_window(sent):
    """The differences are those of the library between the rater's rows of both windows."""
    deployment, p, labels, who, weights, now = sent
    window = {"from": now.isoformat(), "to": (now + timedelta(hours=1)).isoformat()}
    found = deployment.get(f"{PATH}/raters", metric="brier", against="window:P1D", **window)
    earlier = deployment.get(
        f"{PATH}/raters",
        metric="brier",
        **{"from": (now - timedelta(days=1)).isoformat(), "to": now.isoformat()},
    )
    assert found["against"]["n_records"] == earlier["n_records"] == N // 2
    halves = slice(0, N // 2), slice(N // 2, N)
    sides = []
    for half in halves:
        batch = Batch.from_columns(
            {"probabilities": p[half], "labels": labels[half], "weights": weights[half]}
        ).batch
        sides.append(LabelsByRater(batch, named_raters(labels[half], who[half], 3)))
    expected = rater_differences(*sides, "brier", PaneQuery(bins=15))
    for name in RATERS:
        each = found["by_rater"][name]
        assert each["against"] == pytest.approx(earlier["by_rater"][name]["value"], rel=1e-9)
        assert each["difference"] == pytest.approx(each["value"] - each["against"], rel=1e-9)
        assert each["difference"] == pytest.approx(expected[name]["difference"], rel=1e-9)
        low, high = each["difference_interval"]
        assert low < each["difference"] < high


def test_what_stores_no_records_is_not_compared(sent):
    deployment, *_ = sent
    made = deployment.client.put(f"{PATH}/baselines/first", json={"window": "P1D"})
    assert made.status_code == 201
    found = deployment.client.get(f"{PATH}/raters", params={"against": "baseline:first"})
    assert found.status_code == 422
    error = found.json()["errors"][0]
    assert error["rule"] == "not_comparable" and "stores no records" in error["detail"]


def test_raters_who_change_places_make_another_answer(embedded):
    path = "/v1/models/places"
    embedded.post(f"{path}/predictions", {"confidences": [0.9], "ids": ["a"]})
    words = {"ids": ["a"], "raters": [["ann", "bob"]]}
    embedded.post(f"{path}/labels", words | {"labels": [[1, 0]]})
    first = embedded.client.get(f"{path}/raters", params={"metric": "accuracy"})
    again = embedded.client.get(first.url, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, first.json()["by_rater"]["ann"]["value"]) == (304, 1.0)
    embedded.post(f"{path}/labels", words | {"labels": [[0, 1]]})
    # No count of the pane is another, but who said what is.
    second = embedded.client.get(first.url, headers={"If-None-Match": first.headers["etag"]})
    assert second.status_code == 200
    assert (
        second.json()["by_rater"]["ann"]["value"],
        second.json()["by_rater"]["bob"]["value"],
    ) == (0.0, 1.0)
    embedded.post(f"{path}/labels", {"ids": ["a"], "labels": [None], "raters": ["ann"]})
    assert set(embedded.get(f"{path}/raters", metric="accuracy")["by_rater"]) == {"bob"}


def test_without_records_or_names_there_is_a_reason(embedded):
    embedded.post("/v1/models/no-labels/predictions", {"confidences": [0.2], "ids": ["a"]})
    assert embedded.get("/v1/models/no-labels/raters")["reason"] == "no_data"
    embedded.post("/v1/models/no-ids/predictions", {"confidences": [0.2, 0.7], "labels": [0, 1]})
    found = embedded.get("/v1/models/no-ids/raters")
    assert (found["reason"], found["mean_of_raters"], found["policies"], found["by_rater"]) == (
        "no_records",
        None,
        None,
        {},
    )
    assert (found["n_labelled"], found["n_records"], found["n_raters"]) == (2, 0, 0)
    embedded.post(
        "/v1/models/no-names/predictions",
        {"confidences": [0.2, 0.7], "labels": [0, 1], "ids": ["a", "b"]},
    )
    found = embedded.get("/v1/models/no-names/raters", metric="accuracy")
    assert (found["reason"], found["mean_of_raters"], found["by_rater"]) == (
        "no_named_raters",
        None,
        {},
    )
    assert found["policies"]["pooled"] == 1.0


def test_a_report_of_sealed_cohorts_has_the_readers(embedded):
    """Records are of predictions, not of cohorts: on the sealed clock none was found."""
    path, at = "/v1/models/sealed-readers", datetime.now(UTC) - timedelta(hours=6)
    settings = {"task": "binary", "label_horizon": "PT1H"}
    embedded.client.put(path, json=settings).raise_for_status()
    ids = [f"i{i}" for i in range(40)]
    labels = {"ids": ids, "labels": [[0, 1], [1, 1]] * 20, "raters": [["ann", "bob"]] * 40}
    embedded.post(f"{path}/labels", labels)
    rows = {"ids": ids, "confidences": [0.2, 0.7] * 20, "event_times": [at.isoformat()] * 40}
    embedded.post(f"{path}/predictions", rows)

    def shows_readers():
        report = embedded.client.get(f"{path}/report", params={"clock": "sealed"}).text
        return ">ann<" in report and "Reader by reader" in report

    eventually(shows_readers)
