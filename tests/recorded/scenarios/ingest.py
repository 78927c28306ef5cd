"""Every form of a batch of predictions."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json

import pyarrow as pa

from calibrant import Pane
from tests.recorded.data import (
    ARROW,
    NDJSON,
    arrow,
    at,
    batch,
    clinic,
    confidences,
    drawn,
    drawn_binary,
    lines,
    names,
    probabilities,
    ratings,
    times,
)
from tests.recorded.service import Client

FEW = "accuracy,ece,brier,nll"


async def _reads(client: Client, model: str, **window: str) -> None:
    path = f"/models/{model}"
    await client.get(path)
    await client.get(f"{path}/metrics", metrics=FEW, **window)
    await client.get(f"{path}/reliability", bins="6", **window)
    await client.get(f"{path}/temperature", **window)


async def json_columns(client: Client) -> None:
    path = "/models/columns/predictions"
    await client.post(path, batch(1, 60))
    await client.post(path, batch(1, 60))  # duplicate
    await client.post(path, batch(1, 59))  # other content
    await client.post(path, batch(2, 40, days_ago=2), headers={"Idempotency-Key": "batch-2"})
    await client.post(path, batch(3, 5), headers={"Idempotency-Key": "another"})
    await client.send("POST", path, json=batch(4, 10), headers={"Prefer": "wait=60"})
    for name in ("batch-1", "batch-2", "batch-4", "unknown"):
        await client.get(f"/models/columns/batches/{name}")
    await _reads(client, "columns")


async def json_columns_with_everything(client: Client) -> None:
    path = "/models/clinic/predictions"
    await client.post(path, clinic(5, 90))
    await client.post(path, clinic(6, 30, prefix="later-", days_ago=1))
    await _reads(client, "clinic")
    await client.get("/models/clinic/metrics", metrics=FEW, slice="site:S1")
    await client.get("/models/clinic/metrics", metrics=FEW, by="device")
    await client.get("/models/clinic/metrics", metrics=FEW, every="P1D", window="P4D")
    await client.get("/models/clinic/cases", limit="5")
    await client.get("/models/clinic/raters")


async def json_records(client: Client) -> None:
    rows, labels = probabilities(7, 20), ratings(7, probabilities(7, 20))
    records = [
        {"id": f"r{i}", "probabilities": row, "labels": labels[i], "unit": f"u{i % 6}", "event_time": at(2, i),
         "slice": {"site": "A" if i % 2 else "B"}, "weight": 1 + i % 2}
        for i, row in enumerate(rows)
    ]  # fmt: skip
    await client.post(
        "/models/records/predictions", {"batch_id": "records", "predictions": records}
    )
    counted = [{"probabilities": row, "label_counts": [2, 1, 0]} for row in rows[:6]]
    await client.post(
        "/models/records/predictions", {"batch_id": "counted", "predictions": counted}
    )
    single = [{"probabilities": row, "label": 1} for row in rows[:6]]
    await client.post("/models/records/predictions", {"batch_id": "single", "predictions": single})
    unlabelled = [*single, {"probabilities": rows[6]}]
    await client.post(
        "/models/records/predictions", {"batch_id": "unlabelled", "predictions": unlabelled}
    )
    await _reads(client, "records")


async def json_lines(client: Client) -> None:
    rows, labels = probabilities(8, 30), drawn(8, probabilities(8, 30))
    records = [
        {"id": f"n{i}", "probability": row, "label": labels[i] if i % 4 else None, "unit": f"u{i % 9}",
         "event_time": at(2, 30 * i), "slice": {"site": "A"}}
        for i, row in enumerate(rows)
    ]  # fmt: skip
    headers = {"Content-Type": NDJSON}
    content = lines([{"batch_id": "lines"}, *records])
    await client.post("/models/lines/predictions", content=content, headers=headers)
    labels_of = [{"id": f"n{i}", "label": i % 3, "rater": "ann"} for i in range(0, 30, 4)]
    content = lines([{"batch_id": "label-lines"}, *labels_of])
    await client.post("/models/lines/labels", content=content, headers=headers)
    zipped = gzip.compress(lines([{"batch_id": "zipped"}, *records[:10]]), mtime=0)
    headers |= {"Content-Encoding": "gzip"}
    await client.post("/models/zipped/predictions", content=zipped, headers=headers)
    await _reads(client, "lines")
    await _reads(client, "zipped")


async def arrow_streams(client: Client) -> None:
    rows = probabilities(9, 50)
    columns = {
        "probabilities": pa.array(rows, pa.list_(pa.float64())),
        "labels": pa.array(drawn(9, rows)),
        "ids": names("a", 50),
        "units": names("u", 50, 12),
        "event_times": times(50, 2),
        "slices": pa.array([{"site": "A" if i % 3 else "B"} for i in range(50)]),
        "weights": [1.0 + i % 2 for i in range(50)],
    }
    headers = {"Content-Type": ARROW, "Idempotency-Key": "stream-1"}
    await client.post("/models/stream/predictions", content=arrow(columns), headers=headers)
    narrow = {
        "probabilities": pa.array(probabilities(10, 40), pa.list_(pa.float32(), 3)),
        "labels": pa.array(ratings(10, probabilities(10, 40)), pa.list_(pa.int32())),
        "ids": names("narrow", 40),
        "event_times": times(40, 1),
    }
    headers |= {"Idempotency-Key": "stream-2"}
    await client.post("/models/stream/predictions", content=arrow(narrow), headers=headers)
    late = {
        "ids": names("a", 20),
        "labels": pa.array([i % 3 for i in range(20)]),
        "raters": ["bob"] * 20,
    }
    headers |= {"Idempotency-Key": "stream-3"}
    await client.post("/models/stream/labels", content=arrow(late), headers=headers)
    headers |= {"Idempotency-Key": "stream-4"}
    content = arrow(
        {"logits": pa.array([[1.5, -0.25, 0.0]] * 3, pa.list_(pa.float64())), "labels": [0, 1, 0]}
    )
    await client.post("/models/stream/predictions", content=content, headers=headers)
    await _reads(client, "stream")


async def gzip_bodies(client: Client) -> None:
    content = gzip.compress(json.dumps(batch(11, 30)).encode(), mtime=0)
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    await client.post("/models/gz/predictions", content=content, headers=headers)
    await client.post("/models/gz/predictions", content=content[:40], headers=headers)
    headers |= {"Content-Encoding": "br"}
    await client.post("/models/gz/predictions", content=content, headers=headers)
    await _reads(client, "gz")


async def binary_confidences(client: Client) -> None:
    await client.put("/models/binary", {"task": "binary", "classes": ["no", "yes"]})
    values = confidences(12, 80)
    body = {
        "batch_id": "b1",
        "confidences": values,
        "labels": drawn_binary(12, values),
        "event_times": times(80, 2),
    }
    await client.post("/models/binary/predictions", body)
    named = {
        "batch_id": "b2",
        "confidences": values[:4],
        "labels": ["no", "yes", "yes", ["no", "yes"]],
    }
    await client.post("/models/binary/predictions", named)
    flat = {"batch_id": "b3", "probabilities": values[:4], "labels": [0, 1, 1, 1]}
    await client.post("/models/binary/predictions", flat)
    await client.post(
        "/models/binary/predictions", flat | {"batch_id": "b5", "labels": [0, None, 1, 1]}
    )
    rows = [[1 - each, each] for each in values[:6]]
    await client.post(
        "/models/binary/predictions", {"batch_id": "b4", "probabilities": rows, "labels": [1] * 6}
    )
    await _reads(client, "binary")


async def logits(client: Client) -> None:
    rows = [[(i * 7 % 11) / 4 - 1, (i * 5 % 13) / 4 - 1, (i * 3 % 17) / 4 - 1] for i in range(45)]
    body = {
        "batch_id": "z",
        "logits": rows,
        "labels": [i % 3 for i in range(45)],
        "event_times": times(45, 2),
    }
    await client.post("/models/logits/predictions", body)
    await _reads(client, "logits")


async def counts_and_weights(client: Client) -> None:
    rows = probabilities(13, 40)
    counts = [[1 + i % 4, (i + 1) % 3, i % 2] for i in range(40)]
    body = {
        "batch_id": "c",
        "probabilities": rows,
        "label_counts": counts,
        "event_times": times(40, 2),
    }
    await client.post(
        "/models/counts/predictions", body | {"weights": [0.5 + i % 5 / 4 for i in range(40)]}
    )
    await client.post(
        "/models/counts/predictions", body | {"batch_id": "zero", "label_counts": [[0, 0, 0]] * 40}
    )
    await client.post("/models/counts/predictions", batch(14, 20, weights=[0.0, 2.5] * 10))
    await _reads(client, "counts")
    for policy in ("mean", "majority", "single"):
        await client.get("/models/counts/metrics", metrics=FEW, raters=policy)


async def many_classes(client: Client) -> None:
    await client.post("/models/many/predictions", batch(15, 60, k=70))
    await client.put("/models/listed", {"classes": 70, "listed_classes": [0, 3, 69]})
    await client.post("/models/listed/predictions", batch(15, 60, k=70))
    for model in ("many", "listed"):
        await client.get(f"/models/{model}/metrics", metrics="ece,classwise_ece,brier")
        await client.get(f"/models/{model}/reliability", bins="5", scope="class:3")


async def packed_panes(client: Client) -> None:
    values = clinic(16, 40)
    pane = Pane.fill(values["probabilities"], values["labels"], units=values["units"])
    content = pane.pack()
    headers = {"Content-Type": "application/x-calibrant-pane", "Idempotency-Key": "pane-1"}
    path = "/models/packed/histograms"
    await client.put("/models/packed", {"classes": 3})
    where = {"event_time": at(2), "slice": "site:A"}
    await client.post(path, content=content, headers=headers, params=where)
    await client.post(path, content=content, headers=headers, params=where)
    text = base64.b64encode(content).decode()
    body = {"batch_id": "pane-2", "kind": "pane", "packed": text, "event_time": at(1)}
    await client.post(path, body)
    numbered = {
        "batch_id": "pane-3",
        "histograms": [{"kind": "pane", "packed": text, "event_time": at(1)}],
    }
    await client.post(path, numbered | {"source": "edge", "offsets": [0, 1]})
    await client.post(
        path, {"batch_id": "pane-4", "kind": "pane", "packed": text[:80], "event_time": at(1)}
    )
    await client.post(path, {"batch_id": "pane-5", "kind": "pane", "packed": "no base64!"})
    await _reads(client, "packed")
    await client.get("/models/packed/metrics", metrics=FEW, slice="site:A")


async def sources(client: Client) -> None:
    path = "/models/sourced/predictions"
    ranges = (
        [0, 10],
        [10, 20],
        [10, 20],
        [0, 10],
        [15, 25],
        [30, 40],
        [20, 20],
        [20, 30],
        [30, 20],
        [20],
    )
    for i, offsets in enumerate(ranges):
        n = max(1, offsets[-1] - offsets[0])
        rows = batch(20 + i, n, batch_id=None)
        rows.pop("batch_id")
        await client.post(path, rows | {"source": "topic-0", "offsets": offsets})
    await client.post(path, batch(31, 4) | {"source": "topic-1", "offsets": [500, 504]})
    await client.post(path, batch(32, 4) | {"offsets": [0, 4]})
    await client.post(path, batch(33, 4) | {"source": "topic-1"})
    for source in ("topic-0", "topic-1", "topic-2"):
        await client.get(f"/models/sourced/sources/{source}")
    await _reads(client, "sourced")


async def partial_batches(client: Client) -> None:
    path = "/models/partial/predictions"
    await client.put(
        "/models/partial", {"classes": ["cat", "dog", "owl"], "slices": {"site": ["A", "B"]}}
    )
    rows = probabilities(40, 8)
    bad = {
        "batch_id": "p1",
        "probabilities": [
            *rows[:3],
            [0.5, 0.2, 0.1],
            [0.5, "x", 0.5],
            [1.2, -0.1, -0.1],
            *rows[6:],
        ],
        "labels": ["cat", 1, 7, 0, 0, 0, "cow", None],
        "slices": {"site": ["A", "C", "B", "A", "A", "A", "A", "B"]},
    }
    await client.post(path, bad, params={"partial": "true"})
    await client.post(path, bad)
    await client.get("/models/partial/batches/p1")
    records = [{"probability": row, "label": i} for i, row in enumerate(rows)]
    content = lines([{"batch_id": "p2"}, *records]) + b'{"probability": [0.5\n'
    headers = {"Content-Type": NDJSON}
    await client.post(path, content=content, headers=headers, params={"partial": "true"})
    late = {"batch_id": "p3", "ids": ["x", "y", "z"], "labels": [1, 9, [0, "cow"]]}
    await client.post("/models/partial/labels", late, params={"partial": "true"})
    await _reads(client, "partial")


async def cloud_events(client: Client) -> None:
    mapping = {"scores": "probabilities"}
    await client.put("/models/ml.iris", {"classes": 3, "cloudevents": mapping})
    event = {
        "specversion": "1.0",
        "id": "5f0c",
        "source": "http://localhost:9081/",
        "type": "org.kubeflow.serving.inference.response",
        "time": at(1),
        "inferenceservicename": "iris",
        "namespace": "ml",
        "component": "predictor",
        "data": {"predictions": probabilities(41, 4)},
    }
    headers = {"Content-Type": "application/cloudevents+json"}
    for changes in (
        {},
        {},
        {"id": "5f0d"},
        {"inferenceservicename": "rose", "id": "3"},
        {"type": "other", "id": "4"},
    ):
        content = json.dumps(event | changes).encode()
        await _merged_event(client, content, headers)
    binary = {
        f"ce-{name}": event[name]
        for name in ("specversion", "source", "type", "time", "inferenceservicename", "namespace")
    }
    binary |= {"ce-id": "77", "Content-Type": "application/json"}
    await _merged_event(client, json.dumps(event["data"]).encode(), binary)
    await client.post("/cloudevents", content=b"{}", headers=headers)
    late = {"batch_id": "l", "ids": ["5f0c", "5f0d"], "labels": [1, 1]}
    await client.post("/models/ml.iris/labels", late)
    await client.get("/models/ml.iris")
    await client.get("/models/ml.iris/metrics", metrics=FEW)


async def _merged_event(client: Client, content: bytes, headers: dict[str, str]) -> None:
    """Send an event and wait until its batch is merged, for which a sender of events does not ask."""
    response = await client.post("/cloudevents", content=content, headers=headers)
    if batch_id := (response.json().get("batch") or {}).get("batch_id"):
        path = f"/models/ml.iris/batches/{batch_id}"
        await client.until(path, lambda found: found["status"] == "merged")


async def event_times(client: Client) -> None:
    path = "/models/timed/predictions"
    rows = probabilities(42, 3)
    for i, given in enumerate(
        ("2026-11-18T09:00:00+01:00", "2026-11-18T09:00:00.123456Z", "2026-11-18", "2026-11-18T09:00:00", "x",
         at(-1), at(0, 200), at(0, 400), "1969-12-31T23:59:59Z", "2026-02-30T00:00:00Z", 1795000000)
    ):  # fmt: skip
        await client.post(
            path,
            {
                "batch_id": f"t{i}",
                "probabilities": rows,
                "event_times": [given] * 3,
                "labels": [0, 1, 2],
            },
        )
    await client.post(path, {"batch_id": "none", "probabilities": rows, "labels": [0, 1, 2]})
    far = {
        "batch_id": "far",
        "probabilities": rows,
        "event_times": [at(900), at(400), at(0)],
        "labels": [0, 1, 2],
    }
    await client.post(path, far)
    await _reads(client, "timed")
    await client.get("/models/timed/metrics", metrics="ece", every="P1D", window="P3D")
    await client.get(
        "/models/timed/metrics",
        metrics="ece",
        from_="2026-11-18T00:00:00Z",
        to="2026-11-19T00:00:00Z",
    )


async def several_at_once(client: Client) -> None:
    """Batches that arrive together, so that the engine may commit several at once."""
    bodies = [clinic(50 + i, 12, prefix=f"p{i}-", days_ago=1 + i % 3) for i in range(12)]
    posts = [
        client.http.post("/v1/models/group/predictions", json=each, headers={"Prefer": "wait=60"})
        for each in bodies
    ]
    assert {each.status_code for each in await asyncio.gather(*posts)} == {200}
    await _reads(client, "group")
