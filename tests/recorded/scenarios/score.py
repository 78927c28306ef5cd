"""Scores of posted batches, of which nothing is stored."""

from __future__ import annotations

import io
import json

import numpy as np

from calibrant.metrics import METRICS
from tests.recorded.data import (
    ARROW,
    NDJSON,
    arrow,
    clinic,
    confidences,
    drawn,
    drawn_binary,
    lines,
    names,
    probabilities,
    ratings,
)
from tests.recorded.service import Client

ROWS = probabilities(700, 60)
LABELS = drawn(700, ROWS)
BODY = {"probabilities": ROWS, "labels": LABELS}


async def metrics(client: Client) -> None:
    await client.post("/score", BODY)
    for slug in sorted(METRICS):
        await client.post("/score", BODY, params={"metrics": slug})


async def parameters(client: Client) -> None:
    several = {
        "probabilities": ROWS,
        "labels": ratings(701, ROWS),
        "units": names("u", 60, 20),
        "cases": names("c", 60, 6),
    }
    for query in (
        {"bins": "5"},
        {"binning": "equal_mass"},
        {"edges": "left"},
        {"raters": "mean"},
        {"raters": "majority"},
        {"raters": "single"},
        {"scope": "class:1"},
        {"scope": "all"},
        {"ci": "0.8"},
        {"objective": "brier"},
        {"metrics": "ece,brier", "include": "reliability"},
        {"metrics": "ece", "include": "temperature"},
        {"metrics": "ece", "include": "recommendation"},
        {"metrics": "ml1_ece,ml1_ace"},
        {"metrics": "ece", "include": "cases"},
        {"metrics": "ece", "include": "disagreement"},
        {"metrics": "ece", "include": "uncertainty"},
        {"metrics": "ece", "include": "unknown"},
        {"metrics": "ece(bins=5),lp_ece(order=3)"},
        {"min_count": "4"},
        {"bins": "0"},
        {"unknown": "1"},
    ):
        await client.post("/score", several, params=query)
    options = {"bandwidth": 0.05, "epsilon": 0.1, "average": "micro"}
    await client.post(
        "/score", several | {"options": options}, params={"metrics": "kde_ece,tace,ml1_ece"}
    )
    await client.post("/score", several | {"options": {"unknown": 1}})
    named = clinic(702, 30)
    named["raters"] = [["ann", "bob", "eve", "zoe"][: len(each)] for each in named["labels"]]
    await client.post("/score", named, params={"metrics": "ece,brier"})


async def formats(client: Client) -> None:
    header = "p0,p1,p2,label,unit\n"
    table = header + "".join(
        f"{a!r},{b!r},{c!r},{y},u{i // 3}\n"
        for i, ((a, b, c), y) in enumerate(zip(ROWS, LABELS, strict=True))
    )
    query = {"metrics": "ece,brier,nll"}
    await client.post(
        "/score", content=table.encode(), headers={"Content-Type": "text/csv"}, params=query
    )
    renamed = table.replace("label", "truth", 1)
    await client.post(
        "/score", content=renamed.encode(), headers={"Content-Type": "text/csv"}, params=query
    )
    await client.post(
        "/score",
        content=renamed.encode(),
        headers={"Content-Type": "text/csv"},
        params=query | {"columns": "truth:label"},
    )
    await client.post(
        "/score", content=b"p0,p1\n0.5\n", headers={"Content-Type": "text/csv"}, params=query
    )
    file = io.BytesIO()
    np.save(file, np.array(ROWS))
    np.save(file, np.array(LABELS))
    await client.post(
        "/score",
        content=file.getvalue(),
        headers={"Content-Type": "application/x-npy"},
        params=query,
    )
    await client.post(
        "/score",
        content=file.getvalue()[:200],
        headers={"Content-Type": "application/x-npy"},
        params=query,
    )
    records = [{"probability": row, "label": LABELS[i]} for i, row in enumerate(ROWS)]
    await client.post(
        "/score", content=lines(records), headers={"Content-Type": NDJSON}, params=query
    )
    columns = {f"p{i}": [row[i] for row in ROWS] for i in range(3)} | {"label": LABELS}
    await client.post(
        "/score", content=arrow(columns), headers={"Content-Type": ARROW}, params=query
    )
    await client.post(
        "/score", content=b"x", headers={"Content-Type": "application/unknown"}, params=query
    )
    for media in ("text/csv", "image/svg+xml", "image/png", "text/html"):
        await client.post("/score", BODY, headers={"Accept": media}, params=query)


