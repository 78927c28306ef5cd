"""Every row of the page of the science is requested over HTTP as the page says; the rows' own tests compare the numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from calibrant.metrics import METRICS, requested
from tests.end_to_end.test_science import SCANS, VOTED, scanned, voted  # noqa: F401
from tests.test_science_page import ROWS, quoted

# What stored state has no result for, and posted rows have.
NEEDS_ROWS = {"needs_raw_rows", "needs_rows"}
MODEL = "/v1/models/{model}/"
# Endpoints that need a parameter, or another model than the one with several raters.
ENDPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "cases": (SCANS, {"bins": 20}),
    "comparison": (SCANS, {"models": "votes", "metrics": "ece"}),
    "confidence-histogram": (SCANS, {"bins": 20, "case": "scan-1"}),
    "temperature/surface": (SCANS, {}),
}
ROWS_OF = {"bins": 10}


@pytest.fixture(scope="module")
def posted(scanned) -> dict[str, Any]:  # noqa: F811
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


def value_of(deployment: Any, request: str, posted: dict[str, Any]) -> None:
    (asked,) = requested(request)
    model = SCANS if "cases" in asked.metric.needs else VOTED
    answer = deployment.get(f"{model}/metrics", metrics=request)["metrics"][asked.key]
    if answer["value"] is None:
        assert answer["reason"] in NEEDS_ROWS, (request, answer)
        found = deployment.client.post("/v1/score", params={"metrics": request}, json=posted)
        assert found.json()["metrics"][asked.key]["value"] is not None, (request, found.text)


@pytest.mark.parametrize("item", ROWS)
def test_the_row_is_served(item: str, voted, scanned, posted) -> None:  # noqa: F811
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
        elif re.match("(GET|POST|PUT) /v1/", name) or name.startswith("make "):
            # Bodies of their own; the tests of these endpoints send them.
            made += 1
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


def test_histograms_are_compared_with_a_baseline(scanned) -> None:  # noqa: F811
    deployment = scanned[0]
    made = deployment.client.put(f"{SCANS}/baselines/held", json={"window": "P7D"})
    assert made.status_code == 201, made.text
    found = deployment.get(f"{SCANS}/confidence-histogram", bins=20, against="baseline:held")
    assert (found["distance"], found["against"]["label"]) == ([0.0] * 3, found["label"])
    assert found["against"]["baseline"] == "held"
