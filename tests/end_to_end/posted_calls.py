"""The calls of the page of the science that have a body, each with a second version of its numbers by hand."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibrant import Batch
from calibrant.segmentation.class_histograms import ConfidenceHistogram

Posted = dict[str, Any]
N_BINS = 1 << 14


def answered(deployment: Any, path: str, body: Posted, **params: Any) -> dict[str, Any]:
    answer = deployment.client.post(path, params=params, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def samples(posted: Posted) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probability rows, ratings per class, and the top class of each row."""
    p = np.array(posted["probabilities"])
    counts = np.array([np.bincount(row, minlength=p.shape[1]) for row in posted["labels"]])
    return p, counts, p.argmax(axis=1)


def pooled_ece(p: np.ndarray, hit: np.ndarray, n: np.ndarray, bins: int) -> float:
    """Every rating is a sample; bins (a, b]."""
    place = np.clip(np.ceil(p * bins) - 1, 0, bins - 1)
    gaps = [(hit[place == m] - n[place == m] * p[place == m]).sum() for m in range(bins)]
    return float(np.abs(gaps).sum() / n.sum())


def score(deployment: Any, posted: Posted) -> None:
    p, counts, top = samples(posted)
    found = answered(deployment, "/v1/score", posted, metrics="ece,brier", bins=10)["metrics"]
    row = np.arange(len(p))
    n = counts.sum(axis=1)
    naive = pooled_ece(p[row, top], counts[row, top], n, 10)
    assert found["ece"]["value"] == pytest.approx(naive, abs=1e-12)
    squares = (p**2).sum(axis=1)[:, None] - 2.0 * p + 1.0
    assert found["brier"]["value"] == pytest.approx((counts * squares).sum() / n.sum(), abs=1e-12)


def score_histogram(deployment: Any, posted: Posted) -> None:
    """A posted histogram of 2^14 bins, read at 20 bins of at least 5: by bin centre, mass of the others left out."""
    p, counts, top = samples(posted)
    batch = Batch.from_columns({"probabilities": p, "label_counts": counts}).batch
    packed = base64.b64encode(ConfidenceHistogram.of_batch(batch, N_BINS).pack()).decode()
    found = answered(
        deployment, "/v1/score/confidence-histogram", {"packed": packed}, bins=20, min_count=5
    )
    row, n = np.arange(len(p)), counts.sum(axis=1)
    fine = np.minimum(np.floor(p[row, top] * N_BINS), N_BINS - 1)
    centre, hit = (fine + 0.5) / N_BINS, counts[row, top]
    place = np.floor(centre * 20)
    gaps, kept = 0.0, 0.0
    for m in range(20):
        mine = place == m
        if n[mine].sum() >= 5:
            gaps += abs((hit[mine] - n[mine] * centre[mine]).sum())
            kept += n[mine].sum()
    assert found["errors"]["prediction"]["ece"] == pytest.approx(gaps / kept, abs=1e-12)
    mine = counts * -np.log((np.minimum(np.floor(p * N_BINS), N_BINS - 1) + 0.5) / N_BINS)
    assert found["nll"]["sum"] == pytest.approx(mine.sum(), rel=1e-12)


def score_map(deployment: Any, posted: Posted) -> None:
    p = np.array(posted["probabilities"])[:300, 1].reshape(15, 20)
    mask = np.random.default_rng(0).random((15, 20)) < p
    found = answered(
        deployment,
        "/v1/score/map",
        {"probabilities": p.tolist(), "mask": mask.astype(int).tolist()},
    )["masks"]["reference"]
    on = p >= 0.5
    assert found["true_positive"] == (on & mask).sum()
    assert found["dice"] == pytest.approx(2 * (on & mask).sum() / (on.sum() + mask.sum()))


