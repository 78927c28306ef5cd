"""A model that is exported and imported under another name: its reads stay equal."""

from __future__ import annotations

from tests.recorded.data import NDJSON, at, batch, clinic, confidences, drawn_binary, names
from tests.recorded.service import Client

READS = (
    "metrics",
    "reliability",
    "temperature",
    "calibration-map",
    "disagreement",
    "uncertainty",
    "raters",
    "drift",
    "baselines",
)


async def _reads(client: Client, path: str) -> None:
    for kind in READS:
        await client.get(f"{path}/{kind}")
    await client.get(f"{path}/metrics", metrics="ece,brier", by="site")
    await client.get(f"{path}/metrics", metrics="ece", every="P1D", window="P6D")
    await client.get(f"{path}/metrics", metrics="ece,brier", against="baseline:first")
    await client.get(f"{path}/cases", limit="3")
    await client.get(path)


async def with_records(client: Client) -> None:
    path = "/models/from"
    for day in range(3):
        await client.post(
            f"{path}/predictions", clinic(900 + day, 40, prefix=f"t{day}-", days_ago=4 - day)
        )
    await client.post(f"{path}/labels", {"batch_id": "early", "ids": ["waiting"], "labels": [1]})
    await client.post(
        f"{path}/labels",
        {"batch_id": "named", "ids": ["t0-1", "t1-2"], "labels": [0, 1], "raters": ["ann", "bob"]},
    )
    await client.post(
        f"{path}/predictions", batch(910, 10, days_ago=1) | {"source": "topic", "offsets": [0, 10]}
    )
    await client.put(f"{path}/baselines/first", {"window": "P30D"})
    await client.post(f"{path}/maps", {"method": "temperature"})
    await _reads(client, path)
    exported = await client.get(f"{path}/export", records="true")
    await client.post(
        "/models/to/import", content=exported.content, headers={"Content-Type": NDJSON}
    )
    await _reads(client, "/models/to")
    for model in ("from", "to"):
        later = {
            "batch_id": "later",
            "ids": ["t0-1", "t0-3", "t2-9"],
            "labels": [2, 2, 2],
            "raters": ["ann"] * 3,
        }
        await client.post(f"/models/{model}/labels", later)
        waited = batch(911, 2, ids=["waiting", "new"]) | {"labels": [None, 0]}
        await client.post(f"/models/{model}/predictions", waited)
        await client.send(
            "DELETE",
            f"/models/{model}/predictions/t1-5",
            headers={"Prefer": "wait=60", "Idempotency-Key": "d"},
        )
        await client.get(f"/models/{model}/metrics", metrics="ece,brier,accuracy")
        await client.get(f"/models/{model}/sources/topic")
        await client.get(f"/models/{model}/maps")


async def without_records(client: Client) -> None:
    values = confidences(920, 60)
    body = {
        "batch_id": "b",
        "confidences": values,
        "labels": drawn_binary(920, values),
        "ids": names("i", 60),
        "event_times": [at(2)] * 60,
    }
    await client.put("/models/plain", {"task": "binary", "label_horizon": "P30D"})
    await client.post("/models/plain/predictions", body)
    exported = await client.get("/models/plain/export")
    await client.post(
        "/models/copy/import", content=exported.content, headers={"Content-Type": NDJSON}
    )
    await client.post(
        "/models/copy/import", content=exported.content, headers={"Content-Type": NDJSON}
    )
    for model in ("plain", "copy"):
        await client.post(
            f"/models/{model}/labels",
            {"batch_id": "l", "ids": ["i1"], "labels": [0], "raters": ["ann"]},
        )
        await client.get(f"/models/{model}/metrics")
    await client.post(
        "/models/broken/import", content=exported.content[:300], headers={"Content-Type": NDJSON}
    )
    await client.post("/models/broken/import", content=b"{}\n", headers={"Content-Type": NDJSON})
    await client.get("/models/absent/export")
