"""What the seeds ask for beyond the usual metrics, over HTTP against the ground functions on the same rows."""

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
from calibrant.estimators.roc import roc
from calibrant.metrics import METRICS, compute_metrics
from calibrant.raters.disagreement_report import disagreement_report
from calibrant.report_uncertainty import uncertainty
from calibrant.segmentation.case_comparison import compare_case_errors
from calibrant.segmentation.case_errors import case_errors
from calibrant.segmentation.case_report import case_reliability, cases_of
from calibrant.segmentation.confidence_histogram import ConfidenceHistogram
from calibrant.segmentation.histogram_report import histogram_report
from calibrant.segmentation.histogram_state import confidence_of, left
from calibrant.stability.curves import stability
from calibrant.stability.rater_baselines import rater_baselines
from calibrant_server.service.reads.computed_statuses import NOT_READY
from tests.waiting import eventually

NOTIONS = (
    *("ece_sweep", "nixon_ace", "tace", "macro_ce", "kde_ece", "smooth_ece", "ks", "kuiper", "uce"),
    *(
        "overconfidence_error",
        "ent_ce",
        "rank_cs",
        "dist_ce",
        "spiegelhalter_z",
        "corp_uncertainty",
    ),
    *("lp_ece", "zhang_kde_ece", "canonical_ce", "skce", "rater_statistic"),
)
LOSSES = (
    *("squared_loss", "epistemic_loss", "irreducible_loss", "calibration_loss", "grouping_loss"),
    *("refinement_loss", "disagreement_loss", "disagreement_ce"),
)
# As much as the service stores of a model and day: its results on the stored sample are those of a pane with this bound.
SERVICE_SAMPLE_BYTES = 1 << 20
VOTED, SCANS = "/v1/models/votes", "/v1/models/scans"
TISSUES = ["background", "liver", "tumour"]


def close(found, expected) -> None:
    """Both are the same JSON; numbers may differ by the order in which they were added."""
    if isinstance(expected, dict):
        assert set(found) >= set(expected)
        for name in expected:
            close(found[name], expected[name])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert found == expected


def filled(columns: dict, task: str) -> tuple[Batch, Pane]:
    batch = Batch.from_columns(columns, task=task).batch
    pane = Pane(PaneSpec(task, 3), sample_bytes=SERVICE_SAMPLE_BYTES)
    pane.fill_batch(batch)
    return batch, pane


def sent(deployment, url: str, columns: dict, n_parts: int = 3) -> None:
    """Send a batch in parts, once: two files share the fixtures below, and the deployment if one process runs both."""
    n = len(columns["probabilities"])
    for number, part in enumerate(np.array_split(np.arange(n), n_parts)):
        body = {name: [values[i] for i in part] for name, values in columns.items()}
        deployment.post(f"{url}/predictions", {**body, "batch_id": f"part-{number}"})


@pytest.fixture(scope="module")
def voted(embedded):
    """Nine hundred overconfident rows with two to six votes each."""
    rng = np.random.default_rng(17)
    truth = rng.dirichlet(np.ones(3), 900)
    sharp = truth**2 / (truth**2).sum(axis=1, keepdims=True)
    ratings = [rng.multinomial(rng.integers(2, 7), row).tolist() for row in truth]
    columns = {"probabilities": sharp.tolist(), "label_counts": ratings}
    sent(embedded, VOTED, columns)
    return embedded, *filled(columns, "multiclass")


@pytest.fixture(scope="module")
def scanned(embedded):
    """Twelve scans of 150 pixels, three raters, the tumour in half of them."""
    rng = np.random.default_rng(23)
    rows, labels, cases = [], [], []
    for case in range(12):
        p = rng.dirichlet([2.0, 1.0, 0.6 if case % 2 else 0.05], 150)
        rows += p.tolist()
        seen = p if case % 2 else p * [1.0, 1.0, 0.0]
        seen = seen / seen.sum(axis=1, keepdims=True)
        draws = (seen.cumsum(axis=1)[:, None, :] < rng.random((150, 3, 1))).sum(axis=2)
        labels += np.minimum(draws, 2).tolist()
        cases += [f"scan-{case}"] * 150
    columns = {"probabilities": rows, "labels": labels, "cases": cases}
    answer = embedded.client.put(SCANS, json={"task": "segmentation", "classes": TISSUES})
    assert answer.status_code in (200, 201), answer.text
    sent(embedded, SCANS, columns, 4)
    return embedded, *filled(columns, "segmentation")


