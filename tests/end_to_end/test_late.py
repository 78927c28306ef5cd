"""What a client may do to labels that come late, and the response: withdrawn, overtaken, deleted, too many."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.end_to_end.deployment import Deployment

ROOM = 40
LINES = {"content-type": "application/x-ndjson", "Prefer": "wait=60"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Room for forty records a partition."""
    with Deployment(
        tmp_path_factory.mktemp("small"), CALIBRANT_RETAINED_RECORDS=str(ROOM)
    ) as deployment:
        yield deployment


def rated(deployment: Deployment, model: str, **columns: object) -> dict:
    return deployment.post(f"/v1/models/{model}/labels", columns)


def deleted(deployment: Deployment, model: str, name: str) -> dict:
    answer = deployment.client.delete(
        f"/v1/models/{model}/predictions/{name}", headers={"Prefer": "wait=60"}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def records(deployment: Deployment, model: str) -> dict:
    return deployment.get(f"/v1/models/{model}")["records"]


def counts(deployment: Deployment, model: str) -> tuple[int, int, int]:
    found = deployment.get(f"/v1/models/{model}/metrics", metrics="brier")
    return found["n_predictions"], found["n_labelled"], found["n_ratings"]


def test_a_rater_withdraws_revises_and_is_overtaken(embedded):
    embedded.post("/v1/models/raters/predictions", {"confidences": [0.3, 0.6], "ids": ["a", "b"]})
    of_r = {"ids": ["a"], "raters": ["r"]}
    rated(embedded, "raters", **of_r, labels=[1], revision=[5])
    assert counts(embedded, "raters") == (2, 1, 1)
    assert rated(embedded, "raters", **of_r, labels=[0], revision=[2])["stale_rows"] == 1
    other = rated(embedded, "raters", **of_r, labels=[0], revision=[5])
    assert (other["accepted"], other["conflicts"]) == (0, 1)
    assert [(each["pointer"], each["rule"]) for each in other["errors"]] == [
        ("/revision/0", "revision_conflict")
    ]
    rated(embedded, "raters", **of_r, labels=[None], revision=[6])
    assert counts(embedded, "raters") == (2, 0, 0)
    assert records(embedded, "raters").items() >= {"pending": 2, "joined": 0}.items()
    # Without revisions the later row of a batch stands, and an unnamed rating only adds.
    rated(embedded, "raters", ids=["b", "b", "b"], raters=["r", "r", None], labels=[0, 1, 1])
    assert counts(embedded, "raters") == (2, 1, 2)
    found = embedded.get("/v1/models/raters/metrics", metrics="accuracy")
    assert found["metrics"]["accuracy"]["value"] == 1.0


def test_what_was_deleted_stays_deleted(embedded):
    path = "/v1/models/gone-rows"
    embedded.post(
        f"{path}/predictions", {"confidences": [0.3, 0.6], "ids": ["a", "b"], "labels": [1, 0]}
    )
    rated(embedded, "gone-rows", ids=["waits"], labels=[1])
    for name in ("waits", "a"):
        assert deleted(embedded, "gone-rows", name)["accepted"] == 1
        assert deleted(embedded, "gone-rows", name)["duplicate_rows"] == 1
    assert counts(embedded, "gone-rows") == (1, 1, 1)
    assert (
        records(embedded, "gone-rows").items() >= {"waiting": 0, "joined": 1, "deleted": 2}.items()
    )
    for answer in (
        embedded.post(f"{path}/predictions", {"confidences": [0.3, 0.5], "ids": ["waits", "c"]}),
        rated(embedded, "gone-rows", ids=["a", "c"], labels=[1, 1]),
    ):
        assert (answer["accepted"], answer["rejected"]) == (1, 1)
        assert [(each["pointer"], each["rule"]) for each in answer["errors"]] == [
            ("/ids/0", "deleted")
        ]
    # The same id is another prediction in another model.
    embedded.post(
        "/v1/models/other-rows/predictions", {"confidences": [0.9], "ids": ["a"], "labels": [1]}
    )
    assert counts(embedded, "other-rows") == (1, 1, 1)


def test_conflicts_point_at_rows_as_they_were_sent(embedded):
    path = "/v1/models/pointed/predictions"
    embedded.post(path, {"confidences": [0.3], "ids": ["a"]})
    body = {"confidences": [7, 0.4, 0.5], "ids": ["x", "y", "a"]}
    result = embedded.post(path, body, params={"partial": True})
    assert (result["accepted"], result["rejected"]) == (1, 2)
    assert [each["pointer"] for each in result["errors"]] == ["/confidences/0", "/ids/2"]
    lines = (
        b'{"batch_id": "lines"}\n{"confidence": 0.7, "id": "z"}\n{"confidence": 0.7, "id": "a"}\n'
    )
    answer = embedded.client.post(path, content=lines, headers=LINES)
    assert [each["pointer"] for each in answer.json()["errors"]] == ["/3/id"]
    ratings = b'{"id": "a", "label": 1, "rater": "r", "revision": 1}\n{"id": "a", "label": 0, "rater": "r", "revision": 1}\n'
    answer = embedded.client.post("/v1/models/pointed/labels", content=ratings, headers=LINES)
    assert [each["pointer"] for each in answer.json()["errors"]] == ["/2/revision"]


def test_no_room_is_said_and_labels_still_join(small):
    path = "/v1/models/full"
    names = [f"i{i}" for i in range(ROOM - 1)]
    small.post(f"{path}/predictions", {"confidences": [0.5] * len(names), "ids": names})
    for noun, body in (
        ("predictions", {"confidences": [0.5, 0.6], "ids": ["n1", "n2"]}),
        ("labels", {"ids": ["i0", "n1"], "labels": [1, 1]}),
    ):
        rejection = small.client.post(f"{path}/{noun}", json=body)
        assert (rejection.status_code, rejection.json()["type"]) == (
            429,
            "/v1/problems/records-full",
        )
        assert (
            f"of {ROOM} records" in rejection.json()["detail"]
            and "2 new ones" in rejection.json()["detail"]
        )
        assert int(rejection.headers["retry-after"]) >= 1
    rated(small, "full", ids=names[:20], labels=[1] * 20)
    small.post(f"{path}/predictions", {"confidences": [0.5], "labels": [1]})
    assert counts(small, "full") == (ROOM, 21, 21)
    small.post(f"{path}/predictions", {"confidences": [0.6], "ids": ["last"]})
    assert records(small, "full")["records"] == ROOM
    deleted(small, "full", "i0")
    assert counts(small, "full") == (ROOM, 20, 20)


def test_times_and_parts_of_time(embedded):
    path = "/v1/models/timed"
    now = datetime.now(UTC)
    body = {"confidences": [0.3], "labels": [0]}
    for hours, site in ((0, "A"), (1, "B"), (30, "A")):
        at = {
            "event_times": [(now - timedelta(hours=hours)).isoformat()],
            "slices": {"site": [site]},
        }
        embedded.post(f"{path}/predictions", body | at)
    far = embedded.client.post(
        f"{path}/predictions", json=body | {"event_times": ["2999-01-01T00:00:00Z"]}
    )
    assert (far.status_code, far.json()["errors"][0]["rule"]) == (422, "future")
    found = embedded.get(f"{path}/metrics", metrics="brier", by="site", every="P1D")["slices"]
    assert {
        site: sum(part["n_predictions"] for part in each["series"]) for site, each in found.items()
    } == {"A": 2, "B": 1}
    assert len(found["A"]["series"]) == 2
    for hours, n in ((0, 1), (1, 2), (40, 3)):
        since = (now - timedelta(hours=hours)).isoformat()
        read = embedded.get(
            f"{path}/metrics", metrics="brier", **{"from": since}, to=now.isoformat()
        )
        assert read["n_predictions"] == n
