"""Random requests: an operation, a valid body for it, some changes, a coding and headers."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zstandard

from tests.fuzzing.panes import packed_pane
from tests.fuzzing.values import ODD, Rng, changed, changed_text, chosen, n_values, text_of

MODELS = {"two": 2, "three": 3, "pixels": 3, "declared": 2}
PANES_OF = {"two": "binary", "three": "three", "declared": "binary"}
JSON, NDJSON, MERGE = "application/json", "application/x-ndjson", "application/merge-patch+json"


@dataclass
class FuzzRequest:
    """One request."""

    method: str
    path: str
    params: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None

    def __str__(self) -> str:
        body = b"" if self.body is None else self.body
        return f"{self.method} {self.path} {self.params} {self.headers} {len(body)} bytes {body[:300]!r}"


def columns(rng: Rng, model: str) -> dict[str, Any]:
    """Return columns of a valid batch."""
    n, k = int(chosen(rng, (1, 2, 5, 40))), MODELS.get(model, 2)
    rows = rng.dirichlet(np.ones(k), n).tolist()
    found: dict[str, Any] = {"probabilities": rows, "labels": rng.integers(0, k, n).tolist()}
    optional: dict[str, Callable[[], Any]] = {
        "ids": lambda: [f"i{int(each)}" for each in rng.permutation(n)],
        "units": lambda: [f"u{int(each)}" for each in rng.integers(0, 5, n)],
        "cases": lambda: [f"c{int(each)}" for each in rng.integers(0, 5, n)],
        "weights": lambda: rng.random(n).tolist(),
        "event_times": lambda: [f"2026-01-01T{i % 24:02d}:00:00Z" for i in range(n)],
        "slices": lambda: {"site": [chosen(rng, ("A", "B")) for _ in range(n)]},
        "batch_id": lambda: f"b{int(rng.integers(50))}",
        "label_counts": lambda: rng.integers(0, 3, (n, k)).tolist(),
        "logits": lambda: rng.normal(size=(n, k)).tolist(),
    }
    for name, make in optional.items():
        if rng.random() < 0.2:
            found[name] = make()
    if model == "pixels":
        found.setdefault("units", optional["units"]())
    for name, other in (("label_counts", "labels"), ("logits", "probabilities")):
        if name in found and rng.random() < 0.9:
            found.pop(other, None)
    return found


def records(rng: Rng, model: str) -> list[dict[str, Any]]:
    """Return the same as records."""
    given = columns(rng, model)
    slices = given.pop("slices", {})
    given.pop("batch_id", None)
    names = {"probabilities": "probability", "weights": "weight", "label_counts": "label_count"}
    n = max(len(each) for each in given.values())
    rows: list[dict[str, Any]] = [
        {names.get(name, name.removesuffix("s")): each[row] for name, each in given.items()}
        for row in range(n)
    ]
    for row, each in enumerate(rows):
        if slices:
            each["slice"] = {key: values[row] for key, values in slices.items()}
    return rows


def labels(rng: Rng, model: str) -> dict[str, Any]:
    n, k = int(chosen(rng, (1, 3, 30))), MODELS.get(model, 2)
    found: dict[str, Any] = {
        "ids": [f"i{int(each)}" for each in rng.integers(0, 99, n)],
        "labels": [chosen(rng, (0, k - 1, [0, k - 1], [0])) for _ in range(n)],
    }
    if rng.random() < 0.4:
        found["raters"] = [
            [f"r{i}" for i in range(len(each))] if isinstance(each, list) else "r"
            for each in found["labels"]
        ]
        if rng.random() < 0.5:
            found["revision"] = [1] * n
    return found


def update(rng: Rng, model: str) -> dict[str, Any]:
    """Return one update: a histogram of some kind, or a packed pane."""
    drawn = rng.random()
    if drawn < 0.6 and model in PANES_OF:
        return {"kind": "pane", "packed": packed_pane(rng, PANES_OF[model])}
    if drawn < 0.8:
        k, bins = MODELS.get(model, 2), 1200
        table = np.zeros((k, 2, bins))
        table[:, rng.integers(0, 2), rng.integers(0, bins)] = 1.0
        return {"kind": "confidence", "label": table.tolist(), "n_units": 1}
    kind, bins = chosen(rng, (("class", 1200), ("top_label", 3600), ("positive", 3600)))
    count = [0.0] * bins
    at = int(rng.integers(bins))
    count[at] = 2.0
    confidence = [each * (at + 0.5) / bins for each in count]
    found = {"kind": kind, "bins": bins, "count": count, "sum_confidence": confidence, "n_units": 2}
    found |= {
        "sum_correct": [each / 2 for each in count],
        "n_predictions": [int(each) for each in count],
    }
    if kind == "class":
        found["class"] = int(rng.integers(MODELS.get(model, 2)))
    if rng.random() < 0.3:
        found |= {"mode": "cumulative", "source": "s", "epoch": 1, "sequence": int(rng.integers(9))}
    return found


def settings(rng: Rng, model: str) -> dict[str, Any]:
    return {
        "task": chosen(rng, ("binary", "multiclass", "segmentation")),
        "classes": chosen(rng, (2, 3, ["a", "b"], ["a", "b", "c"])),
        "pane": chosen(rng, ("PT1H", "P1D", 3600)),
        "retention": chosen(rng, ("P30D", "P365D", None)),
        "slices": chosen(rng, ({"site": ["A", "B"]}, {"site": None}, {})),
        "unit": chosen(rng, ("patient", None)),
        "alarm": chosen(
            rng, ({}, {"tolerance": 0.02}, {"webhooks": [{"url": "https://a.example/x"}]}, None)
        ),
    }


def _histogram_body(rng: Rng, model: str) -> dict[str, Any]:
    if rng.random() < 0.3:
        return update(rng, model)
    return {"histograms": [update(rng, model) for _ in range(int(rng.integers(1, 3)))]}


def _features(rng: Rng, model: str) -> dict[str, Any]:
    given = columns(rng, model)
    return given | {"features": [[float(i)] for i in range(len(next(iter(given.values()))))]}


def _confidence(rng: Rng, model: str) -> dict[str, Any]:
    table = np.zeros((2, 2, 8))
    table[:, :, 3] = 1
    return {"label": table.tolist()}


def _key(rng: Rng, model: str) -> dict[str, Any]:
    return {
        "name": "k",
        "scopes": ["read"],
        "models": [model],
        "expires_at": "2030-01-01T00:00:00Z",
    }


# Repeats of repeats would take more memory than there is.
MAX_VALUES = 1_000_000
Make = Callable[[Rng, str], Any]
M = "/v1/models/{}"
# Operations with a body: weight, method, path, what makes a valid one, its media type.
BODIES: tuple[tuple[int, str, str, Make, str], ...] = (
    (20, "POST", f"{M}/predictions", columns, JSON),
    (4, "POST", f"{M}/predictions", lambda rng, m: {"predictions": records(rng, m)}, JSON),
    (8, "POST", f"{M}/predictions", records, NDJSON),
    (8, "POST", f"{M}/labels", labels, JSON),
    (20, "POST", f"{M}/histograms", _histogram_body, JSON),
    (4, "POST", f"{M}/histograms", lambda rng, m: [update(rng, m)], NDJSON),
    (6, "POST", "/v1/score", columns, JSON),
    (3, "POST", "/v1/score", records, NDJSON),
    (3, "POST", "/v1/score/confidence-histogram", _confidence, JSON),
    (6, "PUT", M, settings, JSON),
    (6, "PATCH", M, settings, MERGE),
    (3, "POST", f"{M}/disagreement", _features, JSON),
    (3, "POST", f"{M}/posterior", lambda rng, m: {"members": [columns(rng, m).get("probabilities")]}, JSON),
    (2, "POST", "/v1/alarms/a1/acknowledge", lambda rng, m: {"note": "seen"}, JSON),
    (2, "POST", "/v1/keys", _key, JSON),
)  # fmt: skip
WEIGHTS = np.array([each[0] for each in BODIES], float)


def request(rng: Rng) -> FuzzRequest:
    """Return a random request."""
    at = int(rng.choice(len(BODIES), p=WEIGHTS / WEIGHTS.sum()))
    _, method, path, make, media = BODIES[at]
    model = chosen(rng, [*MODELS] * 6 + ["new", "a b", "..", "x" * 129])
    body = make(rng, model)
    for _ in range(int(chosen(rng, (0, 0, 0, 1, 1, 2, 4)))):
        try:
            other = changed(rng, body)
            if n_values(other) > MAX_VALUES:
                break
        except (ValueError, RecursionError):
            break  # deep enough
        body = other
    lines = body if media == NDJSON and isinstance(body, list) else [body]
    text = b"\n".join(text_of(each) for each in lines)
    if rng.random() < 0.15:
        text = changed_text(rng, text)
    headers = {"Content-Type": media}
    text = _coded(rng, text, headers)
    _more_headers(rng, headers)
    params = (
        {}
        if rng.random() < 0.7
        else {chosen(rng, ("partial", "bins", "metrics", "x")): str(chosen(rng, ODD))}
    )
    if path.endswith(("predictions", "labels", "histograms")) and rng.random() < 0.3:
        params["partial"] = "true"
    return FuzzRequest(method, path.format(model), params, headers, text)


def _coded(rng: Rng, text: bytes, headers: dict[str, str]) -> bytes:
    drawn = rng.random()
    if drawn > 0.2:
        return text
    coding = chosen(rng, ("gzip", "zstd", "br", "identity"))
    headers["Content-Encoding"] = coding
    if coding == "gzip":
        text = gzip.compress(text, 1)
    elif coding == "zstd":
        text = zstandard.compress(text)
    return changed_text(rng, text) if drawn < 0.05 else text


def _more_headers(rng: Rng, headers: dict[str, str]) -> None:
    more = {
        "Content-Type": (
            "application/json; charset=utf-8",
            "text/plain",
            "",
            "application/json; charset=latin-1",
        ),
        "Idempotency-Key": ("k1", "a b", "", "x" * 200),
        "Prefer": ("wait=0", "wait=-1", "respond-async", "wait=x"),
        "If-Match": ("*", '"x"', "x", ""),
        "If-None-Match": ("*", '"x"'),
        "X-Request-Id": ("id", "a b", "x" * 300),
    }
    for name, values in more.items():
        if rng.random() < 0.05 or (name == "If-Match" and rng.random() < 0.4):
            headers[name] = chosen(rng, values)
