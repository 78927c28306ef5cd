"""What is rejected leaves no trace, and what is taken can be read."""

from __future__ import annotations

import pytest

ROWS = {"probabilities": [[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]], "labels": [0, 1]}


@pytest.mark.parametrize(
    ("noun", "body", "pointer"),
    [
        (
            "predictions",
            ROWS | {"event_times": ["1969-12-31T23:30:00Z", "2026-01-01T00:00:00Z"]},
            "/event_times/0",
        ),
        ("predictions", ROWS | {"slices": {"site:x": ["A", "A"]}}, "/slices/site:x"),
        (
            "histograms",
            {
                "kind": "top_label",
                "bins": 10,
                "count": [1e-9] * 10,
                "sum_confidence": [9e-7] * 10,
                "sum_correct": [9e-7] * 10,
            },
            "/sum_confidence/0",
        ),
        (
            "histograms",
            {
                "kind": "top_label",
                "bins": 10,
                "count": [0] * 10,
                "sum_confidence": [0] * 10,
                "sum_correct": [0] * 10,
                "n_predictions": [9007199254740992] * 10,
            },
            "/n_predictions",
        ),
    ],
)
def test_rejected_and_nothing_changed(embedded, noun, body, pointer):
    embedded.client.put(
        "/v1/models/refusing", json={"task": "multiclass", "classes": 3, "grid": 10}
    )
    before = embedded.get("/v1/models/refusing/metrics", metrics="ece")
    answer = embedded.client.post(f"/v1/models/refusing/{noun}", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)
    after = embedded.get("/v1/models/refusing/metrics", metrics="ece")
    assert after["n_predictions"] == before["n_predictions"]
    assert after["metrics"] == before["metrics"]


def test_a_coarse_model_answers_without_a_request_of_how_many_bins(embedded):
    for grid, bins in ((10, 10), (7, 7), (16384, 16)):
        model = f"coarse-{grid}"
        embedded.client.put(
            f"/v1/models/{model}", json={"task": "multiclass", "classes": 3, "grid": grid}
        )
        embedded.post(f"/v1/models/{model}/predictions", ROWS)
        assert embedded.get(f"/v1/models/{model}/reliability")["bins"] == bins
        for path in ("metrics", "temperature", "calibration-map"):
            embedded.get(f"/v1/models/{model}/{path}")


@pytest.mark.parametrize(("grid", "fine"), [(7, 7), (16384, 128)])
def test_tables_of_their_own_cells_are_read_whatever_the_grid_of_the_scope(embedded, grid, fine):
    """Uncertainty, disagreement and cases are kept in 240, 120 and 600 cells beside any model's grid."""
    rows = {
        "probabilities": [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]] * 4,
        "labels": [[0, 1], [1, 1], [2, 0]] * 4,
        "cases": ["left", "right"] * 6,
        "batch_id": "one",
    }
    plain, coarse = "/v1/models/own-cells", f"/v1/models/own-cells-{grid}"
    for model, about in ((plain, {}), (coarse, {"grid": grid})):
        embedded.client.put(model, json={"task": "segmentation", "classes": 3, **about})
        embedded.post(f"{model}/predictions", rows)
    about_state = {"model", "state_version", "window"}
    for path, params in (
        ("cases", {}),
        ("cases", {"include": "sensitivity", "case": "left"}),
        ("cases", {"bins": 100}),
        ("confidence-histogram", {"case": "left"}),
        ("disagreement", {}),
        ("disagreement", {"bins": 120}),
        ("label-distribution", {}),
    ):
        expected, found = (embedded.get(f"{model}/{path}", **params) for model in (plain, coarse))
        assert {k: v for k, v in found.items() if k not in about_state} == {
            k: v for k, v in expected.items() if k not in about_state
        }, path
    # Their null reference is drawn with the seed of the state, which no two models share.
    tables = [embedded.get(f"{model}/uncertainty", bins=240)["table"] for model in (plain, coarse)]
    assert tables[0] == tables[1] and len(tables[1]) == 240
    embedded.get(f"{coarse}/cases", against="model:own-cells")
    histogram = embedded.get(f"{coarse}/confidence-histogram")
    assert histogram["bins"] == fine and histogram["mass"] == 24.0
    for path, allowed in (
        ("uncertainty", "80, 120, 240"),
        ("disagreement", "40, 60, 120"),
        ("cases", "200, 300, 600"),
    ):
        answer = embedded.client.get(f"{coarse}/{path}", params={"bins": 77})
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert (error["pointer"], error["rule"]) == ("/bins", "bins_not_exact")
        assert allowed in error["detail"] and "(" not in error["detail"]


def test_weights_of_nothing_are_no_number(embedded):
    embedded.post("/v1/models/weightless/predictions", ROWS | {"weights": [0, 0]})
    for slug in ("squared_loss", "refinement_loss", "ece", "brier"):
        found = embedded.get("/v1/models/weightless/metrics", metrics=slug)["metrics"][slug]
        assert found["value"] is None and found["reason"]


@pytest.mark.parametrize(
    "query",
    [
        "from=0001-01-01T00:00:00%2B23:59",
        "to=9999-12-31T23:59:59-23:59",
        "window=PT5H&to=1960-01-01T00:00:00Z",
    ],
)
def test_timestamps_beyond_the_calendar_are_no_failure_of_ours(embedded, query):
    embedded.post("/v1/models/calendar/predictions", ROWS)
    assert embedded.client.get(f"/v1/models/calendar/metrics?{query}").status_code < 500


def test_a_model_has_classes(embedded):
    for classes in (0, []):
        answer = embedded.client.put(
            "/v1/models/classless", json={"task": "multiclass", "classes": classes}
        )
        assert answer.status_code == 422, answer.text
