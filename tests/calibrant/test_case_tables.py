"""The kept tables of cases: laws, limits, damaged ones, and cases sent as histograms."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError, Histogram, Pane, PaneSpec
from calibrant.accumulators import named_tables
from calibrant.accumulators.named_cases import Cases
from calibrant.core.grid import equal_width_bin
from calibrant.core.packing import PackingError
from calibrant.core.pane_validation import check_pane
from calibrant.metrics import compute_metrics
from calibrant.results.cases import TABLE
from calibrant.segmentation.case_errors import ERRORS
from calibrant.segmentation.case_report import cases_of
from tests.calibrant.case_rows import (
    GOLDEN,
    SPEC,
    batch_of,
    golden_batch,
    naive_errors,
    pane_of,
    rows,
    some_parts,
    view_of,
)

# State.


def cases_in(pane: Pane) -> Cases:
    cases = pane["cases"]
    assert isinstance(cases, Cases)
    return cases


def assert_same(one: Cases, other: Cases) -> None:
    assert one.names == other.names
    assert one.tables.keys() == other.tables.keys()
    for name, block in one.tables.items():
        places, counts, sums = block.filled()
        wanted = other.tables[name].filled()
        np.testing.assert_array_equal(places, wanted[0])
        np.testing.assert_array_equal(counts, wanted[1])
        np.testing.assert_allclose(sums, wanted[2], atol=1e-9)


def test_a_case_in_pieces_and_in_any_order_is_the_whole_case() -> None:
    batch = batch_of(some_parts())
    complete = cases_in(pane_of(batch))
    order = np.random.default_rng(0).permutation(batch.n)
    pieces = [pane_of(batch.take(order[a:b])) for a, b in pairwise([0, 50, 51, 200, batch.n])]
    forward, backward = Pane(SPEC), Pane(SPEC)
    for piece in pieces:
        forward.merge(piece)
    for piece in reversed(pieces):
        backward.merge(piece)
    assert_same(cases_in(forward), complete)
    assert_same(cases_in(backward), complete)
    check_pane(forward)
    forward.subtract(pieces[2])
    assert_same(
        cases_in(forward), cases_in(pane_of(batch.take(order[:51]), batch.take(order[200:])))
    )
    assert cases_in(Pane.unpack(forward.pack())).pack() == cases_in(forward).pack()


@pytest.mark.parametrize("bound", ["MAX_CASES", "MAX_CELLS"])
def test_cases_beyond_the_bound_share_a_table(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    if bound == "MAX_CASES":
        monkeypatch.setattr(Cases, "max_cases", 8)
    else:
        monkeypatch.setattr(named_tables, bound, 400)
    parts = {f"c{i}": rows(i, 12) for i in range(40)}
    batches = [batch_of({name: part}) for name, part in parts.items()]
    forward, backward = pane_of(*batches), pane_of(*batches[::-1])
    cases = cases_in(forward)
    assert_same(cases, cases_in(backward))
    assert cases.halvings == cases_in(backward).halvings > 0
    assert len(cases.names) <= 8 if bound == "MAX_CASES" else True
    assert cases.n_cases["estimated"] is True
    # All in one pot stays exact.
    answer = compute_metrics(view_of(forward, 10, average="micro_pooled"), ["ml1_ece"])["ml1_ece"]
    every = {
        name: np.concatenate([part[i] for part in parts.values()]) for i, name in enumerate("py")
    }
    expected = [naive_errors(every["p"][:, k], every["y"] == k, 10, "hard")["ece"] for k in (1, 2)]
    assert answer["value"] == pytest.approx(np.mean(expected), abs=1e-9)
    assert answer["n_cases_estimated"] is True
    check_pane(forward)
    assert_same(cases_in(Pane.unpack(forward.pack())), cases)
    for batch in batches:
        forward.subtract(pane_of(batch))
    assert cases_in(forward).is_empty


def test_nothing_is_kept_where_cases_are_not_named_or_classes_are_too_many() -> None:
    p, y = rows(1, 20)
    plain = Batch.from_columns({"probabilities": p, "labels": y}, task="segmentation").batch
    assert pane_of(plain)["cases"].is_empty
    assert not Pane(PaneSpec("multiclass", 100)).keeps("cases")
    answer = compute_metrics(view_of(pane_of(plain)), ["ml1_ece"])["ml1_ece"]
    assert (answer["value"], answer["reason"]) == (None, "no_cases")
    assert cases_of(view_of(pane_of(plain)))["cases"] == []


def test_the_golden_file_is_read_forever() -> None:
    kept = Cases.unpack(SPEC, GOLDEN.read_bytes())
    assert_same(kept, cases_in(pane_of(golden_batch())))
    assert kept.sources == {}


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["spine", "knee"]}, {"names": ["knee"]}, {"halvings": 64}, {"halvings": 40}, {"names": [1, 2]},
        {"sources": [[["pooled", "right", 0]], []]}, {"sources": [[["x", "right", 5]], []]}, {"sources": [1, 2]},
    ],
)  # fmt: skip
def test_damaged_tables_are_rejected(change: dict[str, Any]) -> None:
    from calibrant.core.packing import pack, unpack

    arrays, about = unpack(GOLDEN.read_bytes())
    with pytest.raises(PackingError):
        Cases.unpack(SPEC, pack(arrays, about | change))


@pytest.mark.parametrize("column", ["lengths", "places", "predictions", "weight", "product_single"])
def test_shortened_columns_are_rejected(column: str) -> None:
    from calibrant.core.packing import pack, unpack

    arrays, about = unpack(GOLDEN.read_bytes())
    for changed in (arrays[column][:-1], np.concatenate([arrays[column], arrays[column][-1:]])):
        with pytest.raises(PackingError):
            Cases.unpack(SPEC, pack(arrays | {column: changed}, about))
    with pytest.raises(PackingError):
        Cases.unpack(SPEC, pack({k: v for k, v in arrays.items() if k != column}, about))


@pytest.mark.parametrize(
    "name", ["confidence_pooled", "correct_mean", "product_mean", "confidence_squared"]
)
def test_sums_that_no_rows_give_are_rejected(name: str) -> None:
    from calibrant.core.packing import pack, unpack

    pane = pane_of(golden_batch())
    arrays, about = unpack(GOLDEN.read_bytes())
    arrays[name] = arrays[name] + 5.0
    pane._parts["cases"] = Cases.unpack(SPEC, pack(arrays, about))
    with pytest.raises(CalibrationInputError, match="cases"):
        check_pane(pane)


# Plain histograms of a case.


def histograms_of(
    p: np.ndarray, labels: np.ndarray, case: str, bins: int = 1200, **fields: Any
) -> list[Histogram]:
    made = []
    for k in range(p.shape[1]):
        at = equal_width_bin(p[:, k], bins, fields.get("edges", "right"))
        given = {
            "kind": "class", "class": k, "bins": bins, "case": case, "count": np.bincount(at, minlength=bins),
            "sum_confidence": np.bincount(at, p[:, k], bins), "sum_correct": np.bincount(at, labels == k, bins),
        }  # fmt: skip
        made.append(Histogram.from_fields(given | fields, SPEC))
    return made


@pytest.mark.parametrize("edges", ["right", "left"])
def test_a_case_sent_as_histograms_answers_as_its_rows(edges: Any) -> None:
    p, labels = rows(3, 500)
    sent, filled = Pane(SPEC), pane_of(batch_of({"a": (p, labels)}))
    for histogram in histograms_of(p, labels, "a", edges=edges):
        sent.fill_histogram(histogram)
    check_pane(sent)
    hard = [
        cases_of(view_of(pane, 20, edges))["summary"]["ace"]["macro"]["value"]
        for pane in (sent, filled)
    ]
    assert hard[0] == pytest.approx(hard[1], abs=1e-9)
    soft = [cases_of(view_of(pane, 20, edges, membership="soft")) for pane in (sent, filled)]
    assert "error_bound" not in soft[1]
    for name in ERRORS:
        missed = abs(
            soft[0]["summary"][name]["macro"]["value"] - soft[1]["summary"][name]["macro"]["value"]
        )
        assert missed <= soft[0]["error_bound"][name]
    assert soft[0]["cases"][0]["dice"]["mean"] is None
    assert soft[0]["cases"][0]["true_positive"] is None
    for histogram in histograms_of(p, labels, "a", edges=edges):
        sent.fill_histogram(histogram.negated())
    assert sent["cases"].is_empty


def test_histograms_answer_for_their_own_policy_edges_and_bins_only() -> None:
    p, labels = rows(3, 60)
    pane = pane_of(batch_of({"b": (p, labels)}))
    for histogram in histograms_of(p, labels, "a"):
        pane.fill_histogram(histogram)
    pane = Pane.unpack(pane.pack())
    assert len(cases_of(view_of(pane, 20))["cases"]) == 2
    for pane_query in ({"raters": "mean"}, {"edges": "left"}):
        assert cases_of(view_of(pane, 20, **pane_query))["reason"] == "not_in_histogram"
    coarse = PaneSpec("segmentation", 3, grid=60)
    small = Pane(coarse)
    for k in range(3):
        n = np.ones(60)
        fields = {
            "kind": "class",
            "class": k,
            "bins": 60,
            "count": n,
            "sum_confidence": (np.arange(60) + 0.5) / 60,
            "sum_correct": n,
            "case": "a",
        }
        small.fill_histogram(Histogram.from_fields(fields, coarse))
    assert cases_of(view_of(small, 20))["cases"]
    assert cases_of(view_of(small, 15, membership="soft"))["cases"]
    assert cases_of(view_of(small, 20, membership="soft"))["reason"] == "not_in_histogram"


def test_the_table_of_cases_is_in_the_order_of_reports() -> None:
    """Of equal Dice, the file sorted by name and the report by error."""
    dice, ece = [0.5, 0.5, None, 0.2], [0.1, 0.3, 0.9, 0.2]
    cases = [
        {"case": name, "weight": 1.0, **{key: {"mean": 0.1} for key in ("ace", "mce", "ace_all_bins")},
         "dice": {"mean": d}, "ece": {"mean": e}}
        for name, d, e in zip("abcd", dice, ece, strict=True)
    ]  # fmt: skip
    assert [each["case"] for each in TABLE.rows({"cases": cases})] == ["d", "b", "a", "c"]
