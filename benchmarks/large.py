"""`python -m benchmarks.large`: a window of 1e7 predictions and a case of 1e8 voxels, each sent as one update.

It starts the service on its embedded default. Each query is new (another confidence level), so that no result is cached.
It is repeated after another merge, so that the window is read again.
"""

from __future__ import annotations

import argparse
import base64
import time
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cases import N_CLASSES, SPEC, a_case
from benchmarks.end_to_end import served
from benchmarks.kernel import N_DOUBLINGS, predictions
from calibrant import Batch, Pane, PaneSpec

WAIT = {"Prefer": "wait=60"}


def large_pane() -> Pane:
    """Post 1.28e7 binary predictions."""
    score, hits = predictions()
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(Batch.from_columns({"confidences": score, "labels": hits}).batch)
    for _ in range(N_DOUBLINGS):
        pane.merge(Pane.unpack(pane.pack()))
    return pane


def case_updates(name: str) -> list[dict[str, Any]]:
    """Post a case of 1e8 voxels as one histogram per class."""
    plain = {"bins": SPEC.class_grid.cells, "kind": "class", "case": name}
    made = a_case(name, np.random.default_rng(0))
    sums = ("count", "sum_confidence", "sum_correct")
    return [
        plain | {"class": class_index} | {name: getattr(each, name).tolist() for name in sums}
        for class_index, each in enumerate(made)
    ]


def _send(client: httpx.Client, model: str, body: dict[str, Any]) -> float:
    started = time.perf_counter()
    response = client.post(f"/v1/models/{model}/histograms", json=body, headers=WAIT)
    if response.status_code != 200 or response.json()["status"] != "merged":
        raise RuntimeError(response.text)
    return time.perf_counter() - started


def _ask(client: httpx.Client, path: str, params: dict[str, Any]) -> float:
    started = time.perf_counter()
    client.get(path, params=params).raise_for_status()
    return time.perf_counter() - started


def main(repeats: int) -> None:
    """Print milliseconds over HTTP."""
    table = Table(
        "question",
        "first ms",
        "window read again, p50 ms",
        "requested again, p50 ms",
        "worst ms",
        title="Large",
    )
    with served() as service:
        client = service.client
        classes = [f"c{k}" for k in range(N_CLASSES)]
        for name, body in (
            ("rows", {"task": "binary", "classes": ["no", "yes"]}),
            ("voxels", {"task": "segmentation", "classes": classes}),
        ):
            client.put(f"/v1/models/{name}", json=body).raise_for_status()
        pane = base64.b64encode(large_pane().pack()).decode()
        taken = _send(client, "rows", {"kind": "pane", "packed": pane})
        table.add_row("POST 1.28e7 predictions as a pane", f"{taken * 1e3:.0f}", "", "", "")
        taken = _send(client, "voxels", {"histograms": case_updates("scan-0")})
        table.add_row("POST a case of 1e8 voxels", f"{taken * 1e3:.0f}", "", "", "")
        small = Pane(PaneSpec("binary", 2))
        small.fill_batch(Batch.from_columns({"confidences": [0.5], "labels": [1]}).batch)
        more = {"rows": {"kind": "pane", "packed": base64.b64encode(small.pack()).decode()}}
        for model, path, params in (
            ("rows", "metrics", {"metrics": "kde_ece"}),
            ("rows", "metrics", {}),
            ("voxels", "cases", {}),
            ("voxels", "cases", {"membership": "soft"}),
            ("voxels", "metrics", {"metrics": "ml1_ace"}),
            ("voxels", "confidence-histogram", {"case": "scan-0"}),
        ):
            url, first, fresh, again = f"/v1/models/{model}/{path}", None, [], []
            for i in range(repeats):
                taken = _ask(client, url, params)
                if first is None:
                    first = taken
                again.append(
                    _ask(client, url, params | {"ci": 0.9 + 1e-4 * i})
                    if path == "metrics"
                    else taken
                )
                _send(
                    client,
                    model,
                    more.get(model) or {"histograms": case_updates(f"{path}-{i % 3}")[:1]},
                )
                fresh.append(_ask(client, url, params))
            p50s = (f"{np.median(each) * 1e3:.0f}" for each in (fresh, again))
            asked = f"{path} {' '.join(f'{name}={value}' for name, value in params.items())}"
            table.add_row(
                asked, f"{(first or 0) * 1e3:.0f}", *p50s, f"{max(fresh + again) * 1e3:.0f}"
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=20)
    main(parser.parse_args().repeats)
