"""Cases: tables against rows, averages against naive ones, laws of the accumulator, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from calibrant import Batch, CalibrationInputError, Histogram, Pane, PaneSpec
from calibrant.accumulators import cases as module
from calibrant.accumulators.cases import Cases
from calibrant.box_plot import box
from calibrant.cases.answer import case_reliability, cases_of
from calibrant.cases.comparison import compare_case_errors, compare_cases, permutation_p
from calibrant.cases.errors import ERRORS, case_errors
from calibrant.checking import check_pane
from calibrant.grid import equal_width_bin
from calibrant.metrics import compute_metrics
from calibrant.packing import PackingError
from calibrant.policies import POLICIES
from calibrant.question import Question
from calibrant.score import score_batch
from calibrant.view import NotAnswerable, View
from tests.ground.data import edge_scores

GOLDEN = Path(__file__).parent / "golden" / "cases.1.calb"
SPEC = PaneSpec("segmentation", 3)
SOFT_EMPTY = 0.01


def rows(
    seed: int, n: int, n_classes: int = 3, sharp: float = 1.4
) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident probabilities, some on edges, and one rating each."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=1.5, size=(n, n_classes))
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    said = np.exp(sharp * logits) / np.exp(sharp * logits).sum(axis=1, keepdims=True)
    edge = rng.random(n) < 0.2
    said[edge] = 0.0
    said[edge, 0] = rng.choice(edge_scores(600), edge.sum())
    said[edge, 1] = 1.0 - said[edge, 0]
    return said, (true.cumsum(axis=1) > rng.random(n)[:, None]).argmax(axis=1)


def batch_of(
    parts: dict[str, tuple[np.ndarray, np.ndarray]], *, task: str = "segmentation", **columns: Any
) -> Batch:
    given = {
        "probabilities": np.concatenate([p for p, _ in parts.values()]),
        "labels": [
            y if isinstance(y, list) else int(y) for _, labels in parts.values() for y in labels
        ],
        "cases": [name for name, (p, _) in parts.items() for _ in p],
    }
    return Batch.from_columns(
        given | columns, task=task, n_classes=given["probabilities"].shape[1]
    ).batch


def pane_of(*batches: Batch, spec: PaneSpec = SPEC) -> Pane:
    pane = Pane(spec)
    for batch in batches:
        pane.fill(batch)
    return pane


def view_of(
    pane: Pane, bins: int = 20, edges: Any = "right", raters: str = "pooled", **options: Any
) -> View:
    return View(pane, Question(bins=bins, edges=edges, raters=raters, options=options))


def some_parts(n_cases: int = 5) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    parts = {f"case-{i}": rows(i, 60 + 17 * i) for i in range(n_cases)}
    p, y = parts["case-1"]
    parts["case-1"] = p, np.where(y == 2, 0, y)  # a class that does not occur
    return parts


# The naive version.


def psi(x: float, m: int, bins: int) -> float:
    """Triangular membership of x in bin m, with flat ends."""
    centre = (m + 0.5) / bins
    if (m == 0 and x < centre) or (m == bins - 1 and x > centre):
        return 1.0
    return max(0.0, 1.0 - bins * abs(x - centre))


def naive_gaps(
    x: np.ndarray, y: np.ndarray, bins: int, membership: str, edges: str = "right"
) -> Iterator[tuple[float, float, float]]:
    """(weight, e, o) of the bins that are not empty, row by row."""
    for m in range(bins):
        weight = confidence = correct = 0.0
        for score, hit in zip(x.tolist(), y.tolist(), strict=True):
            if membership == "soft":
                share = psi(score, m, bins)
            elif edges == "right":
                share = float(m / bins < score <= (m + 1) / bins or (m == 0 and score == 0.0))
            else:
                share = float(
                    m / bins <= score < (m + 1) / bins or (m == bins - 1 and score == 1.0)
                )
            weight, confidence, correct = (
                weight + share,
                confidence + share * score,
                correct + share * hit,
            )
        if weight >= SOFT_EMPTY if membership == "soft" else weight > 0:
            yield weight, confidence / weight, correct / weight


def naive_errors(
    x: np.ndarray, y: np.ndarray, bins: int, membership: str, edges: str = "right"
) -> dict[str, float]:
    found = list(naive_gaps(x, y, bins, membership, edges))
    gaps = [abs(o - e) for _, e, o in found]
    return {
        "ece": sum(w * g for (w, _, _), g in zip(found, gaps, strict=True)) / len(x),
        "ace": float(np.mean(gaps)),
        "mce": max(gaps),
        "ace_all_bins": sum(gaps) / bins,
    }


def naive_micro(parts: dict[str, Any], klass: int, bins: int, membership: str) -> dict[str, float]:
    """Plain mean over cases of e_m, frequency and counts of all predictions."""
    n = sum(len(p) for p, _ in parts.values())
    gaps, weights = [], []
    for m in range(bins):
        means = []
        totals = np.zeros(2)
        for p, labels in parts.values():
            share = np.array([_member(s, m, bins, membership) for s in p[:, klass]])
            if share.sum() > (SOFT_EMPTY if membership == "soft" else 0):
                means.append((share * p[:, klass]).sum() / share.sum())
            totals += [share.sum(), (share * (labels == klass)).sum()]
        if means:
            gaps.append(abs(totals[1] / totals[0] - np.mean(means)))
            weights.append(totals[0])
    return {"ece": float(np.dot(weights, gaps) / n), "ace": float(np.mean(gaps)), "mce": max(gaps)}


def _member(score: float, m: int, bins: int, membership: str) -> float:
    if membership == "soft":
        return psi(score, m, bins)
    return float(m / bins < score <= (m + 1) / bins or (m == 0 and score == 0.0))


# Numbers.


@pytest.mark.parametrize(
    ("bins", "membership"), [(5, "hard"), (20, "hard"), (24, "hard"), (10, "soft"), (20, "soft")]
)
@pytest.mark.parametrize("edges", ["right", "left"])
def test_errors_of_each_case_and_class_are_those_of_the_rows(
    bins: int, membership: str, edges: Any
) -> None:
    parts = some_parts(3)
    cases = case_errors(
        view_of(pane_of(batch_of(parts)), bins, edges, membership=membership, background="in")
    )
    for name, error in ERRORS.items():
        values = error(cases.counted)
        for i, (p, labels) in enumerate(parts.values()):
            for k in range(3):
                expected = naive_errors(p[:, k], labels == k, bins, membership, edges)[name]
                assert values[i, k] == pytest.approx(expected, abs=1e-9), (name, i, k)


@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_macro_micro_and_pooled(membership: str) -> None:
    parts = some_parts()
    answers = compute_metrics(
        view_of(pane_of(batch_of(parts)), 10, membership=membership),
        ["ml1_ece", "ml1_ace", "ml1_mce"],
    )
    every = {k: np.concatenate([p[:, k] for p, _ in parts.values()]) for k in (1, 2)}
    hits = {k: np.concatenate([y == k for _, y in parts.values()]) for k in (1, 2)}
    for name in ("ece", "ace", "mce"):
        answer = answers[f"ml1_{name}"]
        by_case = [
            np.mean([naive_errors(p[:, k], y == k, 10, membership)[name] for k in (1, 2)])
            for p, y in parts.values()
        ]
        assert answer["value"] == answer["macro"] == pytest.approx(np.mean(by_case), abs=1e-9)
        assert answer["sd"] == pytest.approx(np.std(by_case), abs=1e-9)
        assert answer["quantiles"]["median"] == pytest.approx(np.median(by_case), abs=1e-9)
        pooled = [naive_errors(every[k], hits[k], 10, membership)[name] for k in (1, 2)]
        assert answer["micro_pooled"] == pytest.approx(np.mean(pooled), abs=1e-9)
        micro = [naive_micro(parts, k, 10, membership)[name] for k in (1, 2)]
        assert answer["micro"] == pytest.approx(np.mean(micro), abs=1e-9)
        low, high = stats.t.interval(0.95, len(by_case) - 1, np.mean(by_case), stats.sem(by_case))
        assert answer["interval"] == pytest.approx([max(low, 0.0), high], abs=1e-9)


@pytest.mark.parametrize("policy", POLICIES)
def test_label_policies_and_weights(policy: str) -> None:
    rng = np.random.default_rng(4)
    p, _ = rows(4, 80)
    labels = [rng.integers(0, 3, rng.integers(1, 5)).tolist() for _ in range(80)]
    weights = rng.choice([0.5, 1.0, 2.0], 80)
    batch = batch_of({"a": (p, np.array(labels, dtype=object))}, weights=weights)
    cases = case_errors(view_of(pane_of(batch), 10, raters=policy, background="in"))
    votes = batch.label_counts
    if policy == "pooled":
        hits, weight = votes.astype(float), weights * votes.sum(axis=1)
    else:
        weight = weights
        chosen = batch.majority[0] if policy == "majority" else batch.chosen_rating
        hits = votes / votes.sum(axis=1, keepdims=True) if policy == "mean" else np.eye(3)[chosen]
    for k in range(3):
        at = equal_width_bin(p[:, k], 10)
        total = np.bincount(at, weight, 10)
        gap = np.abs(
            np.bincount(at, weights * hits[:, k], 10) - np.bincount(at, weight * p[:, k], 10)
        )
        assert ERRORS["ece"](cases.bins)[0, k] == pytest.approx(gap.sum() / total.sum(), abs=1e-9)


def test_soft_memberships_of_a_case_add_up_to_its_rows() -> None:
    parts = some_parts(2)
    bins = case_errors(view_of(pane_of(batch_of(parts)), 15, membership="soft")).bins
    sizes = [len(p) for p, _ in parts.values()]
    np.testing.assert_allclose(
        bins.weight.sum(axis=2), np.repeat(sizes, 3).reshape(2, 3), rtol=1e-12
    )
    np.testing.assert_allclose(bins.correct.sum(axis=2), bins.positives, atol=1e-9)


@pytest.mark.parametrize("edges", ["right", "left"])
def test_of_one_case_with_background_the_pooled_error_is_the_classwise_one(edges: Any) -> None:
    pane = pane_of(batch_of({"only": rows(7, 400)}))
    answers = compute_metrics(
        view_of(pane, 15, edges, background="in", average="micro_pooled"),
        ["ml1_ece", "classwise_ece"],
    )
    assert answers["ml1_ece"]["value"] == pytest.approx(
        answers["classwise_ece"]["value"], abs=1e-12
    )
    assert answers["ml1_ece"]["macro"] == pytest.approx(
        answers["classwise_ece"]["value"], abs=1e-12
    )


def test_perfect_cases_have_no_error_and_full_dice() -> None:
    labels = np.array([0, 1, 2, 1, 0, 2])
    answer = cases_of(
        view_of(pane_of(batch_of({"a": (np.eye(3)[labels], labels)})), 20, background="in")
    )
    assert [
        answer["summary"][name]["macro"]["value"] for name in ("ece", "ace", "mce", "dice")
    ] == [0, 0, 0, 1]


def test_dice_is_of_the_top_class() -> None:
    parts = some_parts()
    answer = cases_of(view_of(pane_of(batch_of(parts)), 10, background="in"))
    for row, (p, labels) in zip(answer["cases"], parts.values(), strict=True):
        top = p.argmax(axis=1)
        for k in range(3):
            both = int(((top == k) & (labels == k)).sum())
            assert row["true_positive"][k] == both
            assert row["false_positive"][k] == (top == k).sum() - both
            assert row["false_negative"][k] == (labels == k).sum() - both
            assert row["dice"]["by_class"][k] == pytest.approx(
                2 * both / ((top == k).sum() + (labels == k).sum())
            )


# Missing classes, composites.


def test_a_class_without_a_rating_is_kept_or_left_out_as_asked() -> None:
    parts = some_parts()
    pane = pane_of(batch_of(parts))
    values = {}
    for missing in ("include", "skip_class", "skip_case"):
        answer = compute_metrics(view_of(pane, 10, missing=missing), ["ml1_ace"])["ml1_ace"]
        values[missing] = answer["value"]
        assert answer["n_missing"] == 1
        assert answer["n_cases_used"] == (4 if missing == "skip_case" else 5)
    errors = {
        name: [naive_errors(p[:, k], y == k, 10, "hard")["ace"] for k in (1, 2)]
        for name, (p, y) in parts.items()
    }
    means = {name: float(np.mean(pair)) for name, pair in errors.items()}
    assert values["include"] == pytest.approx(np.mean(list(means.values())), abs=1e-9)
    assert values["skip_class"] == pytest.approx(
        np.mean(list((means | {"case-1": errors["case-1"][0]}).values())), abs=1e-9
    )
    assert values["skip_case"] == pytest.approx(
        np.mean([means[n] for n in means if n != "case-1"]), abs=1e-9
    )


def test_where_every_case_is_skipped_there_is_no_number() -> None:
    p, _ = rows(1, 30)
    pane = pane_of(batch_of({"a": (p, np.zeros(30, int))}))
    answer = compute_metrics(view_of(pane, 10, missing="skip_case"), ["ml1_ece"])["ml1_ece"]
    assert answer["value"] is None
    assert answer["reason"] == "no_case_counts"
    assert (
        cases_of(view_of(pane, 10, missing="skip_class"))["summary"]["ece"]["macro"]["value"]
        is None
    )


def test_composites_come_from_rows() -> None:
    parts = some_parts()
    batch = batch_of(parts)
    answers = score_batch(
        batch,
        {
            "metrics": ["ml1_ece"],
            "bins": 7,
            "binning": "soft",
            "composites": {"whole": [1, 2], "two": [2]},
        },
    )
    answer = answers["metrics"]["ml1_ece"]
    expected = [
        np.mean([
            naive_errors(p[:, 1] + p[:, 2], y > 0, 7, "soft")["ece"], naive_errors(p[:, 2], y == 2, 7, "soft")["ece"]
        ])
        for p, y in parts.values()
    ]  # fmt: skip
    assert answer["classes"] == ["whole", "two"]
    assert answer["membership"] == "soft"
    assert answer["value"] == pytest.approx(np.mean(expected), abs=1e-9)
    with pytest.raises(NotAnswerable, match="needs_raw_rows"):
        case_errors(view_of(pane_of(batch), 10, composites={"whole": [1, 2]}))
    with pytest.raises(CalibrationInputError, match="composite"):
        case_errors(view_of(pane_of(batch), 10, composites={"whole": [3]}))


@pytest.mark.parametrize("membership", ["hard", "soft"])
def test_rows_and_kept_tables_agree(membership: str) -> None:
    batch = batch_of(some_parts())
    pane = pane_of(batch)
    question = Question(bins=20, options={"membership": membership})
    kept, raw = cases_of(View(pane, question)), cases_of(View(pane, question, batch))
    assert raw["summary"]["ace"]["macro"]["value"] == pytest.approx(
        kept["summary"]["ace"]["macro"]["value"], abs=1e-9
    )
    assert raw["histogram"]["counts"] == kept["histogram"]["counts"]
    assert [row["case"] for row in raw["cases"]] == [row["case"] for row in kept["cases"]]


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
    whole = cases_in(pane_of(batch))
    order = np.random.default_rng(0).permutation(batch.n)
    pieces = [pane_of(batch.take(order[a:b])) for a, b in pairwise([0, 50, 51, 200, batch.n])]
    forward, backward = Pane(SPEC), Pane(SPEC)
    for piece in pieces:
        forward.merge(piece)
    for piece in reversed(pieces):
        backward.merge(piece)
    assert_same(cases_in(forward), whole)
    assert_same(cases_in(backward), whole)
    check_pane(forward)
    forward.subtract(pieces[2])
    assert_same(
        cases_in(forward), cases_in(pane_of(batch.take(order[:51]), batch.take(order[200:])))
    )
    assert cases_in(Pane.unpack(forward.pack())).pack() == cases_in(forward).pack()


@pytest.mark.parametrize("bound", ["MOST_CASES", "MOST_CELLS"])
def test_cases_beyond_the_bound_share_a_table(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(module, bound, 8 if bound == "MOST_CASES" else 400)
    parts = {f"c{i}": rows(i, 12) for i in range(40)}
    batches = [batch_of({name: part}) for name, part in parts.items()]
    forward, backward = pane_of(*batches), pane_of(*batches[::-1])
    cases = cases_in(forward)
    assert_same(cases, cases_in(backward))
    assert cases.halvings == cases_in(backward).halvings > 0
    assert len(cases.names) <= 8 if bound == "MOST_CASES" else True
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


def golden_batch() -> Batch:
    return batch_of({name: rows(i, 9) for i, name in enumerate(("knee", "spine"))})


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
def test_damaged_tables_are_refused(change: dict[str, Any]) -> None:
    from calibrant.packing import pack, unpack

    arrays, about = unpack(GOLDEN.read_bytes())
    with pytest.raises(PackingError):
        Cases.unpack(SPEC, pack(arrays, about | change))


@pytest.mark.parametrize("column", ["lengths", "places", "predictions", "weight", "product_single"])
def test_shortened_columns_are_refused(column: str) -> None:
    from calibrant.packing import pack, unpack

    arrays, about = unpack(GOLDEN.read_bytes())
    for changed in (arrays[column][:-1], np.concatenate([arrays[column], arrays[column][-1:]])):
        with pytest.raises(PackingError):
            Cases.unpack(SPEC, pack(arrays | {column: changed}, about))
    with pytest.raises(PackingError):
        Cases.unpack(SPEC, pack({k: v for k, v in arrays.items() if k != column}, about))


@pytest.mark.parametrize(
    "name", ["confidence_pooled", "correct_mean", "product_mean", "confidence_squared"]
)
def test_sums_that_no_rows_give_are_refused(name: str) -> None:
    from calibrant.packing import pack, unpack

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
    for question in ({"raters": "mean"}, {"edges": "left"}):
        assert cases_of(view_of(pane, 20, **question))["reason"] == "not_in_histogram"
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


# What is said of cases.


def test_the_reliability_histogram_counts_cases() -> None:
    parts = some_parts()
    answer = cases_of(view_of(pane_of(batch_of(parts)), 10), frequency_bins=5)["histogram"]
    counts = np.zeros((2, 10, 5), int)
    for p, labels in parts.values():
        for k in (1, 2):
            at = equal_width_bin(p[:, k], 10)
            for m in np.unique(at):
                rate = (labels[at == m] == k).mean()
                counts[k - 1, m, min(int(rate * 5), 4)] += 1
    assert answer["counts"] == counts.tolist()
    shares = counts / np.maximum(counts.sum(axis=2, keepdims=True), 1)
    known = (counts.sum(axis=2) > 0).sum(axis=0)
    np.testing.assert_allclose(
        answer["mean"], shares.sum(axis=0) / np.maximum(known, 1)[:, None], atol=1e-12
    )
    with pytest.raises(CalibrationInputError):
        cases_of(view_of(pane_of(batch_of(parts)), 10), frequency_bins=0)


def test_bins_together_and_boxes_by_case() -> None:
    parts = some_parts()
    answer = cases_of(view_of(pane_of(batch_of(parts)), 10, background="in"))["reliability"]
    p, labels = (np.concatenate([part[i] for part in parts.values()]) for i in (0, 1))
    at, hits = equal_width_bin(p.ravel(), 10), np.eye(3)[labels].ravel()
    for m, row in enumerate(answer):
        assert row["weight"] == pytest.approx((at == m).sum())
        assert row["observed_frequency"] == pytest.approx(hits[at == m].mean())
        assert row["mean_confidence"] == pytest.approx(p.ravel()[at == m].mean())
        assert row["box"]["n"] <= 5


def test_one_case_in_detail() -> None:
    parts = some_parts()
    view = view_of(pane_of(batch_of(parts)), 10)
    detail = case_reliability(view, "case-2")
    p, labels = parts["case-2"]
    assert [one["class"] for one in detail["classes"]] == ["1", "2"]
    assert detail["classes"][0]["ace"] == pytest.approx(
        naive_errors(p[:, 1], labels == 1, 10, "hard")["ace"]
    )
    assert sum(row["weight"] for row in detail["classes"][1]["table"]) == len(p)
    with pytest.raises(NotAnswerable, match="unknown_case"):
        case_reliability(view, "nobody")


def test_box_numbers() -> None:
    assert box(np.array([np.nan])) is None
    one = box(np.array([3.0]))
    assert one is not None
    assert one["lower_whisker"] == one["median"] == one["upper_whisker"] == 3.0
    some = box(np.array([1.0, 2.0, 3.0, 4.0, 100.0, np.nan]))
    assert some is not None
    assert (some["lower_quartile"], some["median"], some["upper_quartile"]) == (2.0, 3.0, 4.0)
    assert (some["lower_whisker"], some["upper_whisker"], some["outliers"]) == (1.0, 4.0, [100.0])


def test_pairs_of_models() -> None:
    rng = np.random.default_rng(8)
    against = {f"c{i}": float(v) for i, v in enumerate(rng.random(20))}
    values: dict[str, float | None] = {
        name: v - 0.05 + 0.05 * float(rng.normal()) for name, v in against.items()
    }
    values |= {"c0": None, "extra": 0.3}
    answer = compare_cases(values, against)
    names = [f"c{i}" for i in range(1, 20)]
    difference = np.array([values[n] - against[n] for n in names])  # type: ignore[operator]
    t = difference.mean() / (difference.std(ddof=1) / np.sqrt(19))
    assert answer["t"] == pytest.approx(t)
    assert answer["p"] == pytest.approx(2 * stats.t.sf(abs(t), 18))
    assert answer["difference"] == pytest.approx(answer["mean"] - answer["against"])
    assert (answer["n"], answer["only_there"], answer["only_here"]) == (19, ["c0"], ["extra"])
    assert answer["stars"] == "**"
    assert answer["wilcoxon_p"] == pytest.approx(signed_ranks_p(difference), abs=1e-12)
    assert answer["permutation_p"] == pytest.approx(answer["p"], abs=0.01)
    back = compare_cases(against, values)
    for name in ("p", "wilcoxon_p", "permutation_p"):
        assert back[name] == answer[name]
    assert back["t"] == -answer["t"]
    assert compare_cases({"a": 1.0}, {"a": 2.0})["reason"] == "too_few_cases"
    assert (
        compare_cases({"a": 1.0, "b": 2.0}, {"a": 1.5, "b": 2.5})["reason"] == "constant_difference"
    )


def signed_ranks_p(difference: np.ndarray) -> float:
    """Exact p of Wilcoxon's signed ranks by counting the patterns of signs that give each sum of ranks."""
    ranks = stats.rankdata(np.abs(difference)).astype(int)
    ways = np.array([1.0])
    for rank in ranks:
        ways = np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))
    least = min(ranks[difference > 0].sum(), ranks[difference < 0].sum())
    return float(min(1.0, 2.0 * ways[: least + 1].sum() / ways.sum()))


