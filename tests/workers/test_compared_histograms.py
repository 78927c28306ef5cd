"""Confidence histograms and surfaces of two temperatures against another side: both as asked alone, and their distance."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError, Pane, PaneSpec
from calibrant.results.confidence_histogram import confidence_histogram as histogram
from calibrant.results.temperature_surface import temperature_surface as surface
from calibrant_server.workers.queries.kind import Against, Inputs, kind_of
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import Window

DAY_S = 86_400
confidence_histogram, temperature_surface = kind_of(histogram), kind_of(surface)
ConfidenceHistogramQuery, SurfaceQuery = confidence_histogram.query, temperature_surface.query
OTHER = Against("baseline", "frozen")


def inputs(seed: int, n_classes: int = 2, cases: tuple[str, ...] = ("a", "b")) -> Inputs:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(200, n_classes)) * (1 + seed)
    labels = rng.integers(0, n_classes, 200).tolist()
    columns = {"logits": logits, "labels": labels, "cases": [cases[i % 2] for i in range(200)]}
    pane = Pane(PaneSpec("segmentation", n_classes))
    pane.fill_batch(Batch.from_columns(columns, task="segmentation").batch)
    config = ModelConfig("t", "seg", "segmentation", n_classes)
    return Inputs(config, Window(0, DAY_S), merged=pane)


def test_both_histograms_and_their_distance() -> None:
    query, mine, theirs = ConfidenceHistogramQuery(bins=20), inputs(0), inputs(1)
    found = confidence_histogram.compare(query, mine, theirs, OTHER)
    alone = [confidence_histogram.compute(query, side) for side in (mine, theirs)]
    assert found["label"] == alone[0]["label"]
    for name in ("label", "prediction", "uncertainty", "mass", "exact"):
        assert found["against"][name] == alone[1][name], name
    assert found["against"]["baseline"] == "frozen" and found["against"]["n_labelled"] == 200
    for k, distance in enumerate(found["distance"]):
        naive = 0.0
        for r in (0, 1):
            for i in range(20):
                naive += abs(alone[0]["label"][k][r][i] - alone[1]["label"][k][r][i]) / 200
        assert distance == pytest.approx(naive / 2) and 0 < distance < 1
    same = confidence_histogram.compare(query, mine, mine, OTHER)
    assert same["distance"] == [0.0, 0.0]


def test_both_surfaces_at_the_same_temperatures() -> None:
    query, mine, theirs = SurfaceQuery(points=5), inputs(0), inputs(1)
    found = temperature_surface.compare(query, mine, theirs, OTHER)
    alone = [temperature_surface.compute(query, side) for side in (mine, theirs)]
    assert found["nll"] == alone[0]["nll"] and found["against"]["nll"] == alone[1]["nll"]
    assert found["against"]["lowest"] == alone[1]["lowest"] != found["lowest"]


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        (confidence_histogram, ConfidenceHistogramQuery(bins=20, case="b")),
        (temperature_surface, SurfaceQuery(points=3, case="b")),
    ],
)
def test_a_case_that_the_other_side_lacks(kind, query) -> None:  # type: ignore[no-untyped-def]
    found = kind.compare(query, inputs(0), inputs(1, cases=("a", "c")), OTHER)
    assert found["reason"] is None and found["against"]["reason"] == "unknown_case"
    assert found.get("distance") is None
    with pytest.raises(CalibrationInputError, match="unknown_case"):
        kind.compare(query, inputs(0, cases=("a", "c")), inputs(1), OTHER)
    with pytest.raises(CalibrationInputError, match="not_comparable"):
        kind.compare(query, inputs(0), inputs(1, n_classes=3), OTHER)
