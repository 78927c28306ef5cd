"""Sealed cohorts, baselines, the drift alarm."""

from __future__ import annotations

from typing import Any

from tests.recorded.data import at, batch, clinic, confidences, drawn_binary, names
from tests.recorded.service import Client

DAYS, A_DAY = 40, 40
ALARM = {"tolerance": 0.0, "bucket": "P1D"}


async def _watched(client: Client, model: str, shift: float = 0.0, **settings: Any) -> str:
    """Send days of which the later half is shifted, and wait until they are sealed."""
    path = f"/models/{model}"
    declared = {"task": "binary", "pane": "P1D", "label_horizon": "P1D", "alarm": ALARM}
    await client.put(path, declared | settings)
    for day in range(DAYS):
        values = confidences(600 + day, A_DAY)
        body = {
            "batch_id": f"day{day}",
            "confidences": values,
            "labels": drawn_binary(600 + day, values, shift if day >= DAYS // 2 else 0.0),
            "event_times": [at(DAYS - day + 1)] * A_DAY,
            "units": names(f"u{day}-", A_DAY),
        }
        response = await client.http.post(
            f"/v1{path}/predictions", json=body, headers={"Prefer": "wait=60"}
        )
        assert response.json()["status"] == "merged", response.text
    await _sealed(client, path)
    return path


async def _sealed(client: Client, path: str) -> None:
    """Wait until every cohort is evaluated."""
    await client.until(
        f"{path}/drift", lambda found: found["sealed_to"] == "2026-11-19T00:00:00Z", clock="sealed"
    )


async def _reads(client: Client, path: str) -> None:
    await client.get(f"{path}/drift")
    await client.get(f"{path}/drift", include="evidence")
    await client.get(f"{path}/drift/history", window="P10D")
    await client.get(f"{path}/metrics", metrics="ece,brier", clock="sealed")
    await client.get(path)


async def steady(client: Client) -> None:
    path = await _watched(client, "steady")
    await _reads(client, path)
    await client.get(f"{path}/reliability", clock="sealed", bins="5")
    await client.get(f"{path}/temperature", clock="sealed")
    await client.get(f"{path}/metrics", metrics="ece", every="P8D", clock="sealed")
    await client.get("/models", view="status")
    await client.get("/alarms")


async def drifting(client: Client) -> None:
    path = await _watched(client, "drifting", 0.35)
    await _reads(client, path)
    found = (await client.get("/alarms")).json()
    await client.get("/alarms", state="closed")
    await client.get("/models", view="status")
    for alarm in [each["id"] for each in found["alarms"]][:1]:
        await client.get(f"/alarms/{alarm}")
        await client.post(f"/alarms/{alarm}/acknowledge", {"note": "new scanner"})
        await client.get(f"/alarms/{alarm}")
        await client.post(f"/alarms/{alarm}/acknowledge", {"note": "again"})
    await client.get(f"{path}/drift")
    await client.get("/alarms/absent")
    await client.get(f"{path}/drift", scope="class:0")
    await client.get(f"{path}/drift", scope="other")
    await client.get(f"{path}/drift/history", window="P3D", scope="positive")


async def from_a_reference(client: Client) -> None:
    settings = {
        "alarm": {
            "tolerance": 0.01,
            "scores": "raw",
            "raters": "pooled",
        }
    }
    path = await _watched(client, "referred", 0.3, **settings)
    await _reads(client, path)
    await client.get(f"{path}/metrics", metrics="ece,brier", against="reference")


async def late_labels_of_cohorts(client: Client) -> None:
    """Labels that come before and after their cohort is sealed."""
    path = "/models/late"
    await client.put(
        path,
        {
            "classes": 3,
            "pane": "P1D",
            "label_horizon": "P2D",
            "alarm": ALARM,
            "slices": {"site": ["S0", "S1"]},
        },
    )
    for day in range(6):
        body = clinic(
            650 + day, 30, prefix=f"d{day}-", days_ago=6 - day, slices={"site": names("S", 30, 2)}
        )
        body["labels"] = [each if i % 3 else None for i, each in enumerate(body["labels"])]
        await client.post(f"{path}/predictions", body)
    await client.until(
        f"{path}/metrics",
        lambda found: found["sealed_to"] == "2026-11-18T00:00:00Z",
        clock="sealed",
    )
    await client.get(f"{path}/metrics", metrics="ece,brier", clock="sealed")
    for day in range(6):
        await client.post(
            f"{path}/labels",
            {
                "batch_id": f"l{day}",
                "ids": names(f"d{day}-", 30)[::3],
                "labels": [day % 3] * 10,
                "raters": ["ann"] * 10,
            },
        )
    await client.get(f"{path}/metrics", metrics="ece,brier", clock="sealed")
    await client.get(f"{path}/metrics", metrics="ece,brier")
    await client.get(f"{path}/metrics", metrics="ece", clock="sealed", slice="site:S1")
    await client.send(
        "DELETE", f"{path}/predictions/d0-1", headers={"Prefer": "wait=60", "Idempotency-Key": "d"}
    )
    await client.get(f"{path}/metrics", metrics="ece,brier", clock="sealed")
    await client.get(f"{path}/metrics", metrics="ece,brier")
    await client.get(f"{path}/drift")


async def baselines(client: Client) -> None:
    path = "/models/based"
    for day in range(4):
        await client.post(
            f"{path}/predictions", clinic(660 + day, 40, prefix=f"b{day}-", days_ago=5 - day)
        )
    await client.put(f"{path}/baselines/first", {"window": "P30D"})
    await client.put(f"{path}/baselines/first", {"window": "P30D"})
    await client.put(f"{path}/baselines/site", {"window": "P4D", "slice": "site:S1"})
    await client.put(f"{path}/baselines/empty", {"window": "PT1H"})
    await client.put(f"{path}/baselines/bad", {"window": "x"})
    await client.post(f"{path}/predictions", batch(670, 40, days_ago=1))
    await client.get(f"{path}/baselines")
    for name in ("first", "site", "absent"):
        await client.get(f"{path}/baselines/{name}")
        await client.get(
            f"{path}/metrics", metrics="accuracy,ece,brier", against=f"baseline:{name}"
        )
    for kind in (
        "reliability",
        "temperature",
        "label-distribution",
        "uncertainty",
        "disagreement",
        "raters",
    ):
        await client.get(f"{path}/{kind}", against="baseline:first")
    await client.get(f"{path}/drift", against="baseline:first")
    await client.send("DELETE", f"{path}/baselines/site")
    await client.send("DELETE", f"{path}/baselines/site")
    await client.get(f"{path}/baselines")


async def without_a_horizon(client: Client) -> None:
    await client.post("/models/plain/predictions", batch(680, 30))
    await client.get("/models/plain/drift")
    await client.get("/models/plain/drift/history")
    await client.get("/models/plain/metrics", clock="sealed")
    await client.get("/models/plain/drift", against="window:P1D")
    for alarm in (
        {"tolerance": 2},
        {"bets": [9]},
        {"bucket": "PT90M"},
        {"false_alarms": "often"},
        {"raters": "all"},
        {"webhooks": [{"url": "http://127.0.0.1/x"}]},
        {"unknown": 1},
    ):
        await client.send("PATCH", "/models/plain", json={"label_horizon": "P1D", "alarm": alarm})
    await client.post("/models/plain/alarm/test")
    await client.get("/models/plain/alarm/deliveries")
