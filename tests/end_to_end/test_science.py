"""Metrics and results of the papers over HTTP, compared with the library on the same rows."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

import calibrant as cal
from calibrant import Batch, Pane, PaneSpec
from calibrant.calibrators.temperature.surface_report import surface_report
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import METRICS, compute_metrics
from calibrant.raters.disagreement_report import disagreement_report
from calibrant.results.base import short_estimate
from calibrant.results.roc import roc_curve
from calibrant.results.uncertainty import uncertainty_of
from calibrant.segmentation.class_histograms import ConfidenceHistogram
from calibrant.segmentation.histogram_report import histogram_report
from calibrant.segmentation.histogram_state import confidence_of, left
from calibrant.stability.curves import stability
from calibrant_server.service.reads.fleet import NOT_READY
from tests.calibrant.baselines import rater_baselines
from tests.end_to_end.science import (
    LOSSES,
    NOTIONS,
    SERVICE_SAMPLE_BYTES,
    TISSUES,
    VOTED,
    close,
)
from tests.waiting import eventually


@pytest.mark.parametrize("raters", ["pooled", "majority"])
def test_further_metrics_are_those_of_the_library(voted, raters):
    deployment, _, pane = voted
    slugs = [*NOTIONS, *LOSSES]
    found = deployment.get(f"{VOTED}/metrics", metrics=",".join(slugs), raters=raters, bins=10)
    expected = compute_metrics(View(pane, PaneQuery(bins=10, raters=raters)), slugs)
    for slug in slugs:
        close(found["metrics"][slug]["value"], expected[slug]["value"])
        assert found["metrics"][slug].get("reason") == expected[slug].get("reason"), slug


def test_bins_of_own_edges_are_those_of_the_library(voted):
    deployment, batch, pane = voted
    edges, slugs = [0, 0.4, 0.7, 0.95, 1], ["ece", "mce", "classwise_ece", "adaptive_ece"]
    query = {"bin_edges": "0,.4,0.70,.95,1"}
    found = deployment.get(f"{VOTED}/metrics", metrics=",".join(slugs), **query)["metrics"]
    rows = compute_metrics(View(pane, PaneQuery(bins=edges), batch), slugs)
    for slug in slugs[:3]:
        close(found[slug]["value"], rows[slug]["value"])
        assert found[slug]["bin_edges"] == edges
    table = deployment.get(f"{VOTED}/reliability", edges="left", **query)
    expected = pane.reliability(bins=edges, edges="left")
    assert [row["count"] for row in table["table"]] == expected.column("count").tolist()
    assert [row["lower"] for row in table["table"]] == edges[:-1]


def test_what_the_state_holds_is_near_what_the_rows_hold(voted):
    deployment, batch, pane = voted
    slugs = ["squared_loss", "epistemic_loss", "disagreement_loss", "dist_ce", "ent_ce", "macro_ce"]
    found = deployment.get(f"{VOTED}/metrics", metrics=",".join(slugs))["metrics"]
    rows = compute_metrics(View(pane, PaneQuery(), batch), slugs)
    for slug in slugs:
        bound = found[slug].get("error_bound", 0.0) + 1e-9
        assert found[slug]["value"] == pytest.approx(rows[slug]["value"], abs=bound), slug


@pytest.mark.parametrize("slug", sorted(METRICS))
def test_every_metric_is_answered(voted, slug):
    deployment, _, _ = voted
    answer = deployment.get(f"{VOTED}/metrics", metrics=slug)["metrics"][slug]
    assert answer["value"] is not None or answer["reason"]


def test_options_reach_the_metric(voted):
    deployment, _, pane = voted
    options = {"bandwidth": 0.05, "leave": "instance", "norm": 2, "loss_weight": "n"}
    slugs = ["kde_ece", "ece_sweep", "squared_loss", "calibration_loss"]
    brackets = ["bandwidth=0.05,leave=instance", "norm=2", "loss_weight=n", "loss_weight=n"]
    asked = [f"{slug}({each})" for slug, each in zip(slugs, brackets, strict=True)]
    found = deployment.get(f"{VOTED}/metrics", metrics=",".join([*asked, *slugs]))["metrics"]
    assert list(found) == [*asked, *slugs]
    expected = compute_metrics(View(pane, PaneQuery(options=options)), slugs)
    plain = compute_metrics(View(pane, PaneQuery()), slugs)
    for key, slug in zip(asked, slugs, strict=True):
        close(found[key]["value"], expected[slug]["value"])
        close(found[slug]["value"], plain[slug]["value"])
        assert found[key]["value"] != pytest.approx(plain[slug]["value"], rel=1e-6), slug


@pytest.mark.parametrize("subsets", ["nested", "independent"])
@pytest.mark.parametrize("slug", ["ece", "classwise_ece"])
def test_stability_is_that_of_the_library(voted, subsets, slug):
    deployment, _, pane = voted
    found = deployment.get(f"{VOTED}/stability", metric=slug, subsets=subsets)
    view = View(pane, PaneQuery())
    expected = stability(view, slug, subsets=subsets)
    close(found, json.loads(json.dumps(expected)))
    assert found["ratio"]["majority"]["value"] > 0 and found["reason"] is None
    assert len(found["fractions"]) == len(found["raters"]["pooled"]["curve"]) == 17


def test_single_raters_stand_beside_several(voted):
    deployment, batch, _ = voted
    found = deployment.get(f"{VOTED}/stability", metric="ece")
    expected = rater_baselines(batch, "ece")
    assert list(found["baselines"]) == ["pooled", "mean", "majority", "single"]
    for policy, answer in found["baselines"].items():
        close(answer["value"], expected["policies"][policy]["value"])
        metric = deployment.get(f"{VOTED}/metrics", metrics="ece", raters=policy)["metrics"]["ece"]
        assert answer == metric
    assert found["n_majority_ties"] == expected["n_majority_ties"]


@pytest.mark.parametrize("source", ["replicates", "sample"])
def test_the_kernel_error_has_its_curve(voted, source):
    deployment, _, pane = voted
    asked = "kde_ece(leave=instance)"
    found = deployment.get(f"{VOTED}/stability", metric=asked, source=source)
    view = View(pane, PaneQuery(options={"leave": "instance"}))
    expected = stability(view, "kde_ece", source=source) | {"metric": asked}
    close(found, json.loads(json.dumps(expected)))
    assert (
        found["exact"] is (source == "sample") and found["baselines"]["mean"]["leave"] == "instance"
    )


def test_a_metric_that_has_no_curve_has_baselines(voted):
    deployment, _, _ = voted
    found = deployment.get(f"{VOTED}/stability", metric="brier")
    assert (found["raters"], found["reason"]) == (None, "not_from_cells")
    assert found["disagreement"] == deployment.get(f"{VOTED}/stability")["disagreement"] > 0
    assert all(each["value"] is not None for each in found["baselines"].values())


def test_the_status_of_a_model_is_that_of_its_own_reads(voted):
    deployment, _, _ = voted

    def ready():
        """Return the status of the model once the workers have computed all of it: a slow machine needs a second request."""
        listed = deployment.get("/v1/models", view="status", limit=1000)["models"]
        [status] = [each for each in listed if each["model"] == "votes"]
        return status if status["reason"] != NOT_READY else None

    found = eventually(ready)
    metrics = deployment.get(f"{VOTED}/metrics", metrics="ece", window="P7D")
    assert found["error"] == short_estimate(metrics["metrics"]["ece"])
    assert found["error"]["null_q95"] > 0
    temperature = deployment.get(f"{VOTED}/temperature", window="P7D")
    assert found["temperature"] == temperature["temperature"] > 0
    assert found["status"] == deployment.get(f"{VOTED}/drift")["status"]
    assert (found["label_coverage"], found["map_version"], found["reason"]) == (1.0, None, None)
    assert metrics["window"]["from"] <= found["last_seen"] < metrics["window"]["to"]


def test_a_window_without_data_has_no_curve(voted):
    deployment, _, _ = voted
    window = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"}
    found = deployment.get(f"{VOTED}/stability", **window)
    assert (found["raters"], found["n"], found["reason"]) == (None, 0, "too_few_units")
    found = deployment.get(f"{VOTED}/cases", **window)
    assert (found["cases"], found["n_cases"], found["reason"]) == ([], 0, "no_cases")


@pytest.mark.parametrize("scope", ["top_label", "class:2"])
def test_the_roc_curve_is_that_of_the_library(voted, scope):
    deployment, _, pane = voted
    found = deployment.get(f"{VOTED}/roc", scope=scope, raters="mean", points=50)
    view = View(pane, PaneQuery(scope=scope, raters="mean"))
    close(found, roc_curve(view, 50).to_dict())
    close(found["area"], compute_metrics(view, ["auc"])["auc"])
    metric = deployment.get(f"{VOTED}/metrics", metrics="auc", scope=scope, raters="mean")
    assert metric["metrics"]["auc"]["value"] == found["auc"] == found["area"]["value"]


def test_uncertainty_is_that_of_the_library(voted):
    deployment, _, pane = voted
    found = deployment.get(f"{VOTED}/uncertainty", bins=10)
    close(found, uncertainty_of(View(pane, PaneQuery(bins=10))).to_dict())
    rejected = deployment.client.get(f"{VOTED}/uncertainty", params={"bins": 9})
    assert (rejected.status_code, rejected.json()["errors"][0]["rule"]) == (422, "bins_not_exact")


def test_a_confidence_histogram_goes_out_and_in(voted):
    deployment, batch, pane = voted
    found = deployment.get(f"{VOTED}/confidence-histogram", bins=240)
    close(found, confidence_of(View(pane, left(240, "pooled"))))
    sent = {
        "kind": "confidence",
        "n_units": 900,
        **{name: found[name] for name in ("label", "prediction")},
    }
    other = "/v1/models/histograms"
    made = deployment.client.put(other, json={"task": "multiclass", "classes": 3, "grid": 240})
    assert made.status_code == 201, made.text
    reported = deployment.post(f"{other}/histograms", sent)
    assert reported["accepted"] == 1
    again = deployment.get(f"{other}/confidence-histogram", bins=240)
    close(again["label"], found["label"])
    close(again["prediction"], found["prediction"])
    query = {"metrics": "ece(edges=left),classwise_ece(edges=left),auc(edges=left)", "bins": 20}
    mine, theirs = (
        deployment.get(f"{each}/metrics", **query)["metrics"] for each in (VOTED, other)
    )
    for slug in ("ece(edges=left)", "classwise_ece(edges=left)"):
        assert theirs[slug]["value"] == pytest.approx(mine[slug]["value"], abs=0.5 / 240)
    auc = "auc(edges=left)"
    assert abs(theirs[auc]["value"] - mine[auc]["value"]) <= theirs[auc]["error_bound"]
    body = {name: found[name] for name in ("label", "prediction", "uncertainty", "exact")}
    scored = deployment.client.post(
        "/v1/score/confidence-histogram", json=body, params={"min_count": 0}
    ).json()
    histogram = ConfidenceHistogram.of_batch(batch, 240)
    close(
        scored["errors"]["prediction"], histogram_report(histogram, least=0)["errors"]["prediction"]
    )
    exact = deployment.get(f"{VOTED}/metrics", metrics="nll")["metrics"]["nll"]["value"]
    assert scored["nll"]["exact_mean"] == pytest.approx(exact, abs=1e-9)
    few = deployment.client.post(
        "/v1/score/confidence-histogram", json={"label": [[[1, 0], [0, 1]], [[1, 0], [0, 1]]]}
    )
    assert (few.status_code, few.json()["errors"]["bins"]) == (200, 2)
    packed = {"packed": base64.b64encode(histogram.pack()).decode()}
    full = deployment.client.post("/v1/score/confidence-histogram", json=packed).json()
    close(full, json.loads(json.dumps(histogram_report(histogram))))


@pytest.mark.parametrize(
    ("body", "pointer", "rule"),
    [
        ({"label": [[[1], [0]]]}, "/label", "shape"),
        ({"packed": "!"}, "/packed", "base64"),
        ({"packed": "AAAA"}, "/packed", "packed"),
        ({"packed": "AAAA", "label": []}, "/packed", "one_of"),
        ({"labels": []}, "/labels", "unknown_field"),
    ],
)
def test_confidence_histograms_that_break_a_rule(voted, body, pointer, rule):
    deployment, _, _ = voted
    for url, more, at in (
        ("/v1/score/confidence-histogram", {}, ""),
        (f"{VOTED}/histograms", {"kind": "confidence"}, ""),
    ):
        rejected = deployment.client.post(url, json=more | body)
        error = rejected.json()["errors"][0]
        assert (rejected.status_code, error["pointer"], error["rule"]) == (
            422,
            at + pointer,
            rule,
        ), url


def test_measures_against_ratings_are_returned_together(voted):
    deployment, _, _ = voted
    found = deployment.get(f"{VOTED}/label-distribution")
    metrics = deployment.get(f"{VOTED}/metrics", metrics="ent_ce,dist_ce,rank_cs")["metrics"]
    for slug, each in metrics.items():
        close(found[slug]["value"], each["value"])
    assert sum(found["ent_ce"]["histogram"]["weight"]) == pytest.approx(900)


def test_losses_over_two_temperatures(voted):
    deployment, _, _ = voted
    rng = np.random.default_rng(3)
    z = rng.normal(0, 2, (300, 2))
    columns = {"logits": z.tolist(), "labels": (rng.random(300) > 0.5).astype(int).tolist()}
    url = "/v1/models/two/temperature/surface"
    assert (
        deployment.client.put(
            "/v1/models/two", json={"task": "multiclass", "classes": 2}
        ).status_code
        == 201
    )
    deployment.post("/v1/models/two/predictions", columns)
    found = deployment.get(url, points=4)
    pane = Pane(PaneSpec("multiclass", 2))
    pane.fill_batch(Batch.from_columns(columns, task="multiclass").batch)
    close(found, surface_report(View(pane, PaneQuery(edges="left")), points=4))
    assert found["source"] == "sample"
    drawn = {
        deployment.client.get(url, params={"points": 4, "format": "svg", "objective": each}).content
        for each in ("nll", "brier", "ece")
    }
    assert len(drawn) == 3
    assert deployment.client.get(f"{VOTED}/temperature/surface").status_code == 422


@pytest.mark.parametrize(
    "read",
    [
        "temperature",
        "calibration-map",
        "stability",
        "disagreement",
        "uncertainty",
        "confidence-histogram",
        "label-distribution",
    ],
)
def test_answers_are_drawn(voted, read):
    deployment, _, _ = voted
    url = f"{VOTED}/{read}"
    svg = deployment.client.get(url, params={"format": "svg"})
    assert svg.headers["content-type"].startswith("image/svg+xml") and b"</svg>" in svg.content
    assert deployment.client.get(url).headers["etag"] != svg.headers["etag"]


def test_disagreement_is_that_of_the_library(voted):
    deployment, _, pane = voted
    slugs = ("disagreement_loss", "disagreement_ce", "epistemic_loss")
    metrics = deployment.get(f"{VOTED}/metrics", metrics=",".join(slugs))["metrics"]
    found = deployment.get(f"{VOTED}/disagreement")
    expected = disagreement_report(View(pane, PaneQuery()))
    close(found, json.loads(json.dumps(expected)))
    for slug in slugs:
        close(metrics[slug]["value"], expected[slug])
    close(deployment.get(f"{VOTED}/stability")["disagreement"], expected["rater_disagreement"])


def equal(found, expected, where: str) -> None:
    """Counts and words are equal, values to 1e-12, intervals, nulls and further results to 1e-9."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), where
        for name in expected:
            equal(found[name], expected[name], f"{where}/{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            equal(one, other, f"{where}/{i}")
    elif isinstance(expected, float):
        tolerance = 1e-12 if where.endswith("/value") else 1e-9
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance), where
    else:
        assert found == expected, where


