"""`POST /v1/score` with names of classes: the labels are these names, in JSON, records, lines and annotations."""

from __future__ import annotations

import orjson
import pytest

from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
ROWS = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]
ECE = (0.3 + 0.2 + 0.2 + 0.6) / 4


async def scores(client, document):
    answer = await client.post("/v1/score?metrics=ece", json=document)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    "names", [["a", "b", "c"], [10, 20, 30], ["2", "0", "1"]], ids=["texts", "integers", "digits"]
)
async def test_labels_are_names(client, names):
    labels = [names[each] for each in (0, 1, 2, 2)]
    found = await scores(client, {"classes": names, "probabilities": ROWS, "labels": labels})
    assert found["metrics"]["ece"]["value"] == pytest.approx(ECE)
    records = [
        {"probabilities": row, "label": each} for row, each in zip(ROWS, labels, strict=True)
    ]
    found = await scores(client, {"classes": names, "predictions": records})
    assert found["metrics"]["ece"]["value"] == pytest.approx(ECE)
    lines = b"\n".join(map(orjson.dumps, [{"classes": names}, *records]))
    answer = await client.post(
        "/v1/score?metrics=ece", content=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.json()["metrics"]["ece"]["value"] == pytest.approx(ECE)


async def test_named_raters_and_truths(client):
    document = {"classes": ["cat", "dog"], "probabilities": [0.9, 0.2], "labels": ["dog", "cat"]}
    found = await scores(client, document | {"raters": ["x", "x"]})
    assert found["baselines"]["metrics"]["ece"]["by_rater"]["x"]["value"] == pytest.approx(0.15)
    found = await scores(client, document | {"classes": [False, True], "labels": [True, False]})
    assert found["metrics"]["ece"]["value"] == pytest.approx(0.15)


async def test_names_of_independent_labels(client):
    document = {"classes": ["wet", "cold"], "probabilities": [[0.9, 0.8]], "labels": [[1, 0]]}
    answer = await client.post("/v1/score?task=multilabel&metrics=ece", json=document)
    assert list(answer.json()["labels"]) == ["wet", "cold"]


@pytest.mark.parametrize(
    ("names", "rule"),
    [
        ("a,b,c", "list"),
        (["a", "b"], "n_classes"),
        (["a", "a", "b"], "repeated_class"),
        (["a", "b", ""], "class_name"),
        (["a", "b", "\x1b[31mc"], "class_name"),
    ],
)
async def test_other_names_are_rejected(client, names, rule):
    document = {"classes": names, "probabilities": ROWS, "labels": ["a", "b", "b", "a"]}
    answer = await client.post("/v1/score", json=document)
    (error,) = problem(answer, 422, "invalid-input")["errors"]
    assert (error["pointer"], error["rule"]) == ("/classes", rule)


async def test_a_model_names_its_classes_itself(client):
    document = {"classes": ["a", "b", "c"], "probabilities": ROWS, "labels": [0, 1, 2, 2]}
    answer = await client.post("/v1/models/m/predictions", json=document)
    (error,) = problem(answer, 422, "invalid-input")["errors"]
    assert error["rule"] == "unknown_field"


@pytest.mark.parametrize("scope", ["class:b/ü", "class:1"])
async def test_the_class_of_a_scope_by_name(client, scope):
    document = {"classes": ["a", "b/ü", "c"], "probabilities": ROWS, "labels": ["a", "b/ü", "c", "c"]}  # fmt: skip
    query = {"metrics": f"ece,brier,auc(scope={scope})", "scope": scope}
    found = (await client.post("/v1/score", json=document, params=query)).json()
    assert found["scope"] == "class:1"
    # The scores of class 1 are .2, .8, .1 and .3, in bins of their own.
    assert found["metrics"]["ece"]["value"] == pytest.approx((0.2 + 0.2 + 0.1 + 0.3) / 4)
    assert found["metrics"]["auc(scope=class:1)"]["value"] == 1.0


async def test_the_columns_of_a_table_name_the_class_of_a_scope(client):
    text = "cat,dog,diagnosis\n.8,.2,cat\n.3,.7,dog\n.6,.4,dog\n"
    query = {"metrics": "ece", "columns": "cat:probability,dog:probability,diagnosis:label"}
    csv = {"content": text.encode(), "headers": {"Content-Type": "text/csv"}}
    found = (await client.post("/v1/score", **csv, params=query | {"scope": "class:cat"})).json()
    assert found["metrics"]["ece"]["value"] == pytest.approx((0.2 + 0.3 + 0.6) / 3)
    refused = await client.post("/v1/score", **csv, params=query | {"scope": "class:cow"})
    assert problem(refused, 422, "invalid-query")["errors"][0]["rule"] == "unknown_class"
