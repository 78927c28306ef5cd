"""Models with several raters and with scans, which tests of the papers' requests send once per process."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec

NOTIONS = (
    *("ece_sweep", "nixon_ace", "tace", "macro_ce", "kde_ece", "smooth_ece", "ks", "kuiper", "uce"),
    *(
        "overconfidence_error",
        "ent_ce",
        "rank_cs",
        "dist_ce",
        "spiegelhalter_z",
        "corp_uncertainty",
    ),
    *("lp_ece", "zhang_kde_ece", "canonical_ce", "skce", "rater_statistic"),
)
LOSSES = (
    *("squared_loss", "epistemic_loss", "irreducible_loss", "calibration_loss", "grouping_loss"),
    *("refinement_loss", "disagreement_loss", "disagreement_ce"),
)
# As much as the service stores of a model and day: its results on the stored sample are those of a pane with this bound.
SERVICE_SAMPLE_BYTES = 1 << 20
VOTED, SCANS = "/v1/models/votes", "/v1/models/scans"
TISSUES = ["background", "liver", "tumour"]


def close(found, expected) -> None:
    """Both are the same JSON; numbers may differ by the order in which they were added."""
    if isinstance(expected, dict):
        assert set(found) >= set(expected)
        for name in expected:
            close(found[name], expected[name])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert found == expected


def filled(columns: dict, task: str) -> tuple[Batch, Pane]:
    batch = Batch.from_columns(columns, task=task).batch
    pane = Pane(PaneSpec(task, 3), sample_bytes=SERVICE_SAMPLE_BYTES)
    pane.fill_batch(batch)
    return batch, pane


def sent(deployment, url: str, columns: dict, n_parts: int = 3) -> None:
    """Send a batch in parts, once: two files share the fixtures below, and the deployment if one process runs both."""
    n = len(columns["probabilities"])
    for number, part in enumerate(np.array_split(np.arange(n), n_parts)):
        body = {name: [values[i] for i in part] for name, values in columns.items()}
        deployment.post(f"{url}/predictions", {**body, "batch_id": f"part-{number}"})


@pytest.fixture(scope="module")
def voted(embedded):
    """Nine hundred overconfident rows with two to six votes each."""
    rng = np.random.default_rng(17)
    truth = rng.dirichlet(np.ones(3), 900)
    sharp = truth**2 / (truth**2).sum(axis=1, keepdims=True)
    ratings = [rng.multinomial(rng.integers(2, 7), row).tolist() for row in truth]
    columns = {"probabilities": sharp.tolist(), "label_counts": ratings}
    sent(embedded, VOTED, columns)
    return embedded, *filled(columns, "multiclass")


@pytest.fixture(scope="module")
def scanned(embedded):
    """Twelve scans of 150 pixels, three raters, the tumour in half of them."""
    rng = np.random.default_rng(23)
    rows, labels, cases = [], [], []
    for case in range(12):
        p = rng.dirichlet([2.0, 1.0, 0.6 if case % 2 else 0.05], 150)
        rows += p.tolist()
        seen = p if case % 2 else p * [1.0, 1.0, 0.0]
        seen = seen / seen.sum(axis=1, keepdims=True)
        draws = (seen.cumsum(axis=1)[:, None, :] < rng.random((150, 3, 1))).sum(axis=2)
        labels += np.minimum(draws, 2).tolist()
        cases += [f"scan-{case}"] * 150
    columns = {"probabilities": rows, "labels": labels, "cases": cases}
    answer = embedded.client.put(SCANS, json={"task": "segmentation", "classes": TISSUES})
    assert answer.status_code in (200, 201), answer.text
    sent(embedded, SCANS, columns, 4)
    return embedded, *filled(columns, "segmentation")