@pytest.mark.parametrize("n", [2, 5, 9])
def test_signs_are_permuted_one_by_one(n: int) -> None:
    difference = np.random.default_rng(n).normal(0.4, 1.0, n)
    sums = [abs(sum(s * d for s, d in zip(signs, difference, strict=True))) for signs in product((1, -1), repeat=n)]
    expected = np.mean([each >= abs(difference.sum()) - 1e-12 for each in sums])
    assert permutation_p(difference) == pytest.approx(expected)


def test_models_are_compared_by_measure_and_class() -> None:
    truth = {f"s{i}": rows(i, 60) for i in range(6)}
    blunt = {name: (np.clip(0.8 * p + 0.2 / 3, 0, 1), y) for name, (p, y) in truth.items() if name != "s3"}
    options = {"missing": "skip_class"}
    mine, theirs = (case_errors(view_of(pane_of(batch_of(each)), **options)) for each in (truth, blunt))
    found = compare_case_errors(mine, theirs)
    assert set(found) == {*ERRORS, "dice"}
    for name, one in found.items():
        assert (one["n"], one["only_here"], one["only_there"]) == (5, ["s3"], [])
        sides = [dict(zip(each.names, each.by_case(name), strict=True)) for each in (mine, theirs)]
        expected = np.mean([sides[0][case] - sides[1][case] for case in sides[1]])
        assert one["difference"] == pytest.approx(expected)
        assert [each["class"] for each in one["by_class"]] == ["1", "2"]
        together = np.mean([each["difference"] for each in one["by_class"]])
        assert together == pytest.approx(expected)


@pytest.mark.parametrize(
    "options", [{"average": "mean"}, {"membership": "fuzzy"}, {"background": "maybe"}, {"missing": "drop"},
    {"composites": [1]}]
)  # fmt: skip
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(CalibrationInputError):
        case_errors(view_of(pane_of(golden_batch()), **options))


def test_bins_that_tables_do_not_give_are_refused() -> None:
    answer = cases_of(view_of(pane_of(golden_batch()), 16))
    assert answer["reason"] == "bins_not_exact"
    assert cases_of(view_of(pane_of(golden_batch()), 24))["cases"]
    assert (
        cases_of(view_of(pane_of(golden_batch()), 24, membership="soft"))["reason"]
        == "bins_not_exact"
    )