def arguments_of(columns: dict) -> dict:
    """The columns of a request as arguments of the library."""
    return {
        "probabilities" if name == "confidences" else name: values
        for name, values in columns.items()
    }


def test_the_library_gives_the_numbers_of_the_service(voted, scanned):
    """Of every metric: functions of arrays those of a posted batch, and a pane those of a window."""
    deployment, voted_batch, _ = voted
    _, scanned_batch, _ = scanned
    rng = np.random.default_rng(29)
    p = rng.random(300)
    binary = {
        "confidences": p.tolist(),
        "labels": (rng.random(300) < p**2).astype(int).tolist(),
        "ids": [f"id{i}" for i in range(300)],
        "units": [f"unit{i // 2}" for i in range(300)],
        "weights": (1.0 + rng.random(300)).tolist(),
    }
    voted_columns = {
        "probabilities": voted_batch.scores.tolist(),
        "label_counts": voted_batch.label_counts.tolist(),
    }
    scanned_columns = {
        "probabilities": scanned_batch.scores.tolist(),
        "label_counts": scanned_batch.label_counts.tolist(),
        "cases": scanned_batch.cases.tolist(),
    }
    answer = deployment.client.put("/v1/models/plain-binary", json={"task": "binary", "classes": 2})
    assert answer.status_code == 201
    deployment.post("/v1/models/plain-binary/predictions", binary)
    slugs = ",".join(METRICS)
    models = {
        "votes": (voted_columns, PaneSpec("multiclass", 3)),
        "scans": (scanned_columns, PaneSpec("segmentation", 3)),
        "plain-binary": (binary, PaneSpec("binary", 2)),
    }
    for model, (columns, spec) in models.items():
        arguments = arguments_of(columns)
        rows = cal.evaluate(**arguments, metrics=list(METRICS)).to_dict()
        # All at once would cost more than a request may.
        for start in range(0, len(METRICS), 10):
            some = list(METRICS)[start : start + 10]
            scored = deployment.client.post(
                "/v1/score", params={"metrics": ",".join(some)}, json=columns
            )
            assert scored.status_code == 200, scored.text
            for key, found in scored.json()["metrics"].items():
                equal({key: rows["metrics"][key]}, {key: found}, f"{model}, rows")
        equal(
            cal.reliability(**arguments).to_dict(), scored.json()["reliability"], f"{model}, table"
        )
        equal(
            cal.fit_temperature(**arguments).to_dict(), scored.json()["temperature"], f"{model}, T"
        )
        window = deployment.get(f"/v1/models/{model}/metrics", metrics=slugs)
        pane = cal.Pane.fill(**arguments, spec=spec, sample_bytes=SERVICE_SAMPLE_BYTES)
        for result, kind, asked in (
            (pane.reliability(), "reliability", {}),
            (pane.temperature(), "temperature", {"include": "curve"}),
        ):
            served = deployment.get(f"/v1/models/{model}/{kind}", **asked)
            shown = result.to_dict()
            equal(shown, {name: served[name] for name in shown}, f"{model}, pane, {kind}")
        found = pane.evaluate(list(METRICS)).to_dict()
        for each in found["metrics"].values():
            if "classes" in each:
                each["classes"] = (
                    [TISSUES[int(k)] for k in each["classes"]]
                    if model == "scans"
                    else each["classes"]
                )
        equal(found["metrics"], window["metrics"], f"{model}, pane")
        for name in found.keys() & window.keys() - {"metrics"}:
            equal(found[name], window[name], f"{model}, pane, {name}")
        assert {
            "n_predictions",
            "n_labelled",
            "n_ratings",
            "n_units",
            "n_units_split",
        } <= found.keys() & window.keys()
