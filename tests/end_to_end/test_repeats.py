"""Batches that come again, in part, in conflict, or to a model that goes: each is reported as what it is, counted once."""

from __future__ import annotations

import base64
import threading

import httpx
import numpy as np
import pytest

import calibrant as cal
from tests.waiting import PATIENCE_S, eventually

BINS = 10
EMPTY = [0.0] * 3600
POSITIVE = {
    "kind": "positive",
    "bins": 3600,
    "count": [1.0, *EMPTY[1:]],
    "sum_confidence": EMPTY,
    "sum_correct": EMPTY,
}


@pytest.fixture
def coarse(embedded):
    embedded.client.delete("/v1/models/totals")
    made = embedded.client.put("/v1/models/totals", json={"classes": 3, "grid": BINS})
    assert made.status_code == 201
    return embedded


def total(source: str, sequence: int, n: float, **changes: object) -> dict:
    shares = {"count": 1.0, "sum_confidence": 0.95, "sum_correct": 0.5}
    sums = {name: [0.0] * (BINS - 1) + [n * share] for name, share in shares.items()}
    return {
        "kind": "top_label", "bins": BINS, "mode": "cumulative", "source": source, "epoch": 1, "sequence": sequence,
        "event_time": "2026-11-01T00:00:00Z", **sums, **changes,
    }  # fmt: skip


def weight(deployment) -> float:
    return deployment.get("/v1/models/totals/reliability", bins=BINS)["weight"]


