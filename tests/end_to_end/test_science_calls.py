"""Every row of the page of the science is requested over HTTP as the page says; the rows' own tests compare the numbers."""

from __future__ import annotations

import base64
import re
from typing import Any

import numpy as np
import pytest

from calibrant.metrics import METRICS, requested
from calibrant.segmentation.class_histograms import ConfidenceHistogram
from tests.end_to_end.posted_calls import POSTS, pooled_ece
from tests.end_to_end.science import SCANS, VOTED
from tests.test_science_page import MAKEFILE, ROOT, ROWS, quoted

# What stored state has no result for, and posted rows have.
NEEDS_ROWS = {"needs_raw_rows", "needs_rows"}
MODEL = "/v1/models/{model}/"
UNITED = "/v1/models/unions"
# Endpoints that need a parameter, or another model than the one with several raters.
ENDPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "cases": (SCANS, {"bins": 20}),
    "comparison": (SCANS, {"models": "votes", "metrics": "ece"}),
    "confidence-histogram": (SCANS, {"bins": 20, "case": "scan-1"}),
    "temperature/surface": (SCANS, {}),
}
ROWS_OF = {"bins": 10}
# Calls with a body are the same in every row that names them: each is made once.
MADE: set[str] = set()


@pytest.fixture(scope="module")
def posted(scanned) -> dict[str, Any]:
    """The rows of two scans with named raters, and logits for what needs them."""
    _, batch, _ = scanned
    counts = batch.label_counts[:300]
    labels = [[k for k, n in enumerate(row) for _ in range(n)] for row in counts.tolist()]
    return {
        "probabilities": batch.probabilities[:300].tolist(),
        "labels": labels,
        "raters": [["ann", "bob", "eve"]] * 300,
        "cases": [str(case) for case in batch.cases[:300]],
    }


@pytest.fixture(scope="module")
def united(scanned) -> str:
    """The scans under a model that declares a union of two classes."""
    deployment, batch, _ = scanned
    settings = {
        "task": "segmentation",
        "classes": ["background", "liver", "tumour"],
        "composites": {"whole": ["liver", "tumour"]},
    }
    made = deployment.client.put(UNITED, json=settings)
    assert made.status_code == 201, made.text
    columns = {
        "probabilities": batch.probabilities.tolist(),
        "label_counts": batch.label_counts.tolist(),
        "cases": [str(each) for each in batch.cases],
    }
    deployment.post(f"{UNITED}/predictions", columns)
    return UNITED


def test_every_call_with_a_body_is_named_by_a_row() -> None:
    named = {name for cells in ROWS.values() for name in quoted(cells[3])}
    assert {name for name in named if name.startswith(("POST ", "PUT "))} == set(POSTS)


def value_of(deployment: Any, request: str, posted: dict[str, Any]) -> None:
    (asked,) = requested(request)
    model = SCANS if "cases" in asked.metric.needs else VOTED
    if dict(asked.options).get("regions") == "composites":
        model = UNITED
    answer = deployment.get(f"{model}/metrics", metrics=request)["metrics"][asked.key]
    if answer["value"] is None:
        assert answer["reason"] in NEEDS_ROWS, (request, answer)
        found = deployment.client.post("/v1/score", params={"metrics": request}, json=posted)
        assert found.json()["metrics"][asked.key]["value"] is not None, (request, found.text)