@pytest.mark.parametrize("raters", ["pooled", "majority"])
def test_further_metrics_are_those_of_the_library(voted, raters):
    deployment, _, pane = voted
    slugs = [*NOTIONS, *LOSSES]
    found = deployment.get(f"{VOTED}/metrics", metrics=",".join(slugs), raters=raters, bins=10)
    expected = compute_metrics(View(pane, PaneQuery(bins=10, raters=raters)), slugs)
    for slug in slugs:
        close(found["metrics"][slug]["value"], expected[slug]["value"])
        assert found["metrics"][slug].get("reason") == expected[slug].get("reason"), slug


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


def test_errors_over_cases_have_their_curve(scanned):
    deployment, _, pane = scanned
    found = deployment.get(f"{SCANS}/stability", metric="ml1_ace")
    expected = stability(View(pane, PaneQuery()), "ml1_ace")
    close(found, json.loads(json.dumps(expected)))
    assert (found["source"], found["n_drawn"]) == ("cases", 12)
    assert found["raters"]["pooled"]["full"] == found["baselines"]["pooled"]["value"]


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
    assert found["error"] == metrics["metrics"]["ece"] and found["error"]["null_q95"] > 0
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


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bins": 20, "raters": "majority", "options": {"edges": "left", "missing": "skip_class"}},
        {"bins": 10, "frequency_bins": 5, "options": {"membership": "soft", "background": "in"}},
        {"bins": 20, "min_count": 20.0},
    ],
)
def test_cases_are_those_of_the_library(scanned, options):
    deployment, _, pane = scanned
    plain = dict(options)
    asked = plain.pop("options", {})
    brackets = ",".join(f"{name}={value}" for name, value in asked.items())
    frequency_bins = plain.pop("frequency_bins", None)
    figure = f"histogram(frequency_bins={frequency_bins})" if frequency_bins else "histogram"
    min_count = plain.pop("min_count", None)
    if min_count:
        figure = f"reliability(min_count={min_count:g})"
    found = deployment.get(f"{SCANS}/cases", **plain, figure=figure, metric=f"ml1_ece({brackets})")
    plain |= {name: asked.pop(name) for name in ("edges",) if name in asked}
    pane_query = PaneQuery(**plain, min_count=min_count or 0, options=asked)
    expected = cases_of(View(pane, pane_query), frequency_bins)
    assert bool(min_count) == any(row["n_left_out"] for row in expected["reliability"])
    expected["classes"] = [TISSUES[int(k)] for k in expected["classes"]]
    close(found, json.loads(json.dumps(expected)))
    assert found["n_cases"] == 12
    assert [each["case"] for each in found["cases"]] == sorted(f"scan-{k}" for k in range(12))


@pytest.fixture(scope="module")
def blunted(scanned):
    """A second model, less sure of itself, over the first eight scans."""
    deployment, batch, _ = scanned
    blunt = 0.7 * batch.probabilities[:1200] + 0.1
    columns = {
        "probabilities": blunt.tolist(),
        "label_counts": batch.label_counts[:1200].tolist(),
        "cases": [f"scan-{i // 150}" for i in range(1200)],
    }
    made = {"task": "segmentation", "classes": TISSUES}
    assert deployment.client.put("/v1/models/blunt", json=made).status_code == 201
    sent(deployment, "/v1/models/blunt", columns)
    return columns


def test_models_are_compared_over_their_cases(scanned, blunted):
    deployment, _, pane = scanned
    found = deployment.get(
        f"{SCANS}/cases", against="model:blunt", metric="ml1_ece(membership=soft)"
    )
    other = filled(blunted, "segmentation")[1]
    views = [View(each, PaneQuery(options={"membership": "soft"})) for each in (pane, other)]
    expected = compare_case_errors(*(case_errors(view) for view in views))
    for measure in expected.values():
        for each in measure["by_class"]:
            each["class"] = TISSUES[int(each["class"])]
    close(found["comparison"], expected)
    ace = found["comparison"]["ace"]
    assert (ace["n"], len(ace["only_here"]), ace["only_there"], found["n_cases"]) == (8, 4, [], 12)
    rejected = deployment.client.get(f"{SCANS}/cases", params={"against": "model:nobody"})
    assert rejected.status_code == 404
    nothing = deployment.get(f"{SCANS}/cases", against="model:blunt", to="2020-01-01T00:00:00Z")
    assert (nothing["comparison"], nothing["comparison_reason"]) == (None, "no_cases")