def posterior(deployment: Any, posted: Posted) -> None:
    """Eqs. 18, 19 of a Dirichlet: (a0 f + y) / (a0 + n)."""
    p, counts, _ = samples(posted)
    body = {
        "probabilities": p[:9].tolist(),
        "label_counts": counts[:9].tolist(),
        "concentration": 3.0,
    }
    found = answered(deployment, "/v1/models/votes/posterior", body)
    naive = (3.0 * p[:9] + counts[:9]) / (3.0 + counts[:9].sum(axis=1, keepdims=True))
    assert np.array(found["probabilities"]) == pytest.approx(naive, abs=1e-12)
    prior = 3.0 / 4.0 * (1.0 - (p[:9] ** 2).sum(axis=1))
    assert found["prior_disagreement"] == pytest.approx(prior.tolist(), abs=1e-12)


def disagreement(deployment: Any, posted: Posted) -> None:
    """Table 1: the raw loss of predicted disagreement on the rows that score, eq. 15."""
    p, counts, _ = samples(posted)
    parts = ["fit", "score"] * (len(p) // 2)
    body = {"probabilities": p.tolist(), "label_counts": counts.tolist(), "parts": parts}
    found = answered(deployment, "/v1/models/votes/disagreement", body)
    p, counts = p[1::2], counts[1::2]
    n = counts.sum(axis=1)
    pairs = (counts * (counts - 1)).sum(axis=1)
    share, predicted = 1.0 - pairs / (n * (n - 1)), 1.0 - (p**2).sum(axis=1)
    naive = ((share - predicted) ** 2 + share * (1.0 - share)).mean()
    assert found["methods"]["raw"]["disagreement_loss"] == pytest.approx(naive, abs=1e-9)


def histograms(deployment: Any, posted: Posted) -> None:
    """A confidence histogram of 2^14 bins becomes a model's state: calibration and uncertainty error by hand."""
    p, counts, top = samples(posted)
    batch = Batch.from_columns({"probabilities": p, "label_counts": counts}).batch
    packed = base64.b64encode(ConfidenceHistogram.of_batch(batch, N_BINS).pack()).decode()
    url = "/v1/models/posted-histograms"
    made = deployment.client.put(url, json={"task": "multiclass", "classes": 3})
    assert made.status_code in (200, 201), made.text
    deployment.post(f"{url}/histograms", {"kind": "confidence", "n_units": 300, "packed": packed})
    found = deployment.get(f"{url}/metrics", metrics="ece(edges=left),uce(edges=left)", bins=20)
    row, n = np.arange(len(p)), counts.sum(axis=1)
    hit = counts[row, top]
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(p > 0, p * np.log(p), 0.0).sum(axis=1) / np.log(3)
    for slug, value, right in (("ece", p[row, top], hit), ("uce", entropy, n - hit)):
        fine = np.minimum(np.floor(np.minimum(value, 1.0) * N_BINS), N_BINS - 1)
        centre = (fine + 0.5) / N_BINS
        place = np.floor(centre * 20)
        gaps = [(right - n * centre)[place == m].sum() for m in range(20)]
        naive = np.abs(gaps).sum() / n.sum()
        known = found["metrics"][f"{slug}(edges=left)"]
        assert known["value"] == pytest.approx(naive, abs=1e-9), slug


def predictions(deployment: Any, posted: Posted) -> None:
    """Voxel weights multiply a sample's share."""
    p, counts, top = samples(posted)
    weights = np.random.default_rng(1).choice([0.5, 1.0, 3.0], len(p))
    url = "/v1/models/weighted"
    body = {
        "probabilities": p.tolist(),
        "label_counts": counts.tolist(),
        "weights": weights.tolist(),
    }
    deployment.post(f"{url}/predictions", body)
    found = deployment.get(f"{url}/metrics", metrics="ece", bins=10)["metrics"]["ece"]
    row = np.arange(len(p))
    naive = pooled_ece(p[row, top], weights * counts[row, top], weights * counts.sum(axis=1), 10)
    assert found["value"] == pytest.approx(naive, abs=1e-9)


POSTS: dict[str, Callable[[Any, Posted], None]] = {
    "POST /v1/score": score,
    "POST /v1/score/confidence-histogram": score_histogram,
    "POST /v1/score/map": score_map,
    "POST /v1/models/{model}/posterior": posterior,
    "POST /v1/models/{model}/disagreement": disagreement,
    "POST /v1/models/{model}/histograms": histograms,
    "POST /v1/models/{model}/predictions": predictions,
}
