"""Receipts of labels state how many rows found their prediction, and how many wait for it."""

from __future__ import annotations

from tests.end_to_end.deployment import Deployment


def _rated(deployment: Deployment, batch_id: str, **columns: object) -> tuple[int, int]:
    """Post labels; return their numbers, which the receipt of the batch states too."""
    found = deployment.post("/v1/models/ids/labels", {"batch_id": batch_id, **columns})
    later = deployment.get(f"/v1/models/ids/batches/{batch_id}")
    assert (found["joined"], found["waiting"]) == (later["joined"], later["waiting"])
    return found["joined"], found["waiting"]


def test_rows_that_join_and_rows_that_wait(embedded: Deployment) -> None:
    ids = [f"i{n}" for n in range(50)]
    sent = embedded.post(
        "/v1/models/ids/predictions", {"confidences": [0.3] * 50, "ids": ids, "batch_id": "p"}
    )
    assert "joined" not in sent
    assert _rated(embedded, "first", ids=ids[:20], labels=[1] * 20) == (20, 0)
    # Ids that match nothing: "1.0" is another name than "1".
    others = [f"{n}.0" for n in range(30)]
    assert _rated(embedded, "none", ids=others, labels=[1] * 30) == (0, 30)
    raters = {"raters": ["ann"] * 2}
    assert _rated(embedded, "named", ids=["i0", "new"], labels=[1, 0], **raters) == (1, 1)
    assert _rated(embedded, "again", ids=["i0", "new"], labels=[1, 0], **raters) == (1, 1)
    deleted = embedded.client.delete(
        "/v1/models/ids/predictions/i0", headers={"Prefer": "wait=60"}
    ).json()
    assert deleted["status"] == "merged"
    assert _rated(embedded, "gone", ids=["i0", "i1"], labels=[1, 0]) == (1, 0)
    embedded.post("/v1/models/ids/predictions", {"confidences": [0.3], "ids": ["new"]})
    assert _rated(embedded, "late", ids=["new"], labels=[1]) == (1, 0)
