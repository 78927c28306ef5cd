"""Errors, comparisons and figures of single cases, over HTTP against the library on the same rows."""

from __future__ import annotations

import csv
import json

import pytest

from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.segmentation.case_comparison import compare_case_errors
from calibrant.segmentation.case_errors import case_errors
from calibrant.segmentation.case_report import case_reliability, cases_of
from calibrant.stability.curves import stability
from tests.end_to_end.science import (
    SCANS,
    TISSUES,
    close,
    filled,
    sent,
)


def test_errors_over_cases_have_their_curve(scanned):
    deployment, _, pane = scanned
    found = deployment.get(f"{SCANS}/stability", metric="ml1_ace")
    expected = stability(View(pane, PaneQuery()), "ml1_ace")
    close(found, json.loads(json.dumps(expected)))
    assert (found["source"], found["n_drawn"]) == ("cases", 12)
    assert found["raters"]["pooled"]["full"] == found["baselines"]["pooled"]["value"]


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
    expected["cases"].sort(key=lambda each: (each["dice"]["mean"], -each["ece"]["mean"]))
    close(found, json.loads(json.dumps(expected)))
    assert found["n_cases"] == 12 == len({each["case"] for each in found["cases"]})


def test_cases_are_a_table_with_the_lowest_dice_first(scanned):
    deployment, _, pane = scanned
    expected = cases_of(View(pane, PaneQuery()))["cases"]
    table = deployment.client.get(f"{SCANS}/cases", headers={"Accept": "text/csv"}).text
    rows = list(csv.DictReader(table.splitlines()))
    by_name = {each["case"]: each for each in expected}
    assert [each["case"] for each in rows] == sorted(
        by_name, key=lambda name: by_name[name]["dice"]["mean"]
    )
    for row in rows:
        for name in ("dice", "ece", "ace", "mce"):
            assert float(row[name]) == pytest.approx(by_name[row["case"]][name]["mean"], abs=1e-9)


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


def test_errors_by_number_of_bins_are_those_of_each_number(scanned):
    deployment, _, _ = scanned
    found = deployment.get(
        f"{SCANS}/cases", include="sensitivity", metric="ml1_ece(membership=soft)"
    )["sensitivity"]
    assert [row["bins"] for row in found] == [5, 10, 20, 50, 100]
    twenty = deployment.get(f"{SCANS}/cases", bins=20, metric="ml1_ece(membership=soft)")["summary"]
    assert found[2]["mce"]["value"] == twenty["mce"]["macro"]["value"]


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
