"""Models, lists, catalogues, and what is wrong with requests."""

from __future__ import annotations

from tests.recorded.data import at, batch, clinic, names, probabilities
from tests.recorded.service import Client


async def models(client: Client) -> None:
    settings = {
        "classes": ["cat", "dog", "owl"],
        "label_horizon": "P7D",
        "retention": "P400D",
        "slices": {"site": ["A", "B"]},
        "unit": "patient",
    }
    made = await client.put("/models/one", settings)
    await client.put("/models/one", settings)
    await client.put("/models/one", settings | {"classes": ["cat", "dog"]})
    await client.send(
        "PATCH",
        "/models/one",
        json={"label_horizon": "P8D"},
        headers={"If-Match": made.headers.get("etag", "*")},
    )
    await client.send(
        "PATCH",
        "/models/one",
        json={"retention": None},
        headers={"If-Match": made.headers.get("etag", "*")},
    )
    await client.send("PATCH", "/models/one", json={"retention": None})
    await client.send("PATCH", "/models/one", json={"grid": 100})
    for i in range(5):
        await client.put(f"/models/m{i}", {"task": "binary"})
    await client.get("/models")
    first = await client.get("/models", limit="2")
    await client.get("/models", limit="2", cursor=first.json()["next"])
    await client.get("/models", limit="5000")
    await client.get("/models", cursor="x")
    await client.get("/models", view="status")
    await client.send("DELETE", "/models/m3")
    await client.send("DELETE", "/models/m3")
    await client.get("/models/m3")
    await client.post(
        "/models/m4/predictions", {"batch_id": "b", "confidences": [0.5], "labels": [1]}
    )
    await client.send("DELETE", "/models/m4", headers={"If-Match": '"other"'})
    await client.send("DELETE", "/models/m4")
    await client.post(
        "/models/m4/predictions", {"batch_id": "c", "confidences": [0.5, 0.1], "labels": [1, 0]}
    )
    await client.get("/models/m4/metrics", metrics="ece")
    await client.get("/usage")
    await client.get("/audit")


async def settings(client: Client) -> None:
    for i, given in enumerate(
        (
            {"task": "other"},
            {"task": "segmentation", "classes": 4},
            {"classes": 1},
            {"classes": ["a", "a"]},
            {"classes": 100_000},
            {"grid": 1},
            {"grid": 12, "classes": 3},
            {"pane": "PT7M"},
            {"pane": "P1D", "label_horizon": "P2D"},
            {"pane": "x"},
            {"retention": "PT1M"},
            {"slices": {"a/b": None}},
            {"slices": {"site": []}},
            {"unit": ""},
            {"unknown": 1},
            {"mode": "observe"},
            {"composites": {"both": [1, 2]}, "task": "segmentation", "classes": 3},
            {"listed_classes": [0]},
            {"classes": 80, "listed_classes": [0, 90]},
            [],
        )
    ):
        await client.put(f"/models/s{i}", given)
    for name in ("a b", "..", "x" * 129, "ok:1.a@b-c"):
        await client.put(f"/models/{name}", {})


async def catalogues(client: Client) -> None:
    await client.get("/metrics")
    await client.get("/metrics", search="MR-ECE")
    await client.get("/metrics", search="nothing at all")
    await client.get("/calibrators")
    problems = (await client.get("/problems")).json()
    for each in problems[next(iter(problems))]:
        await client.get(f"/problems/{each['type'].rpartition('/')[2]}")
    await client.get("/problems/none")


async def unknown_paths_and_methods(client: Client) -> None:
    await client.put("/models/m", {"classes": 3})
    for method, path in (
        ("GET", "/nothing"),
        ("POST", "/models"),
        ("DELETE", "/metrics"),
        ("PUT", "/models/m/metrics"),
        ("GET", "/models/m/nothing"),
        ("GET", "/models/none"),
        ("GET", "/models/none/temperature"),
        ("POST", "/models/m/labels"),
        ("PATCH", "/models/none"),
        ("GET", "/models/m/dead-letters"),
        ("POST", "/models/m/dead-letters/parked-1-0/replay"),
        ("DELETE", "/models/m/dead-letters/x"),
        ("GET", "/models/m/reports"),
        ("GET", "/keys"),
    ):
        await client.send(method, path)


