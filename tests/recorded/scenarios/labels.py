"""Labels that come later, corrections, withdrawals and deletions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.recorded.data import (
    ARROW,
    arrow,
    batch,
    clinic,
    drawn,
    names,
    probabilities,
    ratings,
    times,
)
from tests.recorded.service import Client

FEW = "accuracy,ece,brier,nll"


async def _reads(client: Client, model: str, **more: Any) -> None:
    path = f"/models/{model}"
    await client.get(f"{path}/metrics", metrics=FEW, **more)
    await client.get(f"{path}/reliability", bins="6", **more)


async def _label(client: Client, model: str, batch_id: str, **columns: Any) -> None:
    await client.post(f"/models/{model}/labels", {"batch_id": batch_id, **columns})


def _unlabelled(seed: int, n: int, **more: Any) -> dict[str, Any]:
    return {
        "batch_id": f"p{seed}",
        "probabilities": probabilities(seed, n),
        "ids": names("id", n),
        "event_times": times(n, 3),
        **more,
    }


async def unnamed_raters(client: Client) -> None:
    await client.post("/models/late/predictions", _unlabelled(100, 60))
    await _reads(client, "late")
    await _label(
        client, "late", "l1", ids=names("id", 40), labels=drawn(100, probabilities(100, 40))
    )
    await _reads(client, "late")
    await _label(client, "late", "l2", ids=names("id", 10), labels=[[0, 1]] * 10)
    await _label(client, "late", "l2", ids=names("id", 10), labels=[[0, 1]] * 10)
    await _label(client, "late", "l3", ids=["id1", "id1", "id2"], labels=[2, 2, [2, 2, 2]])
    await _label(client, "late", "l4", ids=["unknown", "id50"], labels=[1, 1])
    await client.get("/models/late/batches/l4")
    await _reads(client, "late")
    await _reads(client, "late", raters="majority")


async def named_raters(client: Client) -> None:
    await client.post("/models/named/predictions", _unlabelled(101, 50))
    for i, rater in enumerate(("ann", "bob", "eve")):
        labels = drawn(101 + i, probabilities(101, 50))
        await _label(
            client,
            "named",
            f"l{i}",
            ids=names("id", 50 - 10 * i),
            labels=labels[: 50 - 10 * i],
            raters=[rater] * (50 - 10 * i),
        )
    await _reads(client, "named")
    await client.get("/models/named/raters")
    await client.get("/models/named/raters", metric="brier")
    await _label(
        client, "named", "again", ids=names("id", 20), labels=[1] * 20, raters=["ann"] * 20
    )
    await _label(
        client,
        "named",
        "pair",
        ids=["id1", "id2"],
        labels=[[0, 2], [1, 1]],
        raters=[["ann", "zoe"], ["bob", None]],
    )
    await _reads(client, "named")
    for policy in ("mean", "majority", "single"):
        await client.get("/models/named/metrics", metrics=FEW, raters=policy)
    await client.get("/models/named/raters")
    await client.get("/models/named/disagreement")


async def revisions(client: Client) -> None:
    await client.post("/models/revised/predictions", _unlabelled(102, 20))
    ids = names("id", 20)
    await _label(
        client, "revised", "l1", ids=ids, labels=[0] * 20, raters=["ann"] * 20, revision=[5] * 20
    )
    await _label(
        client,
        "revised",
        "l2",
        ids=ids,
        labels=[1] * 20,
        raters=["ann"] * 20,
        revision=[4 + i % 3 for i in range(20)],
    )
    await _label(
        client,
        "revised",
        "l3",
        ids=ids[:10],
        labels=[[2, 1]] * 10,
        raters=[["ann", "bob"]] * 10,
        revision=[[9, 0]] * 10,
    )
    await _reads(client, "revised")
    await _label(
        client,
        "revised",
        "l4",
        ids=ids[:5],
        labels=[None] * 5,
        raters=["ann"] * 5,
        revision=[3] * 5,
    )
    await _label(
        client,
        "revised",
        "l5",
        ids=ids[:5],
        labels=[None] * 5,
        raters=["bob"] * 5,
        revision=[10] * 5,
    )
    await _label(client, "revised", "l6", ids=["id0"], labels=[0], raters=["bob"], revision=[7])
    await _label(client, "revised", "l7", ids=["id0"], labels=[0], revision=[7])
    await _reads(client, "revised")
    await client.get("/models/revised/raters")


async def withdrawals(client: Client) -> None:
    await client.post("/models/withdrawn/predictions", _unlabelled(103, 20))
    ids = names("id", 20)
    await _label(
        client, "withdrawn", "l1", ids=ids, labels=[[0, 1]] * 20, raters=[["ann", "bob"]] * 20
    )
    await _reads(client, "withdrawn")
    await _label(client, "withdrawn", "l2", ids=ids[:8], labels=[None] * 8, raters=["ann"] * 8)
    await _reads(client, "withdrawn")
    await _label(client, "withdrawn", "l3", ids=ids[:4], labels=[None] * 4, raters=["bob"] * 4)
    await _label(client, "withdrawn", "l4", ids=ids[:2], labels=[2] * 2, raters=["ann"] * 2)
    await _label(client, "withdrawn", "l5", ids=ids[:2], labels=[None] * 2)
    await _label(client, "withdrawn", "l6", ids=["absent"], labels=[None], raters=["ann"])
    await _reads(client, "withdrawn")


async def before_their_prediction(client: Client) -> None:
    await client.put("/models/early", {"classes": 3})
    await _label(client, "early", "l1", ids=names("id", 30), labels=[0, 1, 2] * 10)
    await _label(client, "early", "l2", ids=names("id", 10), labels=[1] * 10, raters=["ann"] * 10)
    await _label(client, "early", "l3", ids=names("id", 5), labels=[None] * 5, raters=["ann"] * 5)
    await client.get("/models/early/metrics", metrics=FEW)
    await client.post("/models/early/predictions", _unlabelled(104, 20))
    await _reads(client, "early")
    more = _unlabelled(105, 10) | {"ids": names("id", 30)[20:], "labels": [0] * 10}
    await client.post("/models/early/predictions", more)
    await _reads(client, "early")
    await client.post("/models/unknown/labels", {"batch_id": "l", "ids": ["a"], "labels": [0]})


async def with_units_slices_and_cases(client: Client) -> None:
    body = clinic(106, 60)
    truth = body.pop("labels")
    await client.post("/models/ward/predictions", body)
    named = [[f"reader-{j}" for j in range(len(each))] for each in truth]
    await _label(client, "ward", "l1", ids=body["ids"][:40], labels=truth[:40], raters=named[:40])
    await _label(client, "ward", "l2", ids=body["ids"][30:], labels=truth[30:])
    await _reads(client, "ward")
    await _reads(client, "ward", slice="site:S0")
    await client.get("/models/ward/metrics", metrics=FEW, by="site")
    await client.get("/models/ward/cases", limit="4")
    await client.get("/models/ward/raters")
    await client.get("/models/ward/uncertainty")
    await _label(client, "ward", "l3", ids=body["ids"][:6], labels=[0] * 6, raters=["reader-0"] * 6)
    for each in ("scan-0", "scan-7", "scan-59", "absent"):
        await client.send(
            "DELETE",
            f"/models/ward/predictions/{each}",
            headers={"Prefer": "wait=60", "Idempotency-Key": f"d-{each}"},
        )
    await client.send(
        "DELETE",
        "/models/ward/predictions/scan-0",
        headers={"Prefer": "wait=60", "Idempotency-Key": "again"},
    )
    await _reads(client, "ward")
    await client.get("/models/ward/metrics", metrics=FEW, by="device")
    await client.get("/models/ward/cases", limit="4")
    await _label(client, "ward", "l4", ids=["scan-7"], labels=[1])
    await _reads(client, "ward")


async def narrow_scores(client: Client) -> None:
    """Scores of 32 bits, whose labels come later and are corrected."""
    columns = {
        "probabilities": pa.array(probabilities(107, 40), pa.list_(pa.float32(), 3)),
        "ids": names("id", 40),
        "units": names("u", 40, 8),
        "event_times": times(40, 2),
    }
    headers = {"Content-Type": ARROW, "Idempotency-Key": "p"}
    await client.post("/models/narrow/predictions", content=arrow(columns), headers=headers)
    await _label(
        client, "narrow", "l1", ids=names("id", 40), labels=ratings(107, probabilities(107, 40))
    )
    await _label(client, "narrow", "l2", ids=names("id", 12), labels=[2] * 12, raters=["ann"] * 12)
    await _label(client, "narrow", "l3", ids=names("id", 12), labels=[1] * 12, raters=["ann"] * 12)
    await client.send(
        "DELETE",
        "/models/narrow/predictions/id3",
        headers={"Prefer": "wait=60", "Idempotency-Key": "d"},
    )
    await _reads(client, "narrow")


async def repeated_predictions(client: Client) -> None:
    """A second prediction under an id that exists."""
    await client.post("/models/again/predictions", _unlabelled(108, 20))
    await client.post(
        "/models/again/predictions", _unlabelled(109, 20) | {"ids": names("id", 40)[10:30]}
    )
    await client.get("/models/again/batches/p109")
    await _label(client, "again", "l1", ids=names("id", 30), labels=[0, 1, 2] * 10)
    twice = _unlabelled(110, 4) | {"ids": ["x", "y", "x", "x"]}
    await client.post("/models/again/predictions", twice)
    await _label(client, "again", "l2", ids=["x", "y"], labels=[0, 1])
    await _reads(client, "again")


async def several_days(client: Client) -> None:
    for day in range(6):
        body = batch(
            111 + day, 16, days_ago=6 - day, ids=names(f"d{day}-", 16), units=names("u", 16, 5)
        )
        body["labels"] = [each if i % 2 else None for i, each in enumerate(body["labels"])]
        await client.post("/models/days/predictions", body)
    for day in range(6):
        await _label(
            client, "days", f"l{day}", ids=names(f"d{day}-", 16)[::2], labels=[day % 3] * 8
        )
    await _reads(client, "days")
    await client.get("/models/days/metrics", metrics=FEW, every="P1D", window="P7D")
    await client.get("/models/days/metrics", metrics=FEW, window="P2D")
    await client.get("/models/days/metrics", metrics=FEW, window="P2D", against="window:P2D")


async def multilabel(client: Client) -> None:
    """Rows of independent events: their labels arrive late, are corrected and deleted."""
    path, names_of_labels = "/models/tags", ["car", "dog", "sky"]
    await client.put(path, {"task": "multilabel", "classes": names_of_labels})
    scores = [[0.05 + (7 * i + 5 * k) % 90 / 100 for k in range(3)] for i in range(60)]
    events = [[int((3 * i + k) % 10 < 10 * p) for k, p in enumerate(row)] for i, row in enumerate(scores)]  # fmt: skip
    rows = {"probabilities": scores, "ids": names("id", 60), "event_times": times(60, 3)}
    await client.post(f"{path}/predictions", {"batch_id": "p1", **rows})
    await client.post(f"{path}/predictions", {"batch_id": "p1", **rows})
    first = [[y if k or i < 40 else None for k, y in enumerate(row)] for i, row in enumerate(events)]  # fmt: skip
    await _label(client, "tags", "l1", ids=names("id", 60), labels=first, raters=["ann"] * 60)
    await _label(client, "tags", "l2", ids=["id1"], labels=[[None, 1, None]], raters=["ann"])
    headers = {"Prefer": "wait=60", "Idempotency-Key": "d"}
    await client.send("DELETE", f"{path}/predictions/id2", headers=headers)
    for read in ("metrics", "temperature", "reliability", "calibration-map"):
        await client.get(f"{path}/{read}")
    await client.get(f"{path}/metrics", metrics=FEW, slice="label:dog")
    await client.get(f"{path}/metrics", metrics="ece", by="label")
    await client.get(f"{path}/report")
    await client.post(f"{path}/predictions", {"probabilities": [[0.5, 0.5]], "labels": [[1, 0]]})
    await client.post(f"{path}/predictions", {"probabilities": [[0.5] * 3], "labels": [[1, 0, 2]]})