@pytest.mark.parametrize("item", ROWS)
def test_the_row_is_served(item: str, voted, scanned, united, posted) -> None:
    deployment, cell = voted[0], ROWS[item][3]
    names, made = quoted(cell), 0
    for name in names:
        plain = name.partition("(")[0]
        if plain in METRICS:
            value_of(deployment, name, posted)
            made += 1
        elif name.startswith(f"GET {MODEL}"):
            path = name.removeprefix(f"GET {MODEL}")
            model, params = ENDPOINTS.get(path, (VOTED, {}))
            answer = deployment.client.get(f"{model}/{path}", params=params)
            # A surface needs logits, and the scans were sent as probabilities: the rule itself is the answer.
            assert answer.status_code == 200 or path == "temperature/surface", answer.text
            made += 1
        elif name.startswith("include=") and "`POST /v1/score`" in cell:
            section = name.removeprefix("include=")
            found = deployment.client.post(
                "/v1/score", params={"include": section, "metrics": "ece", **ROWS_OF}, json=posted
            )
            assert found.status_code == 200, found.text
            assert found.json()[section].get("reason") is None, found.json()[section]
            made += 1
        elif name in POSTS:
            if name not in MADE:
                POSTS[name](deployment, posted)
                MADE.add(name)
            made += 1
        elif name.startswith("make "):
            # PyTorch is not in this environment; tests/adapters/torch runs the script.
            script = re.search(rf"\n{name.removeprefix('make ')}:.*\n.* -m (\S+)", MAKEFILE)
            assert script and (ROOT / script[1].replace(".", "/")).with_suffix(".py").is_file()
            made += 1
        elif re.match("(GET|POST|PUT) /v1/", name):
            raise AssertionError(f"{name} has a body, and no call here sends one")
        elif "=" in name and name.partition("=")[0] in ("raters", "scope", "binning"):
            field, _, value = name.partition("=")
            if value == "positive":
                continue
            params = {"metrics": "ece", field: value}
            found = deployment.client.get(f"{VOTED}/metrics", params=params)
            if value in ("hard", "soft"):
                params["metrics"] = "ml1_ece"
                found = deployment.client.get(f"{SCANS}/metrics", params=params)
            assert found.status_code == 200, found.text
            made += 1
    assert made or item in ("KO19", "KO20"), cell


def test_the_publications_bins_of_a_window(voted):
    """KO1: 2^14 bins of a window with a complete sample, and packed of posted rows, are those of the rows."""
    deployment, batch, _ = voted
    expected = ConfidenceHistogram.of_batch(batch)
    found = deployment.get(f"{VOTED}/confidence-histogram", bins=1 << 14)
    assert found["source"] == "sample"
    assert np.abs(np.array(found["label"]) - expected.label).max() < 1e-9
    body = {
        "probabilities": batch.probabilities.tolist(),
        "label_counts": batch.label_counts.tolist(),
        "options": {"packed": True},
    }
    params = {"include": "confidence_histogram", "metrics": "ece"}
    answer = deployment.client.post("/v1/score", params=params, json=body)
    assert answer.status_code == 200, answer.text
    scored = answer.json()
    packed = ConfidenceHistogram.unpack(base64.b64decode(scored["confidence_histogram"]["packed"]))
    assert np.abs(packed.label - expected.label).max() < 1e-9
    for bins, rule in ((1201, None), (16_385, "less_than_equal")):
        answer = deployment.client.get(f"{VOTED}/confidence-histogram", params={"bins": bins})
        assert (answer.status_code == 200) == (rule is None), answer.text


def test_declared_composites_are_stored(united, scanned):
    """BF13: of stored cases, the union of two classes by hand."""
    deployment, batch, _ = scanned
    url, counts = UNITED, batch.label_counts
    assert deployment.get(url)["composites"] == {"whole": [1, 2]}
    columns = {"cases": [str(each) for each in batch.cases]}
    p, hit, n = (
        batch.probabilities[:, 1:].sum(axis=1),
        counts[:, 1:].sum(axis=1),
        counts.sum(axis=1),
    )
    errors = []
    for case in sorted(set(columns["cases"])):
        own = batch.cases.astype(str) == case
        errors.append(pooled_ece(p[own], hit[own], n[own], 20))
    name = "ml1_ece(regions=composites)"
    found = deployment.get(f"{url}/metrics", metrics=name, bins=20)["metrics"][name]
    assert found["value"] == pytest.approx(np.mean(errors), abs=1e-9)
    cases = deployment.get(f"{url}/cases", metric=name, bins=20)
    assert cases["classes"] == ["whole"]
    changed = deployment.client.patch(
        url, json={"composites": None}, headers={"Content-Type": "application/merge-patch+json"}
    )
    assert changed.status_code in (409, 415, 422, 428), changed.text


def test_histograms_are_compared_with_a_baseline(scanned) -> None:
    deployment = scanned[0]
    made = deployment.client.put(f"{SCANS}/baselines/held", json={"window": "P7D"})
    assert made.status_code == 201, made.text
    found = deployment.get(f"{SCANS}/confidence-histogram", bins=20, against="baseline:held")
    assert (found["distance"], found["against"]["label"]) == ([0.0] * 3, found["label"])
    assert found["against"]["baseline"] == "held"
