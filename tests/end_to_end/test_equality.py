"""What the service answers is what the definitions give on raw rows, however the rows came."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from tests.calibrant import reference
from tests.calibrant.data import random_columns
from tests.end_to_end.deployment import Deployment

POLICIES = ("pooled", "mean", "majority", "single")
BINNED = {
    "ece": reference.ece,
    "mce": reference.mce,
    "ace": reference.ace,
    "rmsce": reference.rmsce,
}


def columns_of(n_classes: int, seed: int, n: int) -> dict:
    """Rows with exact edges, ties, zeros and ones, and 1 to 60 ragged ratings."""
    rng = np.random.default_rng(seed)
    columns = random_columns(rng, n, n_classes, most_raters=60, binary=n_classes == 2)
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in columns.items()
    }


def taken(columns: dict, index: np.ndarray) -> dict:
    return {name: [values[i] for i in index] for name, values in columns.items()}


def send(deployment: Deployment, model: str, columns: dict, seed: int) -> None:
    """In random order, in batches of random size, every fifth as a pane packed at the client."""
    rng = np.random.default_rng(seed)
    n = len(next(iter(columns.values())))
    order = rng.permutation(n)
    start = 0
    task = "binary" if "confidences" in columns else "multiclass"
    while start < n:
        size = int(rng.integers(1, 40))
        part = taken(columns, order[start : start + size])
        start += size
        if rng.random() < 0.2:
            batch = Batch.from_columns(part, task=task).batch
            pane = Pane(PaneSpec(task, batch.n_classes))
            pane.fill_batch(batch)
            body = {"kind": "pane", "packed": base64.b64encode(pane.pack()).decode()}
            deployment.post(f"/v1/models/{model}/histograms", body)
        else:
            deployment.post(f"/v1/models/{model}/predictions", part)


@pytest.mark.parametrize(
    ("kind", "n_classes"),
    [("embedded", 2), ("embedded", 3), ("embedded", 10), ("embedded", 100), ("spread", 3)],
)
def test_every_policy_edge_and_bin_count(request, kind, n_classes):
    deployment: Deployment = request.getfixturevalue(kind)
    columns = columns_of(n_classes, 11 + n_classes, 240 if n_classes < 100 else 80)
    model = f"{kind}-{n_classes}"
    task = "binary" if n_classes == 2 else "multiclass"
    deployment.client.put(f"/v1/models/{model}", json={"task": task, "classes": n_classes})
    send(deployment, model, columns, n_classes)
    batch = Batch.from_columns(columns, task=task).batch
    rows = reference.rows_of(batch)
    scope = "positive" if n_classes == 2 else "top_label"
    rng = np.random.default_rng(n_classes)
    for policy in POLICIES:
        sums = reference.score_sums(rows, policy)
        for edges in ("right", "left"):
            bins = int(rng.choice([5, 10, 12, 15, 20, 25, 30, 60, 100]))
            binned = [*BINNED, "classwise_ece", "all_label_ece"]
            answer = deployment.get(
                f"/v1/models/{model}/metrics",
                metrics=",".join(
                    [*(f"{each}(edges={edges})" for each in binned), "brier,nll,accuracy"]
                ),
                bins=bins,
                raters=policy,
            )
            found = {slug.partition("(")[0]: each for slug, each in answer["metrics"].items()}
            assert answer["n_labelled"] == len(rows)
            table = reference.table(rows, scope, policy, bins, edges)
            for slug, formula in BINNED.items():
                assert found[slug]["value"] == pytest.approx(formula(table), abs=1e-9), (
                    slug,
                    policy,
                    edges,
                    bins,
                )
            assert found["all_label_ece"]["value"] == pytest.approx(
                reference.all_label_ece(rows, policy, bins, edges), abs=1e-9
            )
            if n_classes <= 64:
                assert found["classwise_ece"]["value"] == pytest.approx(
                    reference.classwise_ece(rows, policy, bins, edges), abs=1e-9
                )
            else:
                assert found["classwise_ece"]["reason"] == "class_not_kept"
            check_scores(found, sums)


def check_scores(found: dict, sums: dict[str, float]) -> None:
    assert found["brier"]["value"] == pytest.approx(sums["brier"] / sums["weight"], abs=1e-9)
    assert found["accuracy"]["value"] == pytest.approx(sums["correct"] / sums["weight"], abs=1e-9)
    zeros = int(sums["n_zero_probability"])
    assert found["nll"]["n_zero_probability"] == zeros
    name = "finite_value" if zeros else "value"
    if sums["weight_finite"]:
        assert found["nll"][name] == pytest.approx(sums["nll"] / sums["weight_finite"], abs=1e-9)
    if zeros:
        assert (found["nll"]["value"], found["nll"]["reason"]) == (None, "zero_probability")


def test_plain_histograms_equal_the_rows_that_they_count(embedded):
    """A model fed by histograms alone answers the binned metrics of their own policy, and nothing else."""
    columns = columns_of(3, 5, 300)
    batch = Batch.from_columns(columns).batch
    rows = reference.rows_of(batch)
    embedded.client.put("/v1/models/coarse", json={"task": "multiclass", "classes": 3, "grid": 60})
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        table = reference.table(part, "top_label", "pooled", 60, "right")
        body = {
            "kind": "top_label",
            "bins": 60,
            "count": table["weight"].tolist(),
            "sum_confidence": table["confidence"].tolist(),
            "sum_correct": table["correct"].tolist(),
        }
        embedded.post("/v1/models/coarse/histograms", body)
    found = embedded.get(
        "/v1/models/coarse/metrics", metrics="ece,mce,brier,adaptive_ece", bins=15
    )["metrics"]
    complete = reference.table(rows, "top_label", "pooled", 15, "right")
    assert found["ece"]["value"] == pytest.approx(reference.ece(complete), abs=1e-9)
    assert (found["ece"]["n"], found["ece"]["n_ratings"]) == (
        None,
        sum(row.n_ratings for row in rows),
    )
    assert found["mce"]["value"] == pytest.approx(reference.mce(complete), abs=1e-9)
    for slug in ("brier", "adaptive_ece"):
        assert (found[slug]["value"], found[slug]["reason"]) == (None, "not_in_histogram")
    other = embedded.get("/v1/models/coarse/metrics", metrics="ece(edges=left)", bins=15)[
        "metrics"
    ]["ece(edges=left)"]
    assert (other["value"], other["reason"]) == (None, "not_in_histogram")


def test_the_blog_posts_nine_samples(embedded):
    scores = [[0.78, 0.22], [0.36, 0.64], [0.08, 0.92], [0.58, 0.42], [0.49, 0.51], [0.85, 0.15]]
    scores += [[0.30, 0.70], [0.63, 0.37], [0.17, 0.83]]
    body = {"probabilities": scores, "labels": [0, 1, 0, 0, 0, 0, 1, 1, 1]}
    embedded.post("/v1/models/nine/predictions", body)
    for bins, edges, expected in (
        (5, "right", 0.94 / 9),
        (10, "left", 2.12 / 9),
        (10, "right", 1.58 / 9),
    ):
        slug = f"ece(edges={edges})"
        found = embedded.get("/v1/models/nine/metrics", metrics=slug, bins=bins)
        assert found["metrics"][slug]["value"] == pytest.approx(expected, abs=1e-12)