def test_cases_are_paired_with_a_baselines(scanned):
    deployment, _, _ = scanned
    made = deployment.client.put(f"{SCANS}/baselines/frozen", json={"window": "P7D"})
    assert made.status_code == 201, made.text
    found = deployment.get(f"{SCANS}/cases", against="baseline:frozen")
    ace = found["comparison"]["ace"]
    assert (found["against"], ace["n"], ace["difference"], ace["reason"]) == (
        {"baseline": "frozen"},
        12,
        0.0,
        "constant_difference",
    )


def test_cases_and_metrics_agree(scanned):
    deployment, _, _ = scanned
    slugs = ("ml1_ece", "ml1_ace", "ml1_mce")
    for binning in ("hard", "soft"):
        summary = deployment.get(f"{SCANS}/cases", metric=f"ml1_ece(membership={binning})")[
            "summary"
        ]
        for average in ("macro", "micro", "micro_pooled"):
            asked = ",".join(f"{slug}(average={average})" for slug in slugs)
            found = deployment.get(f"{SCANS}/metrics", metrics=asked, binning=binning)["metrics"]
            found = {key.partition("(")[0]: each for key, each in found.items()}
            for slug in slugs:
                assert found[slug]["value"] == summary[slug.removeprefix("ml1_")][average]["value"]
                assert found[slug]["classes"] == (
                    TISSUES if found[slug]["background"] == "in" else TISSUES[1:]
                )


def test_one_case_has_its_table(scanned):
    deployment, _, pane = scanned
    found = deployment.get(f"{SCANS}/cases", case="scan-3")["case"]
    expected = case_reliability(View(pane, PaneQuery()), "scan-3")
    for each in expected["classes"]:
        each["class"] = TISSUES[int(each["class"])]
    close(found, expected)
    unknown = deployment.client.get(f"{SCANS}/cases", params={"case": "scan-99"})
    assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (422, "/case")


def test_bins_that_kept_cases_cannot_give_are_rejected(scanned):
    deployment, _, _ = scanned
    answer = deployment.client.get(
        f"{SCANS}/cases", params={"bins": 8, "metric": "ml1_ece(membership=soft)"}
    )
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["pointer"], error["rule"]) == (422, "/bins", "bins_not_exact")
    assert "10, 12, 15, 20" in error["detail"]


@pytest.mark.parametrize("figure", ["histogram", "boxes", "reliability", "case", "sensitivity"])
def test_cases_are_drawn(scanned, figure):
    deployment, _, _ = scanned
    url, asked = f"{SCANS}/cases", {"figure": figure}
    if figure == "case":
        assert deployment.client.get(url, params=asked).status_code == 422
        asked["case"] = "scan-3"
    svg = deployment.client.get(url, params=asked | {"format": "svg"})
    assert svg.headers["content-type"].startswith("image/svg+xml") and b"</svg>" in svg.content
    png = deployment.client.get(url, params=asked, headers={"Accept": "image/png"})
    assert png.content.startswith(b"\x89PNG") and png.headers["content-type"] == "image/png"
    tags = {each.headers["etag"] for each in (svg, png, deployment.client.get(url))}
    assert len(tags) == 3
    known = {"If-None-Match": svg.headers["etag"]}
    again = deployment.client.get(url, params=asked | {"format": "svg"}, headers=known)
    assert again.status_code == 304


def test_one_class_is_drawn_by_its_name(scanned):
    deployment, _, _ = scanned
    url = f"{SCANS}/cases"
    drawn = [
        deployment.client.get(url, params={"format": "svg", **more}).content
        for more in (
            {},
            {"figure": "histogram(class=liver)"},
            {"figure": "histogram(class=tumour)"},
            {"figure": "histogram(class=2)"},
        )
    ]
    assert len(set(drawn)) == 3 and drawn[2] == drawn[3]
    background = {"format": "svg", "figure": "histogram(class=background)"}
    assert deployment.client.get(url, params=background).status_code == 422