async def predictions(client: Client) -> None:
    path = "/models/strict/predictions"
    await client.put("/models/strict", {"classes": 3, "slices": {"site": ["A"]}})
    rows = probabilities(800, 3)
    good = {"probabilities": rows, "labels": [0, 1, 2]}
    for i, change in enumerate(
        (
            {"labels": [0, 1]},
            {"labels": [0, 1, 3]},
            {"labels": [0, 1, -1]},
            {"labels": [0, 1, "cat"]},
            {"labels": [0, 1, []]},
            {"labels": "012"},
            {"labels": [0, 1, True]},
            {"labels": [0.0, 1.0, 2.0]},
            {"probabilities": [[0.5, 0.5]] * 3},
            {"probabilities": []},
            {"probabilities": 5},
            {"probabilities": [*rows[:2], None]},
            {"probabilities": [*rows[:2], [0.3, 0.3, 0.3]]},
            {"probabilities": [*rows[:2], [0.3, 0.3, 0.4004]]},
            {"ids": ["a", "b"]},
            {"ids": ["a", "b", "a b"]},
            {"ids": ["a", "b", "c" * 200]},
            {"ids": [1, 2, 3]},
            {"units": ["a", None, "b"]},
            {"cases": ["x", "y", ""]},
            {"slices": {"site": ["A", "A", "Z"]}},
            {"slices": {"other": ["A", "A", "A"]}},
            {"slices": {"site": "A"}},
            {"slices": []},
            {"weights": [1, 2]},
            {"weights": [1, 2, -3]},
            {"weights": [1, 2, "x"]},
            {"event_times": [at(1)]},
            {"batch_id": "a b"},
            {"batch_id": ""},
            {"batch_id": 5},
            {"unknown": [1]},
            {"label_counts": [[1, 0, 0]] * 3},
            {"logits": [[1, 0, 0]] * 3},
            {"confidences": [0.5] * 3},
            {"raters": [["a"]] * 3},
        )
    ):
        await client.post(path, {"batch_id": f"b{i}"} | good | change)
    for headers in (
        {"Prefer": "wait=x"},
        {"Prefer": "wait=-1"},
        {"Idempotency-Key": "a b"},
        {"Content-Type": "text/plain"},
    ):
        await client.post(path, good, headers=headers)
    await client.post("/models/a b/predictions", good)
    await client.get("/models/strict")


async def labels(client: Client) -> None:
    path = "/models/strict/labels"
    await client.put("/models/strict", {"classes": ["cat", "dog", "owl"]})
    good = {"ids": ["a", "b"], "labels": [0, 1]}
    for i, change in enumerate(
        (
            {"ids": ["a"]},
            {"ids": []},
            {"labels": [0, 3]},
            {"labels": [0, "cow"]},
            {"labels": [0, None]},
            {"labels": [0, [None]]},
            {"raters": ["ann"]},
            {"raters": [["ann", "bob"], ["ann"]]},
            {"raters": ["ann", 5]},
            {"labels": [[0, 1], [1, 2]], "raters": [["ann", "ann"], ["ann", "bob"]]},
            {"revision": [0]},
            {"revision": [0, -1]},
            {"revision": [0, "x"]},
            {"unknown": 1},
            {"labels": ["cat", "owl"]},
        )
    ):
        await client.post(path, {"batch_id": f"l{i}"} | good | change)
    await client.send("DELETE", "/models/strict/predictions/a b")
    await client.get("/models/strict/metrics", metrics="ece")


async def reports(client: Client) -> None:
    path = "/models/reported"
    await client.post(f"{path}/predictions", clinic(810, 60))
    await client.get(f"{path}/report", headers={"Accept": "text/html"})
    await client.get(f"{path}/report", headers={"Accept": "application/json"}, tolerance="0.05")
    await client.post(f"{path}/reports", {"note": "committee", "window": "P30D", "tolerance": 0.05})
    await client.get(f"{path}/reports")


async def hostile_names(client: Client) -> None:
    body = batch(811, 6, ids=names("i:@.-_", 6), units=["Ä", "b c", "x" * 128, "y", "z", "0"])
    await client.post("/models/named/predictions", body)
    await client.post(
        "/models/named/predictions", batch(812, 6, units=names("u", 6)) | {"ids": ["ü"] * 6}
    )
    await client.get("/models/named/metrics", metrics="ece")
