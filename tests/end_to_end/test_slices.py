"""Slices that are declared, slices that are not, and those that find no room; units where pixels need them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.deployment import Deployment

# All values of an open slice key that have their own panes, but two.
OTHERS = [f"other-{number}" for number in range(48)]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(tmp_path_factory.mktemp("narrow")) as deployment:
        yield deployment


def rows(values: list[str], **columns: object) -> dict:
    n = len(values)
    return {"confidences": [0.3] * n, "labels": [1] * n, "slices": {"site": values}, **columns}


def leave_room_for_two(narrow: Deployment, model: str) -> None:
    """Fill the panes of all other values."""
    assert "slices_other" not in narrow.post(f"/v1/models/{model}/predictions", rows(OTHERS))


def by_site(narrow: Deployment, model: str, *values: str) -> dict[str, int]:
    path = f"/v1/models/{model}/metrics"
    found = {value: narrow.get(path, metrics="ece", slice=f"site:{value}") for value in values}
    return {value: response["n_predictions"] for value, response in found.items()}


def test_an_undeclared_model_takes_slices_until_there_is_no_room(narrow):
    leave_room_for_two(narrow, "open")
    assert "slices_other" not in narrow.post("/v1/models/open/predictions", rows(["A", "A", "B"]))
    result = narrow.post("/v1/models/open/predictions", rows(["A", "C", "D", "D"]))
    assert result["slices_other"] == {"site": 3}
    assert narrow.get(f"/v1/models/open/batches/{result['batch_id']}")["slices_other"] == {
        "site": 3
    }
    assert by_site(narrow, "open", "A", "B", "other") == {"A": 3, "B": 1, "other": 3}


@pytest.mark.parametrize("more", [{}, {"every": "PT1H"}, {"window": "PT2H"}])
def test_values_side_by_side_name_the_window_that_they_cover(narrow, more):
    times = ["2026-01-05T09:10:00Z", "2026-01-05T11:20:00Z"]
    narrow.post("/v1/models/spans/predictions", rows(["A", "B"], event_times=times))
    asked = {"metrics": "ece", **more} | ({"to": "2026-01-05T12:00:00Z"} if more else {})
    complete = narrow.get("/v1/models/spans/metrics", **asked)["window"]
    assert complete["from"] >= "2026-01-05T09:00:00Z"
    found = narrow.get("/v1/models/spans/metrics", **asked, by="site")
    assert found["window"] == complete and list(found["slices"]) == ["A", "B"]


def test_a_retained_prediction_stays_in_the_slice_that_it_filled(narrow):
    leave_room_for_two(narrow, "ids")
    narrow.post("/v1/models/ids/predictions", rows(["A", "B"]))
    sent = {**rows(["C"], ids=["i1"]), "labels": [None]}
    assert narrow.post("/v1/models/ids/predictions", sent)["slices_other"] == {"site": 1}
    again = narrow.post("/v1/models/ids/predictions", {**sent, "batch_id": "again"})
    assert (again["duplicate_rows"], again.get("conflicts")) == (1, None)
    narrow.post("/v1/models/ids/labels", {"ids": ["i1"], "labels": [0]})
    found = narrow.get("/v1/models/ids/metrics", metrics="accuracy", slice="site:other")
    assert (found["n_predictions"], found["n_labelled"]) == (1, 1)


def test_running_totals_of_values_without_room_do_not_replace_each_other(narrow):
    narrow.client.put("/v1/models/totals", json={"task": "binary", "grid": 2})
    leave_room_for_two(narrow, "totals")
    for value in "ABCD":
        for sequence in (1, 2):
            body = {
                "kind": "positive",
                "bins": 2,
                "count": [sequence, 0],
                "sum_confidence": [0.2 * sequence, 0],
                "sum_correct": [0, 0],
                "slice": {"site": value},
                "mode": "cumulative",
                "source": "edge",
                "epoch": 0,
                "sequence": sequence,
            }
            narrow.post("/v1/models/totals/histograms", body)
    for slice_, weight in (("site:other", 4), ("site:A", 2), (None, 8 + len(OTHERS))):
        found = narrow.get(
            "/v1/models/totals/reliability", bins=2, **({"slice": slice_} if slice_ else {})
        )
        assert sum(each["weight"] for each in found["table"]) == weight


def rejection(answer, rule: str) -> dict:
    assert answer.status_code == 422, answer.text
    [error] = answer.json()["errors"]
    assert error["rule"] == rule
    return error


def test_declared_slices_are_the_only_ones(narrow):
    settings = {"task": "binary", "slices": {"site": ["A", "B", "C"], "scanner": None}}
    narrow.client.put("/v1/models/declared", json=settings)
    path = "/v1/models/declared/predictions"
    error = rejection(narrow.client.post(path, json=rows(["A", "X"])), "undeclared_slice")
    assert error["pointer"] == "/slices/site/1"
    result = narrow.post(f"{path}?partial=true", rows(["A", "X", "B", "C"]))
    assert (result["accepted"], result["rejected"]) == (3, 1)
    assert by_site(narrow, "declared", "A", "B", "C") == {"A": 1, "B": 1, "C": 1}
    unknown = {**rows(["A"]), "slices": {"ward": ["1"]}}
    error = rejection(narrow.client.post(path, json=unknown), "undeclared_slice")
    assert error["pointer"] == "/slices/ward"
    histogram = {
        "kind": "positive",
        "bins": 3600,
        "count": [0] * 3600,
        "sum_confidence": [0] * 3600,
        "sum_correct": [0] * 3600,
        "slice": {"site": "X"},
    }
    answer = narrow.client.post("/v1/models/declared/histograms", json=histogram)
    assert rejection(answer, "undeclared_slice")["pointer"] == "/slice/site"


def test_pixels_need_units(narrow):
    narrow.client.put("/v1/models/seg", json={"task": "segmentation", "classes": 2, "grid": 2})
    pixels = {"probabilities": [[0.3, 0.7], [0.6, 0.4]], "labels": [1, 0]}
    path = "/v1/models/seg/predictions"
    error = rejection(narrow.client.post(path, json=pixels), "units_required")
    assert "not independent" in error["detail"]
    narrow.post(path, {**pixels, "cases": ["scan", "scan"]})
    narrow.post(path, {**pixels, "units": ["patient", "patient"]})
    narrow.post(path, {**pixels, "units": ["patient", "patient"]})
    histogram = {
        "kind": "top_label",
        "bins": 2,
        "count": [0, 2],
        "sum_confidence": [0, 1.3],
        "sum_correct": [0, 2],
    }
    answer = narrow.client.post("/v1/models/seg/histograms", json=histogram)
    rejection(answer, "units_required")
    narrow.post("/v1/models/seg/histograms", {**histogram, "n_units": 1})
    found = narrow.get("/v1/models/seg/metrics", metrics="accuracy")
    assert (found["unit_source"], found["n_units_split"]) == ("named", 1)
    first = narrow.get("/v1/models/ids/metrics", metrics="ece", slice="site:other")
    assert first["unit_source"] == "id"
