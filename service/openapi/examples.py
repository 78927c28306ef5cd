"""Examples of request bodies by the name of their model: shown in the document, and valid as they are.

They can be sent one after the other; histograms of four bins are for a model that declares a grid of four.
"""

from typing import Any

_HISTOGRAM: dict[str, Any] = {
    "kind": "top_label",
    "bins": 4,
    "count": [0, 3, 2, 8],
    "sum_confidence": [0, 1.2, 1.3, 7.6],
    "sum_correct": [0, 1, 1, 8],
    "n_units": 13,
}

_NONE = [0] * 19  # of twenty bins

EXAMPLES: dict[str, dict[str, Any]] = {
    "ModelSettings": {
        "classes": ["cat", "dog", "owl"],
        "retention": "P400D",
        "label_horizon": "P7D",
        "slices": {"site": ["A", "B"]},
        "unit": "patient",
    },
    "NewEvent": {"kind": "version", "name": "2.1", "at": "2026-11-06T08:00:00Z"},
    "ArchivedParameters": {
        "window": "P30D",
        "tolerance": 0.05,
        "note": "Quality committee, November",
    },
    "EventBody": {
        "specversion": "1.0",
        "id": "5f0c",
        "source": "http://localhost:9081/",
        "type": "org.kubeflow.serving.inference.response",
        "time": "2026-11-20T09:00:00Z",
        "namespace": "ml",
        "inferenceservicename": "iris",
        "component": "predictor",
        "data": {"predictions": [[0.7, 0.2, 0.1]]},
    },
    "PredictionsBody": {
        "batch_id": "site-a.0001",
        "probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]],
        "labels": [0, [1, 1, 2]],
        "ids": ["img-17", "img-18"],
        "units": ["patient-4", "patient-4"],
        "event_times": ["2026-11-20T09:00:00Z", "2026-11-20T09:00:01Z"],
        "slices": {"site": ["A", "A"]},
    },
    "RecordsBody": {
        "batch_id": "site-a.0002",
        "predictions": [
            {
                "id": "img-20",
                "probabilities": [0.7, 0.2, 0.1],
                "label": "cat",
                "unit": "patient-4",
                "slice": {"site": "A"},
            }
        ],
    },
    "PredictionRecord": {
        "probability": [0.7, 0.2, 0.1],
        "label": [0, 0],
        "id": "img-19",
        "unit": "patient-5",
        "slice": {"site": "B"},
    },
    "LabelsBody": {
        "batch_id": "labels.0001",
        "ids": ["img-17"],
        "labels": [[2, 2]],
        "raters": [["r1", "r2"]],
    },
    "LabelRecord": {"id": "img-19", "label": 2, "rater": "r1"},
    "HistogramsBody": {"batch_id": "site-b.h1", "histograms": [_HISTOGRAM]},
    "HistogramUpdate": _HISTOGRAM,
    "PosteriorBody": {"probabilities": [[0.7, 0.2, 0.1]], "labels": [[0, 1]], "ids": ["img-17"]},
    "DisagreementMethodsBody": {
        "probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.6, 0.3, 0.1]],
        "labels": [[0, 0, 1], [1, 1, 1], [2, 0, 2], [0, 1, 0]],
    },
    "ConfidenceBody": {
        "label": [[[4, *_NONE], [*_NONE, 3]], [[3, *_NONE], [*_NONE, 4]]],
    },
    "MapBody": {
        "probabilities": [[0.9, 0.8, 0.1], [0.5, 0.4, 0.2]],
        "mask": [[1, 0, 0], [1, 1, 0]],
    },
    "ScoredBody": {
        "probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]],
        "labels": [[0, 0], [1, 2]],
        "raters": [["ann", "bob"], ["ann", "bob"]],
    },
    "ScoredRecord": {"probability": [0.7, 0.2, 0.1], "label": [0, 1], "rater": ["ann", "bob"]},
    "NewMap": {"method": "temperature", "window": "P28D", "note": "before the release"},
    "Promotion": {"version": 1, "reason": "better on later labels"},
    "NewKey": {
        "name": "site-a",
        "scopes": ["ingest"],
        "models": ["site-a.*"],
        "expires_at": "2027-11-20T00:00:00Z",
    },
    "ClockQuery": {"window": "P28D"},
    "Acknowledgement": {"note": "new scanner at site A; a refit is on its way"},
}
