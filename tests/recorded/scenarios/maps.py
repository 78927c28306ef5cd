"""Temperature, maps and their versions."""

from __future__ import annotations

from calibrant.calibrators import MAPS
from tests.recorded.data import (
    NDJSON,
    clinic,
    confidences,
    drawn,
    drawn_binary,
    lines,
    names,
    probabilities,
    times,
)
from tests.recorded.service import Client

POLICIES = ("pooled", "mean", "majority", "single")


async def _classes(client: Client, n: int = 240) -> str:
    rows = probabilities(500, n)
    labels = drawn(500, rows)
    body = {
        "batch_id": "m",
        "probabilities": rows,
        "labels": labels,
        "units": names("u", n, n // 2),
        "event_times": times(n, 2),
    }
    await client.post("/models/digits/predictions", body)
    return "/models/digits"


async def _binary(client: Client) -> str:
    values = confidences(501, 300)
    body = {
        "batch_id": "b",
        "confidences": values,
        "labels": drawn_binary(501, values, 0.06),
        "event_times": times(300, 2),
    }
    await client.put("/models/binary", {"task": "binary"})
    await client.post("/models/binary/predictions", body)
    return "/models/binary"


async def temperature(client: Client) -> None:
    path = await _classes(client)
    for objective in ("nll", "brier", "ece"):
        await client.get(f"{path}/temperature", objective=objective)
        await client.get(
            f"{path}/temperature", objective=objective, include="recommendation,heldout,curve"
        )
    await client.post(f"{path}/predictions", clinic(502, 90))
    for policy in POLICIES:
        await client.get(f"{path}/temperature", raters=policy)
    for query in (
        {"weights": "unit"},
        {"bins": "6", "objective": "ece"},
        {"bins": "7"},
        {"ci": "0.8"},
        {"slice": "site:S1"},
        {"against": "window:P2D", "window": "P3D"},
        {"objective": "other"},
        {"include": "other"},
        {"window": "PT1H"},
    ):
        await client.get(f"{path}/temperature", **query)
    binary = await _binary(client)
    await client.get(f"{binary}/temperature", include="recommendation")


async def surface(client: Client) -> None:
    path = await _binary(client)
    await client.get(f"{path}/temperature/surface", points="4")
    await client.get(f"{path}/temperature/surface", points="4", objective="brier")
    classes = await _classes(client)
    await client.get(f"{classes}/temperature/surface", points="3")


async def methods(client: Client) -> None:
    binary, classes = await _binary(client), await _classes(client)
    for method in sorted(MAPS):
        await client.get(f"{binary}/calibration-map", method=method)
        await client.get(f"{classes}/calibration-map", method=method)
    for query in (
        {"method": "platt", "class": "1"},
        {"method": "isotonic", "class": "9"},
        {"method": "isotonic", "class": "top_label"},
        {"method": "histogram", "bins": "5", "binning": "equal_mass"},
        {"method": "dirichlet(regularisation=0.1)"},
        {"method": "dirichlet(unknown=1)"},
        {"method": "magic"},
        {"method": "temperature", "include": "heldout,recommendation"},
        {"method": "temperature", "weights": "unit"},
        {"method": "temperature", "against": "window:P1D"},
    ):
        await client.get(f"{classes}/calibration-map", **query)


async def applied(client: Client) -> None:
    path = await _classes(client)
    rows = probabilities(503, 5)
    for method in ("temperature", "vector", "isotonic"):
        await client.post(
            f"{path}/calibration-map/apply", {"probabilities": rows}, params={"method": method}
        )
    await client.post(f"{path}/calibration-map/apply", {"logits": [[1.0, 0.5, -2.0]]})
    await client.post(
        f"{path}/calibration-map/apply", {"probabilities": [[0.5, 0.5, 0.5], *rows[:1]]}
    )
    await client.post(
        f"{path}/calibration-map/apply",
        {"probabilities": [[0.5, 0.5, 0.5], *rows[:1]]},
        params={"partial": "true"},
    )
    content = lines({"probability": each} for each in rows)
    await client.post(
        f"{path}/calibration-map/apply", content=content, headers={"Content-Type": NDJSON}
    )
    await client.post(
        f"{path}/calibration-map/apply", {"probabilities": rows}, params={"version": "1"}
    )
    await client.post(
        f"{path}/calibration-map/apply", {"probabilities": rows}, params={"map": "current"}
    )
    binary = await _binary(client)
    for method in ("platt", "beta", "isotonic", "histogram", "spline"):
        await client.post(
            f"{binary}/calibration-map/apply",
            {"confidences": [0.0, 0.1, 0.5, 1.0]},
            params={"method": method},
        )


async def versions(client: Client) -> None:
    path = await _binary(client)
    for body in (
        {"method": "temperature", "note": "first"},
        {"method": "platt"},
        {"method": "platt"},
        {"method": "isotonic", "window": "P30D"},
        {"method": "magic"},
        {"window": "PT1M"},
    ):
        await client.post(f"{path}/maps", body)
    await client.get(f"{path}/maps")
    await client.get(f"{path}/maps", limit="1")
    await client.get(f"{path}/maps/1")
    await client.get(f"{path}/maps/9")
    await client.get(f"{path}/maps/current")
    promotion = {"version": 2, "reason": "better on later labels"}
    await client.put(f"{path}/maps/current", promotion)
    first = await client.put(
        f"{path}/maps/current", promotion | {"override": True}, headers={"If-None-Match": "*"}
    )
    await client.put(f"{path}/maps/current", promotion, headers={"If-None-Match": "*"})
    await client.get(f"{path}/maps/current")
    tag = first.headers.get("etag", "none")
    await client.put(
        f"{path}/maps/current",
        {"version": 1, "reason": "back", "override": True},
        headers={"If-Match": tag},
    )
    await client.put(
        f"{path}/maps/current", {"version": 7, "reason": "absent"}, headers={"If-Match": "*"}
    )
    await client.put(f"{path}/maps/current", {"version": 1}, headers={"If-Match": "*"})
    await client.get(f"{path}/maps")
    values = {"confidences": [0.1, 0.6, 0.9]}
    await client.post(f"{path}/calibration-map/apply", values, params={"map": "current"})
    await client.post(f"{path}/calibration-map/apply", values, params={"version": "2"})
    await client.get(f"{path}/calibration-map", method="beta", include="heldout")