def sent(deployment, *histograms: dict, **params: object) -> dict:
    answer = deployment.client.post(
        "/v1/models/totals/histograms",
        json={"histograms": histograms},
        headers={"Prefer": "wait=60"},
        params=params,
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_batch_with_one_conflicting_total_is_rejected_whole(coarse):
    sent(coarse, total("a", 1, 4), total("b", 1, 8))
    assert weight(coarse) == 12
    # "a" goes on, "b" says something else under the sequence that it had, "c" is new, in a slice of its own.
    batch = (total("a", 2, 6), total("b", 1, 9), total("c", 1, 5, slice={"site": "A"}))
    result = sent(coarse, *batch)
    assert (result["status"], result["accepted"], result["rejected"]) == ("rejected", 0, 3)
    [error] = result["errors"]
    assert (error["pointer"], error["rule"]) == ("/histograms/1/sequence", "sequence_conflict")
    assert weight(coarse) == 12
    part = sent(coarse, *batch, partial=True)
    assert (part["status"], part["accepted"], part["rejected"]) == ("merged", 2, 1)
    assert part["errors"][0]["pointer"] == "/histograms/1/sequence"
    assert weight(coarse) == 6 + 8 + 5
    again = sent(coarse, *batch[:1], *batch[2:])
    assert (again["duplicate"], again["accepted"]) == (True, 2)
    alone = coarse.client.post(
        "/v1/models/totals/histograms",
        json=total("b", 1, 7),
        params={"partial": True},
        headers={"Prefer": "wait=60"},
    )
    assert (alone.json()["status"], alone.json()["errors"][0]["pointer"]) == (
        "rejected",
        "/sequence",
    )
    assert weight(coarse) == 19


def test_rows_left_out_at_the_door_do_not_shift_the_pointer(coarse):
    sent(coarse, total("a", 1, 4))
    bad = total("z", 1, 1, count=[-1.0] * BINS)
    result = sent(coarse, bad, total("b", 1, 2), total("a", 1, 5), partial=True)
    assert (result["accepted"], result["rejected"]) == (1, 2)
    assert [each["pointer"].split("/")[2] for each in result["errors"]] == ["0", "2"]
    assert weight(coarse) == 6


@pytest.mark.parametrize(
    ("noun", "first", "again", "other"),
    [
        (
            "predictions",
            {"confidences": [0.2, 7], "labels": [0, 1]},
            {"confidences": [0.2, 7], "labels": [0, 1]},
            {"confidences": [0.2, 8], "labels": [0, 1]},
        ),
        (
            "labels",
            {"ids": ["x", "!"], "labels": [0, 1]},
            {"labels": [0, 1], "ids": ["x", "!"]},
            {"ids": ["x", "!!"], "labels": [0, 1]},
        ),
        (
            "histograms",
            {"histograms": [POSITIVE, {"kind": "x"}]},
            {"histograms": [POSITIVE, {"kind": "x"}]},
            {"histograms": [POSITIVE, {"kind": "y"}]},
        ),
    ],
)  # fmt: skip
def test_a_partial_batch_is_known_by_all_that_was_sent(embedded, noun, first, again, other):
    embedded.client.put("/v1/models/parts", json={"task": "binary"})
    path = f"/v1/models/parts/{noun}"
    answers = [
        embedded.client.post(path, json={**body, "batch_id": noun}, params={"partial": True})
        for body in (first, again, other)
    ]
    assert [each.status_code for each in answers[:2]] in ([202, 202], [202, 200]), answers[0].text
    assert answers[1].json()["duplicate"] is True
    assert (answers[2].status_code, answers[2].json()["type"]) == (
        409,
        "/v1/problems/batch-conflict",
    )


def test_who_waits_for_a_model_that_goes_is_informed(spread):
    """Workers are away, so that the batch waits; the model goes meanwhile."""
    path = "/v1/models/going"
    assert spread.client.put(path, json={"task": "binary"}).status_code == 201
    for i in range(2):
        spread.kill(f"worker{i}")
    result: list[httpx.Response] = []

    def post() -> None:
        with httpx.Client(base_url=spread.client.base_url, timeout=PATIENCE_S) as client:
            body = {"batch_id": "late", "confidences": [0.3], "labels": [1]}
            result.append(
                client.post(f"{path}/predictions", json=body, headers={"Prefer": "wait=60"})
            )

    waiting = threading.Thread(target=post)
    waiting.start()
    try:
        eventually(lambda: spread.client.get(f"{path}/batches/late").status_code == 200)
        assert spread.client.delete(path).status_code == 204
        waiting.join(PATIENCE_S)
    finally:
        for i in range(2):
            spread.start(f"worker{i}")
    assert (result[0].status_code, result[0].json()["type"]) == (409, "/v1/problems/model-deleted")


def test_what_is_retained_is_counted_by_model(embedded):
    for name, n in (("counted", 3), ("counted-too", 1)):
        body = {"confidences": [0.5] * n, "ids": [f"i{i}" for i in range(n)]}
        embedded.post(f"/v1/models/{name}/predictions", body)
        embedded.post(f"/v1/models/{name}/labels", {"ids": ["i0", "later"], "labels": [1, 0]})
        embedded.post(f"/v1/models/{name}/predictions", {"confidences": [0.6], "ids": ["i0"]})
    assert embedded.get("/v1/models/counted")["records"].items() >= {
        "pending": 2, "joined": 1, "waiting": 1, "conflicts": 1, "expired": 0,
    }.items()  # fmt: skip
    lines = embedded.client.get("/metrics/models").text.splitlines()
    found = {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("calibrant_records")
    }
    of = 'tenant="default"'
    assert found[f'calibrant_records{{model="counted",state="pending",{of}}}'] == 2
    assert found[f'calibrant_records{{model="counted-too",state="joined",{of}}}'] == 1
    assert found[f'calibrant_records_conflicts_total{{model="counted-too",{of}}}'] == 1
    assert found[f'calibrant_records_expired_unlabelled_total{{model="counted",{of}}}'] == 0


class TestTotalsOfPanes:
    """A pane as a running total replaces its predecessor: it is added, and the predecessor is subtracted."""

    MODEL = "/v1/models/pane-totals"

    @pytest.fixture
    def deployment(self, embedded):
        embedded.client.delete(self.MODEL)
        made = embedded.client.put(self.MODEL, json={"classes": 3, "grid": 3600})
        assert made.status_code == 201
        return embedded

    def send(self, deployment, pane, sequence, status="merged", source="a", epoch=0, **changes):
        update = {
            "kind": "pane", "packed": base64.b64encode(pane.to_bytes()).decode(), "mode": "cumulative", "source": source,
            "epoch": epoch, "sequence": sequence, "event_time": "2026-11-01T00:00:00Z", **changes,
        }  # fmt: skip
        answer = deployment.client.post(
            f"{self.MODEL}/histograms", json=update, headers={"Prefer": "wait=60"}
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["status"] == status
        return answer.json()

    def brier(self, deployment, **query):
        found = deployment.get(f"{self.MODEL}/metrics", metrics="brier,nll,classwise_ece", **query)
        return found["n_predictions"], [each["value"] for each in found["metrics"].values()]

    def test_the_last_total_of_each_source_and_epoch_counts(self, deployment):
        rng = np.random.default_rng(1)
        probabilities, labels = rng.dirichlet(np.ones(3), 200), rng.integers(0, 3, 200)
        changed = (labels + (np.arange(200) % 4 == 0)) % 3

        def pane(first, end, labels=labels):
            return cal.Pane.fill(probabilities[first:end], labels[first:end], sample_bytes=0)

        self.send(deployment, pane(0, 50), 1, slice={"site": "A"})
        self.send(deployment, pane(0, 90), 2, slice={"site": "A"})
        self.send(deployment, pane(90, 150), 1, source="b", slice={"site": "B"})
        assert self.send(deployment, pane(0, 10), 1, slice={"site": "A"})["stale"] is True
        assert self.send(deployment, pane(0, 90), 2, slice={"site": "A"})["duplicate"] is True
        found = self.send(deployment, pane(0, 89), 2, "rejected", slice={"site": "A"})
        assert found["errors"][0]["rule"] == "sequence_conflict"
        self.send(deployment, pane(0, 100, changed), 7, slice={"site": "A"})
        self.send(deployment, pane(150, 200), 1, epoch=1, slice={"site": "A"})
        final = pane(0, 100, changed) + pane(150, 200)
        for slice_, expected in (("", final + pane(90, 150)), ("site:A", final)):
            n, values = self.brier(deployment, **({"slice": slice_} if slice_ else {}))
            assert n == expected.counts["n_predictions"]
            report = expected.evaluate("brier,nll,classwise_ece")
            assert values == pytest.approx([float(each) for each in report.values()], rel=1e-12)
        # A total of nothing takes everything back.
        self.send(deployment, cal.Pane(final.spec, sample_bytes=0), 8, slice={"site": "A"})
        assert self.brier(deployment, slice="site:A")[0] == 50


def test_a_batch_of_a_model_that_was_made_again_is_checked_against_the_new_one(embedded):
    """The service remembers models. It must not reject by what a former model of that name was."""
    path = "/v1/models/made-again"
    model = {"task": "multiclass", "classes": 3}
    for grid in (3600, 60):
        embedded.client.delete(path)
        assert embedded.client.put(path, json=model | {"grid": grid}).status_code == 201
        zeros = [0.0] * (grid - 1)
        histogram = {
            "kind": "top_label", "bins": grid, "event_time": "2026-11-03T00:30:00Z", "count": [*zeros, 2.0],
            "sum_confidence": [*zeros, 2.0], "sum_correct": [*zeros, 1.0],
        }  # fmt: skip
        sent = embedded.client.post(f"{path}/histograms", json=histogram)
        assert sent.status_code in (200, 202), sent.text
