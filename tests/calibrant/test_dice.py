"""Dice of cases against a naive count, above all where a class is there and the model never says it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrant import Batch, Histogram, Pane, PaneSpec
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics
from calibrant.segmentation.case_report import cases_of

SURE = {0: [0.8, 0.1, 0.1], 1: [0.1, 0.8, 0.1], 2: [0.1, 0.1, 0.8]}
# Top class and reference of each pixel; in "missed" the model says background only, in "empty" nothing else is there.
SCANS = {
    "found": ([0, 1, 1, 2], [0, 1, 2, 2]),
    "missed": ([0, 0, 0, 0], [0, 0, 1, 2]),
    "empty": ([0, 0], [0, 0]),
    "false": ([0, 1], [0, 0]),
}


def batch_of(scans: dict[str, tuple[list[int], list[int]]]) -> Batch:
    columns = {
        "probabilities": [SURE[k] for top, _ in scans.values() for k in top],
        "labels": [k for _, labels in scans.values() for k in labels],
        "cases": [name for name, (top, _) in scans.items() for _ in top],
    }
    return Batch.from_columns(columns, task="segmentation").batch


def view_of(batch: Batch, raw: bool, **options: Any) -> View:
    pane = Pane(PaneSpec("segmentation", 3))
    pane.fill_batch(batch)
    return View(pane, PaneQuery(options=options), batch if raw else None)


def naive(scan: tuple[list[int], list[int]], members: set[int]) -> float | None:
    top, labels = ({i for i, k in enumerate(column) if k in members} for column in scan)
    size = len(top) + len(labels)
    return 2.0 * len(top & labels) / size if size else None


def mean(values: list[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return float(np.mean(known)) if known else None


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("background", ["out", "in"])
def test_a_missed_class_has_dice_zero(raw: bool, background: str) -> None:
    view = view_of(batch_of(SCANS), raw, background=background)
    classes = [0, 1, 2] if background == "in" else [1, 2]
    expected = {name: [naive(scan, {k}) for k in classes] for name, scan in SCANS.items()}
    assert expected["missed"][-2:] == [0.0, 0.0]
    by_case = {row["case"]: row for row in cases_of(view)["cases"]}
    for name, values in expected.items():
        assert by_case[name]["dice"] == {"mean": mean(values), "by_class": values}
    assert by_case["missed"]["false_negative"][-2:] == [1.0, 1.0]
    found = compute_metrics(view, ["dice"])["dice"]
    assert found["value"] == pytest.approx(
        mean([mean(values) for values in expected.values()]), abs=1e-12
    )
    assert found["n_cases_used"] == (4 if background == "in" else 3)


def test_a_missed_union_of_classes_has_dice_zero() -> None:
    composites = {"lesion": [1, 2], "core": [2]}
    answer = cases_of(view_of(batch_of(SCANS), True, composites=composites))
    for row in answer["cases"]:
        scan = SCANS[row["case"]]
        assert row["dice"]["by_class"] == [
            naive(scan, set(members)) for members in composites.values()
        ]


def test_pixels_sent_as_a_histogram_leave_dice_unknown() -> None:
    pane = Pane(PaneSpec("segmentation", 3))
    pane.fill_batch(batch_of({"found": SCANS["found"]}))
    at = np.eye(1, 1200, 119)[0]
    sent = {
        "kind": "class",
        "class": 1,
        "bins": 1200,
        "case": "found",
        "count": 4 * at,
        "sum_confidence": 0.4 * at,
    }
    pane.fill_histogram(Histogram.from_fields(sent | {"sum_correct": 2 * at}, pane.spec))
    row = cases_of(View(pane, PaneQuery()))["cases"][0]
    assert row["dice"]["by_class"] == [None, naive(SCANS["found"], {2})]
    assert row["true_positive"] is None
