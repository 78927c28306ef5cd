"""Updates of histograms: increments and running totals of each kind and policy."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.recorded.data import NDJSON, at, lines
from tests.recorded.service import Client

BINS = 12
FEW = "accuracy,ece,mce,rmsce,brier"


def _histogram(seed: int, **more: Any) -> dict[str, Any]:
    random = Random(seed)
    count = [float(random.randrange(20)) for _ in range(BINS)]
    return {
        "bins": BINS,
        "count": count,
        "sum_confidence": [n * (i + 0.5) / BINS for i, n in enumerate(count)],
        "sum_correct": [float(random.randrange(int(n) + 1)) for n in count],
        "n_units": 7,
        "event_time": at(2),
        **more,
    }


async def _reads(client: Client, model: str, **more: str) -> None:
    await client.get(f"/models/{model}/metrics", metrics=FEW, **more)
    await client.get(f"/models/{model}/reliability", bins="6", **more)


async def kinds_and_policies(client: Client) -> None:
    path = "/models/kinds"
    await client.put(path, {"classes": ["cat", "dog", "owl"], "grid": BINS})
    for i, kind in enumerate(("top_label", "class", "positive")):
        for j, policy in enumerate(("pooled", "mean", "majority", "single")):
            body = _histogram(10 * i + j, kind=kind, raters=policy, batch_id=f"{kind}-{policy}")
            await client.post(
                f"{path}/histograms", body | ({"class": "dog"} if kind == "class" else {})
            )
    for policy in ("pooled", "mean", "majority", "single"):
        await client.get(f"{path}/metrics", metrics=FEW, raters=policy)
        await client.get(f"{path}/reliability", bins="6", raters=policy, scope="class:dog")
    await client.get(f"{path}/temperature")
    await client.get(f"{path}/label-distribution")


async def binary_model(client: Client) -> None:
    path = "/models/positive"
    await client.put(path, {"task": "binary", "grid": 3600})
    for i, edges in enumerate(("right", "left")):
        body = _histogram(30 + i, kind="positive", edges=edges, n_predictions=None, batch_id=edges)
        await client.post(f"{path}/histograms", body)
    counted = _histogram(33, kind="positive", batch_id="counted")
    await client.post(
        f"{path}/histograms", counted | {"n_predictions": [int(n) for n in counted["count"]]}
    )
    await _reads(client, "positive")
    await client.get(f"{path}/temperature")
    await client.get(f"{path}/roc", points="8")
    await client.get(f"{path}/calibration-map", method="platt")


async def running_totals(client: Client) -> None:
    path = "/models/totals/histograms"
    await client.put("/models/totals", {"classes": 3, "grid": BINS})
    steps = (
        (1, 1, 40),
        (1, 2, 41),
        (1, 2, 41),
        (1, 2, 42),
        (1, 1, 40),
        (2, 1, 43),
        (1, 3, 44),
        (2, 5, 45),
        (0, 9, 46),
    )
    for i, (epoch, sequence, seed) in enumerate(steps):
        body = _histogram(
            seed,
            kind="top_label",
            mode="cumulative",
            source="edge-1",
            epoch=epoch,
            sequence=sequence,
        )
        await client.post(path, body | {"batch_id": f"t{i}"})
        await client.get("/models/totals/metrics", metrics="ece")
    other = _histogram(
        47,
        kind="top_label",
        mode="cumulative",
        source="edge-2",
        epoch=1,
        sequence=1,
        slice={"site": "B"},
    )
    await client.post(
        path, {"batch_id": "two", "histograms": [other, other | {"kind": "class", "class": 1}]}
    )
    days = [
        _histogram(
            50 + i,
            kind="top_label",
            mode="cumulative",
            source="edge-3",
            epoch=1,
            sequence=1,
            event_time=at(i),
        )
        for i in range(3)
    ]
    await client.post(path, {"batch_id": "days", "histograms": days})
    await _reads(client, "totals")
    await _reads(client, "totals", slice="site:B")
    await client.get("/models/totals/metrics", metrics="ece", every="P1D", window="P4D")


async def units_cases_and_slices(client: Client) -> None:
    path = "/models/sliced/histograms"
    await client.put("/models/sliced", {"classes": 3, "grid": BINS, "unit": "patient"})
    for i in range(8):
        body = _histogram(
            60 + i,
            kind="top_label",
            unit=f"patient-{i}",
            n_units=1,
            slice={"site": "A" if i % 2 else "B"},
        )
        await client.post(path, body | {"batch_id": f"u{i}"})
    missing = _histogram(70, kind="top_label", batch_id="missing")
    missing.pop("n_units")
    await client.post(path, missing)
    await client.post(
        path, _histogram(71, kind="class", case="scan-1", batch_id="case", **{"class": 2})
    )
    content = lines(
        [{"batch_id": "lines"}, *(_histogram(72 + i, kind="top_label") for i in range(3))]
    )
    await client.post(path, content=content, headers={"Content-Type": NDJSON})
    await _reads(client, "sliced")
    await client.get("/models/sliced/metrics", metrics=FEW, by="site")
    await client.get("/models/sliced/cases")


async def rejected_updates(client: Client) -> None:
    path = "/models/bad/histograms"
    await client.put("/models/bad", {"classes": 3, "grid": BINS})
    good = _histogram(80, kind="top_label")
    changes: tuple[dict[str, Any], ...] = (
        {"bins": 7},
        {"bins": 13, "count": [1.0] * 13},
        {"count": [1.0]},
        {"count": [-1.0] * BINS},
        {"sum_correct": [99.0] * BINS},
        {"sum_confidence": [99.0] * BINS},
        {"kind": "other"},
        {"kind": "class"},
        {"kind": "class", "class": 9},
        {"raters": "all"},
        {"mode": "cumulative"},
        {"mode": "cumulative", "source": "e", "epoch": -1, "sequence": 1},
        {"n_units": 0},
        {"n_units": 10_000},
        {"unknown": 1},
        {"event_time": at(-1)},
        {"slice": {"site": 5}},
        {"count": "x"},
        {"edges": "both"},
    )
    for i, change in enumerate(changes):
        await client.post(path, good | {"batch_id": f"b{i}"} | change)
    await client.post(
        path,
        {"histograms": [good, good | {"bins": 7}], "batch_id": "partial"},
        params={"partial": "true"},
    )
    await client.post(path, {"batch_id": "none", "histograms": []})
    await _reads(client, "bad")
