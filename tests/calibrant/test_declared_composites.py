"""Composites that a model declares: tables of cases store them, exactly as rows give them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.errors import CalibrationInputError
from calibrant.core.histogram import Histogram
from calibrant.core.pane_validation import check_pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from calibrant.metrics import compute_metrics
from calibrant.segmentation.case_report import cases_of

UNIONS = (("core", (2,)), ("whole", (1, 2)))
SPEC = PaneSpec("segmentation", 3, composites=UNIONS)
METRICS = ["ml1_ace", "ml1_ece(average=micro_pooled)", "ml1_mce(membership=soft)", "dice"]


def scans(seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([2.0, 1.0, 0.5], 600)
    labels = (p.cumsum(axis=1) > rng.random((600, 1))).argmax(axis=1)
    cases = [f"scan-{seed}-{i // 100}" for i in range(600)]
    return Batch.from_columns(
        {"probabilities": p, "labels": labels, "cases": cases}, task="segmentation"
    ).batch


def stored(*batches: Batch) -> Pane:
    pane = Pane(SPEC)
    for batch in batches:
        pane.fill_batch(batch)
    return pane


def values(view: View, metrics: list[str]) -> dict[str, float]:
    return {name: each["value"] for name, each in compute_metrics(view, metrics).items()}


def declared(names: list[str]) -> list[str]:
    plain = [name if "(" in name else f"{name}()" for name in names]
    return [name.replace("(", "(regions=composites,").replace(",)", ")") for name in plain]


def test_stored_composites_are_those_of_the_rows() -> None:
    batch = scans()
    united = replace(PaneQuery(bins=20), options={"composites": {n: list(k) for n, k in UNIONS}})
    rows = values(View(stored(batch), united, batch), METRICS)
    found = values(View(stored(batch), PaneQuery(bins=20)), declared(METRICS))
    assert list(found.values()) == pytest.approx(list(rows.values()), abs=1e-12)


def test_one_composite_by_hand() -> None:
    batch = scans()
    pane, total = stored(batch), []
    union, hit = batch.probabilities[:, 1:].sum(axis=1), batch.label_counts[:, 1:].sum(axis=1)
    for case in np.unique(batch.cases.astype(str)):
        own = batch.cases == case
        place = np.clip(np.ceil(union[own] * 20) - 1, 0, 19)
        gaps = [(hit[own] - union[own])[place == m].sum() for m in range(20)]
        total.append(np.abs(gaps).sum() / own.sum())
    options = {"regions": "composites"}
    report = cases_of(View(pane, PaneQuery(bins=20, options=options)))
    complete = report["classes"].index("whole")
    assert report["classes"] == ["core", "whole"]
    found = [case["ece"]["by_class"][complete] for case in report["cases"]]
    assert found == pytest.approx(total, abs=1e-12)


def test_own_classes_are_as_without_composites() -> None:
    plain = Pane(PaneSpec("segmentation", 3))
    plain.fill_batch(scans())
    pane_query = PaneQuery(bins=20)
    mine = values(View(stored(scans()), pane_query), METRICS)
    assert mine == values(View(plain, pane_query), METRICS)
    assert PaneSpec("segmentation", 3).digest == PaneSpec("segmentation", 3, composites=()).digest
    assert PaneSpec("segmentation", 3).digest != SPEC.digest
    assert PaneSpec.from_dict(SPEC.to_dict()) == SPEC
    assert PaneSpec("segmentation", 3, composites=UNIONS[::-1]) == SPEC


def test_they_merge_subtract_and_travel() -> None:
    one, other = scans(0), scans(1)
    both, names = stored(one).merge(stored(other)), declared(METRICS)
    complete = values(View(stored(one, other), PaneQuery(bins=20)), names)
    assert values(View(both, PaneQuery(bins=20)), names) == pytest.approx(complete, abs=1e-12)
    again = Pane.unpack(both.pack())
    check_pane(again, SPEC)
    assert values(View(again, PaneQuery(bins=20)), names) == pytest.approx(complete, abs=1e-12)
    rest = again.subtract(stored(other))
    alone = values(View(stored(one), PaneQuery(bins=20)), names)
    assert values(View(rest, PaneQuery(bins=20)), names) == pytest.approx(alone, abs=1e-9)


def test_what_cannot_be_had_says_why() -> None:
    plain = Pane(PaneSpec("segmentation", 3))
    plain.fill_batch(scans())
    name = "ml1_ace(regions=composites)"
    found = compute_metrics(View(plain, PaneQuery(bins=20)), [name])[name]
    assert (found["value"], found["reason"]) == (None, "no_composites")
    pane = stored(scans())
    zeros = np.zeros(1200)
    zeros[7] = 1.0
    pane.fill_histogram(
        Histogram("class", 1, "pooled", 1200, "right", zeros, zeros * 7.5 / 1200, zeros, case="x")
    )
    found = compute_metrics(View(pane, PaneQuery(bins=20)), [name])[name]
    assert (found["value"], found["reason"]) == (None, "not_in_histogram")


@pytest.mark.parametrize(
    "unions",
    [
        (("a", (3,)),),
        (("a", ()),),
        (("a", (1,)), ("a", (2,))),
        tuple((f"c{i}", (1,)) for i in range(17)),
    ],
)
def test_composites_that_are_none_are_rejected(
    unions: tuple[tuple[str, tuple[int, ...]], ...],
) -> None:
    with pytest.raises(CalibrationInputError, match="composite"):
        PaneSpec("segmentation", 3, composites=unions)