async def binary(client: Client) -> None:
    values = confidences(703, 80)
    body = {"confidences": values, "labels": drawn_binary(703, values)}
    await client.post("/score", body)
    await client.post("/score", body, params={"scope": "top_label", "metrics": "ece,mce"})
    await client.post("/score", body | {"labels": [True, False] * 40}, params={"metrics": "ece"})
    await client.post(
        "/score",
        {"logits": [[each * 4 - 2, 0.0] for each in values], "labels": body["labels"]},
        params={"metrics": "nll"},
    )
    await client.post(
        "/score", {"confidences": values, "label_counts": [[2, 1]] * 80}, params={"metrics": "ece"}
    )


async def rejected(client: Client) -> None:
    for body in (
        {},
        {"probabilities": ROWS},
        {"labels": LABELS},
        {"probabilities": ROWS, "labels": LABELS[:5]},
        {"probabilities": [[0.5, 0.6, 0.1]], "labels": [0]},
        {"probabilities": [[0.5, 0.5], [0.2, 0.3, 0.5]], "labels": [0, 0]},
        {"probabilities": [[1.5, -0.5]], "labels": [0]},
        {"probabilities": [["a", "b"]], "labels": [0]},
        {"probabilities": [[0.2, 0.8]], "labels": [[0, None]]},
        {"probabilities": [[0.2, 0.8]], "labels": [5]},
        {"probabilities": [[0.2, 0.8]], "labels": [0.5]},
        {"probabilities": [[0.2, 0.8]], "labels": [0], "weights": [-1]},
        {"probabilities": [[0.2, 0.8]], "labels": [0], "units": [3.5]},
        {"logits": [[1e400, 0]], "labels": [0]},
        {"confidences": [1.2], "labels": [0]},
        {"confidences": [], "labels": []},
        {"probabilities": [[0.2, 0.8]], "confidences": [0.8], "labels": [0]},
        {"probabilities": [[1.0]], "labels": [0]},
        [],
        "text",
    ):
        content = json.dumps(body).replace("Infinity", "1e400").encode()
        await client.post(
            "/score",
            content=content,
            headers={"Content-Type": "application/json"},
            params={"metrics": "ece"},
        )
    for content in (b"", b"{", b'{"probabilities": [[0.2, NaN]]}', b"\xff\xfe", b"[" * 500):
        await client.post("/score", content=content, headers={"Content-Type": "application/json"})
    mixed = {"probabilities": [[0.2, 0.8], [0.2, 0.9], [0.1, 0.9]], "labels": [0, 0, 7]}
    await client.post("/score", mixed, params={"partial": "true", "metrics": "ece"})


async def confidence_histograms_and_maps(client: Client) -> None:
    # Every sample counts once in each class: the classes have equal masses.
    good = [[[float((i * 3 + j) % 5) for i in range(20)] for j in (k, 1 - k)] for k in range(2)]
    await client.post("/score/confidence-histogram", {"label": good}, params={"min_count": "0"})
    await client.post(
        "/score/confidence-histogram",
        {"label": good},
        params={"min_count": "9", "bins": "10", "surface": "true"},
    )
    mass = [[[float((i * j + k) % 5) for i in range(20)] for j in (1, 2)] for k in range(3)]
    await client.post("/score/confidence-histogram", {"label": mass}, params={"min_count": "0"})
    await client.post(
        "/score/confidence-histogram",
        {"label": mass, "prediction": mass},
        params={"min_count": "1", "denominator": "full", "bins": "10"},
    )
    await client.post("/score/confidence-histogram", {"label": mass[:1]})
    await client.post("/score/confidence-histogram", {"label": [[[1.0]]]})
    body = {"mask": [[1, 0, 0], [1, 1, 0]], "probabilities": [[0.9, 0.8, 0.1], [0.5, 0.4, 0.2]]}
    await client.post("/score/map", body)
    await client.post("/score/map", body | {"mask": [[1, 0]]})
    await client.post("/score/map", body, params={"format": "png"})
