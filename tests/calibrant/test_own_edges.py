"""Bins with own edges: from rows as given, from state where its grid has every edge, and an error that says what to do elsewhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import calibrant as cal
from calibrant.core.grid import Grid
from calibrant.core.own_edges import bins_of_positions, bins_of_scores, read_edges

RNG = np.random.default_rng(11)
# Half of the scores are on a grid of .05, so that many are on an edge.
SCORES = np.where(RNG.random(900) < 0.5, RNG.uniform(0, 1, 900), RNG.integers(0, 21, 900) / 20)
LABELS = (RNG.random(900) < SCORES**1.5).astype(int)
P = RNG.dirichlet(np.full(3, 0.5), 900)
Y = (P.cumsum(1) < RNG.random((900, 1))).sum(1).clip(0, 2)
EDGES = [0, 0.05, 0.5, 0.8, 0.9, 1]
ODD = [0, 0.123456789, 0.777, 1]


def naive_table(
    scores: np.ndarray, labels: np.ndarray, edges: list[float], closed: str
) -> list[list[float]]:
    table = [[0.0, 0.0, 0.0] for _ in edges[1:]]
    for score, label in zip(scores.tolist(), labels.tolist(), strict=True):
        for i in range(len(edges) - 1):
            low, high = edges[i], edges[i + 1]
            inside = low < score <= high if closed == "right" else low <= score < high
            is_end = (score == 0 and i == 0) or (score == 1 and i == len(edges) - 2)
            if inside or is_end:
                table[i] = [a + b for a, b in zip(table[i], [1, score, label], strict=True)]
                break
    return table


def naive_gaps(table: list[list[float]]) -> list[tuple[float, float]]:
    return [(n, abs(s - c) / n) for n, s, c in table if n]


def naive_ece(scores: np.ndarray, labels: np.ndarray, edges: list[float], closed: str) -> float:
    gaps = naive_gaps(naive_table(scores, labels, edges, closed))
    return sum(n * gap for n, gap in gaps) / sum(n for n, _ in gaps)


@pytest.mark.parametrize("closed", ["right", "left"])
@pytest.mark.parametrize("edges", [EDGES, ODD, [0, 1], [0, 1 / 3, 2 / 3, 1]])
def test_rows_equal_the_naive_version(edges: list[float], closed: str) -> None:
    table = naive_table(SCORES, LABELS, edges, closed)
    gaps = naive_gaps(table)
    found = cal.evaluate(
        SCORES, LABELS, "ece,mce,ace,rmsce,classwise_ece", bins=edges, edges=closed
    )
    total = sum(n for n, _ in gaps)
    expected = {
        "ece": sum(n * gap for n, gap in gaps) / total,
        "mce": max(gap for _, gap in gaps),
        "ace": sum(gap for _, gap in gaps) / len(gaps),
        "rmsce": np.sqrt(sum(n * gap**2 for n, gap in gaps) / total),
    }
    for slug, value in expected.items():
        assert found[slug].value == pytest.approx(value, abs=1e-12), slug
        assert found[slug].extra["bin_edges"] == [pytest.approx(each) for each in edges]
    made = cal.reliability(SCORES, LABELS, bins=edges, edges=closed)
    assert made.column("count").tolist() == [row[0] for row in table]
    assert made.column("sum_confidence") == pytest.approx([row[1] for row in table], abs=1e-9)
    assert [*made.lower.tolist(), 1.0] == [pytest.approx(each) for each in edges]


def test_one_class_against_the_rest_and_the_top_label() -> None:
    by_class = [naive_ece(P[:, k], k == Y, EDGES, "right") for k in range(3)]
    found = cal.evaluate(P, Y, "ece,classwise_ece,ece(scope=class:1)", bins=EDGES)
    assert found["classwise_ece"].value == pytest.approx(np.mean(by_class), abs=1e-12)
    assert found["ece(scope=class:1)"].value == pytest.approx(by_class[1], abs=1e-12)
    top = naive_ece(P.max(1), P.argmax(1) == Y, EDGES, "right")
    assert found["ece"].value == pytest.approx(top, abs=1e-12)


@pytest.mark.parametrize("closed", ["right", "left"])
def test_state_equals_rows_to_rounding(closed: str) -> None:
    slugs = "ece,mce,ace,rmsce,debiased_ece,lp_ece(order=3),overconfidence_error,classwise_ece,all_label_ece"
    for scores, labels in ((SCORES, LABELS), (P, Y)):
        rows = cal.evaluate(scores, labels, slugs, bins=EDGES, edges=closed)
        state = cal.Pane.fill(scores, labels).evaluate(slugs, bins=EDGES, edges=closed)
        for slug in rows:
            assert state[slug].value == pytest.approx(rows[slug].value, abs=1e-12), slug
            assert state[slug].interval == pytest.approx(rows[slug].interval, abs=1e-9), slug


def test_state_without_an_edge_says_which_and_what_to_do() -> None:
    pane = cal.Pane.fill(SCORES, LABELS)
    with pytest.raises(cal.CalibrationInputError) as caught:
        pane.evaluate("ece", bins=[0, 0.5, 0.9995, 1])
    (violation,) = caught.value.violations
    assert violation.rule == "bins_not_exact"
    for part in ("0.9995", "1/3600", "0.9994444444", "POST /v1/score"):
        assert part in violation.detail
    of_class = cal.Pane.fill(P, Y).evaluate("classwise_ece", bins=[0, 2 / 3600, 1])["classwise_ece"]
    assert of_class.reason == "bins_not_exact" and "1/1200" in (of_class.detail or "")


def test_equal_edges_are_the_same_bins_as_their_number() -> None:
    for n in (5, 10, 15, 20, 7):
        equal = cal.ece(SCORES, LABELS, bins=n)
        for edges in (
            np.linspace(0, 1, n + 1),
            np.arange(n + 1) / n,
            list(np.linspace(0, 1, n + 1)),
        ):
            own = cal.ece(SCORES, LABELS, bins=edges)
            assert (own.value, own.interval) == (equal.value, equal.interval), n
            assert own.null == equal.null


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_narrow_scores_are_on_the_edges_that_they_round(kind: type) -> None:
    scores = (RNG.integers(0, 21, 500) / 20).astype(kind)
    labels = RNG.integers(0, 2, 500)
    exact = np.round(scores.astype(float) * 20) / 20
    for closed in ("right", "left"):
        found = cal.reliability(scores, labels, bins=EDGES, edges=closed)
        expected = naive_table(exact, labels, EDGES, closed)
        assert found.column("count").tolist() == [row[0] for row in expected]
        typed = cal.reliability(scores, labels, bins=np.array(EDGES, np.float32), edges=closed)
        assert typed.column("count").tolist() == found.column("count").tolist()


def test_positions_of_a_grid_are_in_the_bins_of_their_scores() -> None:
    grid = Grid(60)
    scores = np.sort(
        np.concatenate([np.arange(61) / 60, (np.arange(60) + 0.5) / 60, [1e-9, 1 - 1e-9]])
    )
    edges = (0.0, 1 / 60, 0.25, 59 / 60, 1.0)
    for closed in ("right", "left"):
        expected = bins_of_scores(scores, edges, closed)
        assert (
            bins_of_positions(grid, edges, closed)[grid.locate(scores)].tolist()
            == expected.tolist()
        )


@pytest.mark.parametrize(
    ("edges", "rule"),
    [
        ([0, 0.5, 0.5, 1], "order"),
        ([1, 0.5, 0], "order"),
        ([0.5, 0.9, 1], "range"),
        ([0, 0.5], "range"),
        ([0, 0.5, 2], "range"),
        ([0], "range"),
        ([0, "a", 1], "type"),
        ([0, float("nan"), 1], "type"),
        ([[0, 1]], "type"),
        ([0, None, 1], "type"),
        ("0,half,1", "type"),
        (np.linspace(0, 1, 1002), "range"),
    ],
)
def test_what_is_no_list_of_edges_is_refused(edges: object, rule: str) -> None:
    with pytest.raises(cal.CalibrationInputError) as caught:
        read_edges(edges)
    assert caught.value.violations[0].rule == rule
    assert "Received" in str(caught.value) and "0,0.5,0.9,1" in str(caught.value)


def test_edges_that_nothing_would_use_are_refused() -> None:
    for call in (
        lambda: cal.evaluate(SCORES, LABELS, "adaptive_ece", bins=EDGES),
        lambda: cal.adaptive_ece(SCORES, LABELS, bins=EDGES),
        lambda: cal.ece(SCORES, LABELS, bins=EDGES, binning="equal_mass"),
        lambda: cal.fit_temperature(SCORES, LABELS, bins=EDGES),
        lambda: cal.fit_map(SCORES, LABELS, method="histogram", bins=EDGES),
        lambda: cal.compat(SCORES, LABELS, bins=EDGES),
        lambda: cal.Pane.fill(SCORES, LABELS).evaluate("hosmer_lemeshow", bins=EDGES),
    ):
        with pytest.raises(cal.CalibrationInputError):
            call()


def test_a_number_in_brackets_takes_precedence() -> None:
    found = cal.evaluate(
        SCORES, LABELS, "ece,ece(bins=10),ece(binning=equal_mass,bins=10)", bins=EDGES
    )
    assert found["ece(bins=10)"].value == cal.ece(SCORES, LABELS, bins=10).value
    mass = cal.ece(SCORES, LABELS, bins=10, binning="equal_mass").value
    assert found["ece(binning=equal_mass,bins=10)"].value == mass
    assert "bin_edges" not in found["ece(bins=10)"].extra


def test_a_comparison_is_of_the_same_bins() -> None:
    other = np.clip(SCORES * 0.9, 0, 1)
    found = cal.compare(SCORES, other, LABELS, "ece", bins=EDGES)["ece"]
    expected = naive_ece(SCORES, LABELS, EDGES, "right") - naive_ece(other, LABELS, EDGES, "right")
    assert found.value == pytest.approx(expected, abs=1e-12)


def test_intervals_contain_the_true_error_and_null_references_keep_their_level() -> None:
    """A flat truth of .3 over scores of uniform density: bins of own edges have gaps that are known."""
    edges = [0, 0.1, 0.37, 0.9, 1]
    truth = sum((b - a) * abs((a + b) / 2 - 0.3) for a, b in itertools.pairwise(edges))
    held = above = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        scores = rng.uniform(0, 1, 600)
        wrong = cal.ece(scores, rng.random(600) < 0.3, bins=edges)
        held += wrong.interval[0] <= truth <= wrong.interval[1]
        right = cal.ece(scores, rng.random(600) < scores, bins=edges)
        above += right.value > right.null_q95
    assert held >= 52 and above <= 9