def test_cases_have_pages(scanned):
    deployment, _, _ = scanned
    url = f"{SCANS}/cases"
    complete = deployment.client.get(url)
    assert complete.json()["next"] is None and "link" not in complete.headers
    pages, cursor = [], {}
    while cursor is not None:
        page = deployment.client.get(url, params={"limit": 5, **cursor})
        found = page.json()
        pages.append(found["cases"])
        assert found["summary"] == complete.json()["summary"]
        known = {"If-None-Match": page.headers["etag"]}
        again = deployment.client.get(url, params={"limit": 5, **cursor}, headers=known)
        assert again.status_code == 304
        cursor = {"cursor": found["next"]} if found["next"] else None
        if cursor:
            link, _, relation = page.headers["link"].partition("; ")
            assert relation == 'rel="next"'
            assert deployment.client.get(link.strip("<>")).json()["cases"][0] not in found["cases"]
    assert [len(each) for each in pages] == [5, 5, 2]
    assert [case for page in pages for case in page] == complete.json()["cases"]
    assert deployment.client.get(url, params={"cursor": "x"}).status_code == 422


@pytest.mark.parametrize("scope", ["top_label", "class:2"])
def test_the_roc_curve_is_that_of_the_library(voted, scope):
    deployment, _, pane = voted
    found = deployment.get(f"{VOTED}/roc", scope=scope, raters="mean", points=50)
    view = View(pane, PaneQuery(scope=scope, raters="mean"))
    close(found, roc(view, 50))
    close(found["area"], compute_metrics(view, ["auc"])["auc"])
    metric = deployment.get(f"{VOTED}/metrics", metrics="auc", scope=scope, raters="mean")
    assert metric["metrics"]["auc"]["value"] == found["auc"] == found["area"]["value"]


def test_uncertainty_is_that_of_the_library(voted):
    deployment, _, pane = voted
    found = deployment.get(f"{VOTED}/uncertainty", bins=10)
    close(found, uncertainty(View(pane, PaneQuery(bins=10))))
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


def test_errors_by_number_of_bins_are_those_of_each_number(scanned):
    deployment, _, _ = scanned
    found = deployment.get(
        f"{SCANS}/cases", include="sensitivity", metric="ml1_ece(membership=soft)"
    )["sensitivity"]
    assert [row["bins"] for row in found] == [5, 10, 20, 50, 100]
    twenty = deployment.get(f"{SCANS}/cases", bins=20, metric="ml1_ece(membership=soft)")["summary"]
    assert found[2]["mce"]["value"] == twenty["mce"]["macro"]["value"]


def test_measures_against_ratings_are_returned_together(voted):
    deployment, _, _ = voted
    found = deployment.get(f"{VOTED}/label-distribution")
    metrics = deployment.get(f"{VOTED}/metrics", metrics="ent_ce,dist_ce,rank_cs")["metrics"]
    for slug, each in metrics.items():
        close(found[slug]["value"], each["value"])
    assert sum(found["ent_ce"]["histogram"]["weight"]) == pytest.approx(900)


def test_models_stand_side_by_side(scanned, blunted):
    deployment, _, _ = scanned
    found = deployment.get(f"{SCANS}/comparison", models="blunt")
    assert found["models"] == ["scans", "blunt"]
    for slug, by_model in found["relative"].items():
        assert max(by_model.values()) == 1.0, slug
    dice = deployment.get(f"{SCANS}/metrics", metrics="dice")["metrics"]["dice"]
    assert found["metrics"]["scans"]["metrics"]["dice"] == dice
    assert dice["value"] == deployment.get(f"{SCANS}/cases")["summary"]["dice"]["macro"]["value"]
    drawn = deployment.client.get(
        f"{SCANS}/comparison", params={"models": "blunt", "format": "svg"}
    )
    assert b"</svg>" in drawn.content
    known = {"If-None-Match": drawn.headers["etag"]}
    url = f"{SCANS}/comparison?models=blunt&format=svg"
    assert deployment.client.get(url, headers=known).status_code == 304
    for models in ("scans", "a,b,c,d,e,f", ""):
        assert deployment.client.get(
            f"{SCANS}/comparison", params={"models": models}
        ).status_code in (404, 422)


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
