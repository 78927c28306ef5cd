"""Tables from rows: units once in a cohort, classes with shared units, mapped scores; what they describe."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import expit, logit

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.label_policies import POLICIES
from calibrant.drift.agreement import krippendorff_alpha
from calibrant.drift.bets import bets_of
from calibrant.drift.description import description
from calibrant.drift.evidence import log_bets
from calibrant.drift.mapped_scores import scalar, scores_of, side_of, table_at
from calibrant.drift.row_tables import row_table
from calibrant.drift.score_bounds import bounded_table
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import UnitTable, merged, unit_table
from calibrant.raters.label_coverage import label_counts

BINS = 15
PLATT = {
    "method": "platt",
    "scope": "positive",
    "class": None,
    "parameters": {"slope": 0.5, "intercept": 0.3, "clip": 1e-12},
}
TEMPERATURE = {
    "method": "temperature",
    "scope": "full",
    "class": None,
    "parameters": {"temperature": 2.0},
}


def drawn(seed=0, n=60, n_units=25, n_classes=3):
    """Rows that share units, some unlabelled, with up to four ratings."""
    rng = np.random.default_rng(seed)
    labels = [
        rng.integers(0, n_classes, rng.integers(1, 5)).tolist() if rng.random() < 0.8 else None
        for _ in range(n)
    ]
    columns = {
        "probabilities": rng.dirichlet(np.ones(n_classes), n),
        "labels": labels,
        "ids": [f"i{i}" for i in range(n)],
        "units": [f"u{rng.integers(n_units)}" for _ in range(n)],
    }
    return columns, Batch.from_columns(columns, n_classes=n_classes).batch


def naive(columns, raters, scope, single):
    """Row by row: each labelled row of a unit has its share of the weight of one."""
    labelled = [i for i, ratings in enumerate(columns["labels"]) if ratings]
    amount = {i: len(columns["labels"][i]) if raters == "pooled" else 1 for i in labelled}
    total = Counter()
    for i in labelled:
        total[columns["units"][i]] += amount[i]
    sums = np.zeros((3, BINS))
    squared = defaultdict(float)
    for i in labelled:
        p, ratings = columns["probabilities"][i], columns["labels"][i]
        class_index = int(np.argmax(p)) if scope == "score" else int(scope.split(":")[1])
        share = ratings.count(class_index) / len(ratings)
        if raters == "majority":
            own_ratings = [ratings.count(k) for k in range(len(p))]
            share = float(own_ratings.index(max(own_ratings)) == class_index)
        elif raters == "single":
            share = float(single[i] == class_index)
        place = int(np.ceil(p[class_index] * BINS)) - 1
        weight = amount[i] / total[columns["units"][i]]
        sums[:, place] += weight, weight * p[class_index], weight * share
        squared[columns["units"][i], place] += weight
    squares = np.zeros(BINS)
    for (_, place), weight in squared.items():
        squares[place] += weight**2
    return np.vstack([sums, squares])


@pytest.mark.parametrize("raters", POLICIES)
@pytest.mark.parametrize("scope", ["score", "class:2"])
def test_rows_equal_the_naive_sums(raters, scope):
    columns, batch = drawn()
    table, counts = row_table(batch, scope, raters)
    expected = naive(columns, raters, scope, batch.chosen_rating)
    np.testing.assert_allclose(table.columns[:4], expected, atol=1e-12)
    assert table.n_units == pytest.approx(
        len({u for u, r in zip(columns["units"], columns["labels"], strict=True) if r})
    )
    assert table.occupancy.sum() == pytest.approx(len(set(columns["units"])))
    assert counts.sum(axis=1).tolist() == [60, sum(r is not None for r in columns["labels"])]
    if scope == "score":
        pane = Pane(PaneSpec("multiclass", 3))
        pane.fill_batch(batch)
        kept = unit_table(pane, raters)
        np.testing.assert_allclose(table.columns[:3], kept.columns[:3], atol=1e-12)
        np.testing.assert_array_equal(counts, label_counts(pane))


def test_the_order_of_rows_is_nothing():
    _, batch = drawn()
    one, other = (
        row_table(b, "score", "mean")[0] for b in (batch, batch.take(np.arange(batch.n)[::-1]))
    )
    np.testing.assert_allclose(one.columns, other.columns, atol=1e-12)


def day_of_panes(scores, labels):
    """One unit with a row in each of several panes of a cohort: from the panes, and from the rows."""
    panes = []
    for p, y in zip(scores, labels, strict=True):
        pane = Pane(PaneSpec("binary", 2))
        pane.fill_batch(
            Batch.from_columns(
                {"confidences": [p], "labels": [y], "units": ["u"]}, task="binary"
            ).batch
        )
        panes.append(unit_table(pane, "mean"))
    columns = {"confidences": scores, "labels": labels, "units": ["u"] * len(scores)}
    return merged(panes), row_table(
        Batch.from_columns(columns, task="binary").batch, "score", "mean"
    )[0]


def test_a_unit_in_several_panes_is_evidence_once():
    """All of a calibrated unit's outcomes share their luck: exact means over where it falls."""
    scores = [0.3, 0.35, 0.5, 0.7]
    cuts = sorted([0.0, *scores, 1.0])
    mean = np.zeros((2, bets_of(BINS).n_bets))
    for low, high in pairwise(cuts):
        luck = (low + high) / 2
        for row, table in enumerate(day_of_panes(scores, [int(luck < p) for p in scores])):
            gain = log_bets(
                table.weight, table.confidence, table.correct, bets_of(BINS), Tolerance.within(0.0)
            )
            mean[row] += (high - low) * np.exp(gain)
    assert (mean[1] <= 1.0 + 1e-12).all()
    assert mean[0].max() > 1.5


def test_classes_with_shared_units_are_evidence_once():
    """Rows of a unit repeat its row and its class: the class's sums multiply no bet on average."""
    p = np.array([0.2, 0.3, 0.5])
    mean = np.zeros(bets_of(BINS).n_bets)
    for class_index, chance in enumerate(p):
        columns = {"probabilities": [p] * 5, "labels": [class_index] * 5, "units": ["u"] * 5}
        table, _ = row_table(Batch.from_columns(columns).batch, "class:1", "mean")
        mean += chance * np.exp(
            log_bets(
                table.weight, table.confidence, table.correct, bets_of(BINS), Tolerance.within(0.0)
            )
        )
    assert (mean <= 1.0 + 1e-12).all() and mean.max() > 0.99


def test_a_perfect_map_makes_bets_fair():
    """Outcomes follow the mapped scores: bets on those are fair, bets on the raw ones win."""
    score = np.array([0.02, 0.3, 0.6, 0.97])
    truth = expit(0.3 + 0.5 * logit(score))
    for fitted, fair in ((PLATT, True), (None, False)):
        mean = np.zeros(bets_of(BINS).n_bets)
        for p, chance in zip(score, truth, strict=True):
            for y in (0, 1):
                batch = Batch.from_columns({"confidences": [p], "labels": [y]}, task="binary").batch
                table, _ = row_table(batch, "score", "mean", fitted)
                gain = log_bets(
                    table.weight,
                    table.confidence,
                    table.correct,
                    bets_of(BINS),
                    Tolerance.within(0.0),
                )
                mean += (chance if y else 1 - chance) * np.exp(gain) / len(score)
        assert (mean.max() <= 1.0 + 1e-12) == fair


def test_what_a_map_speaks_of():
    _, batch = drawn()
    softened = batch.probabilities**0.5
    softened /= softened.sum(axis=1, keepdims=True)
    score, class_index = scores_of(batch, "score", TEMPERATURE)
    np.testing.assert_allclose(score, softened.max(axis=1))
    np.testing.assert_array_equal(class_index, batch.probabilities.argmax(axis=1))
    np.testing.assert_allclose(scores_of(batch, "class:1", TEMPERATURE)[0], softened[:, 1])
    top = PLATT | {"scope": "top_label"}
    p = batch.probabilities.max(axis=1)
    np.testing.assert_allclose(scores_of(batch, "score", top)[0], expit(0.3 + 0.5 * logit(p)))
    np.testing.assert_allclose(scores_of(batch, "class:1", top)[0], batch.probabilities[:, 1])
    one = PLATT | {"scope": "class", "class": 1}
    np.testing.assert_allclose(
        scores_of(batch, "class:1", one)[0], expit(0.3 + 0.5 * logit(batch.probabilities[:, 1]))
    )
    np.testing.assert_allclose(scores_of(batch, "class:2", one)[0], batch.probabilities[:, 2])
    assert [side_of(PLATT, class_index) for class_index in (1, 0, None)] == [1, -1, 0]
    binary = Batch.from_columns({"confidences": [0.2, 0.9]}, task="binary").batch
    np.testing.assert_allclose(
        scores_of(binary, "class:0", PLATT)[0], 1 - scores_of(binary, "score", PLATT)[0]
    )
    for scope in ("score", "class:0"):
        raw = scores_of(binary, scope)[0]
        np.testing.assert_allclose(
            scalar(PLATT, scope, "binary", raw), scores_of(binary, scope, PLATT)[0]
        )
    assert scalar(TEMPERATURE, "score", "multiclass", p) is None


def test_a_table_at_mapped_scores_is_near_that_of_mapped_rows():
    rng = np.random.default_rng(12)
    p = rng.beta(0.7, 2.2, 2000)
    columns = {"confidences": p, "labels": (rng.random(2000) < p).astype(int)}
    batch = Batch.from_columns(columns, task="binary").batch
    fine, _ = row_table(batch, "score", "mean", bins=600)
    moved = table_at(fine, scalar(PLATT, "score", "binary", fine.mean_confidence))
    exact, _ = row_table(batch, "score", "mean", PLATT, bins=600)
    assert moved.n_units == exact.n_units and moved.correct.sum() == exact.correct.sum()
    assert moved.confidence.sum() == pytest.approx(exact.confidence.sum(), rel=1e-3)


def platt(score):
    return expit(0.3 + 0.5 * logit(np.clip(score, 1e-12, 1 - 1e-12)))


def steps(score):
    return np.floor(np.asarray(score) * 37) / 37


def fine_table(score, label, units):
    columns = {"confidences": score, "labels": label, "units": units}
    return row_table(Batch.from_columns(columns, task="binary").batch, "score", "mean", bins=60)[0]


@pytest.mark.parametrize(
    "mapping", [platt, steps, lambda score: np.asarray(score) ** 3], ids=["platt", "steps", "cube"]
)
def test_the_mean_of_mapped_scores_lies_between_the_ends(mapping):
    rng = np.random.default_rng(13)
    for _ in range(20):
        score = rng.beta(rng.uniform(0.2, 3), rng.uniform(0.2, 3), 40)
        units = [f"u{i % 9}" for i in range(40)]
        fine = fine_table(score, [0] * 40, units)
        table, slack = bounded_table(fine, mapping)
        omega = np.array([1 / units.count(u) for u in units])
        exact = (omega * mapping(score)).sum()
        result = table.confidence.sum()
        assert result - slack[0].sum() - 1e-9 <= exact <= result + slack[1].sum() + 1e-9
        assert table.n_units == pytest.approx(9)


def test_a_map_that_falls_has_no_ends():
    assert bounded_table(UnitTable.empty(60), lambda score: 1.0 - score) is None


def test_bounded_scores_are_evidence_for_units_of_any_shape():
    """Two rows of a unit at both ends of a bin, where the map bends most: exact means over the unit's luck."""
    score = np.array([1e-6, 1 / 60 - 1e-6])
    truth = platt(score)
    cuts = sorted([0.0, *truth, 1.0])
    mean = np.zeros((2, bets_of(BINS).n_bets))
    for low, high in pairwise(cuts):
        labels = ((low + high) / 2 < truth).astype(int).tolist()
        table, slack = bounded_table(fine_table(score, labels, ["u", "u"]), platt)
        plain = Tolerance.within(0.0)
        for row, tolerance in enumerate((plain, plain.widened(table, slack))):
            gain = log_bets(table.weight, table.confidence, table.correct, bets_of(BINS), tolerance)
            mean[row] += (high - low) * np.exp(gain)
    assert (mean[1] <= 1.0 + 1e-12).all()
    assert mean[0].max() > 1.01


def test_krippendorff_s_example():
    """Four observers and twelve units, missing data: nominal alpha 0.743 (Krippendorff 2011, section D)."""
    observers = [
        "123321412...",
        "123322412 5.3".replace(" ", ""),
        ".3332342251.",
        "123324412 51.".replace(" ", ""),
    ]
    counts = np.zeros((12, 5), int)
    for row in observers:
        for unit, value in enumerate(row):
            if value != ".":
                counts[unit, int(value) - 1] += 1
    assert krippendorff_alpha(counts) == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha([[3, 0], [0, 2]]) == 1.0
    assert (
        krippendorff_alpha([[3, 0], [2, 0]]) is None
        and krippendorff_alpha(np.zeros((0, 2))) is None
    )


def test_description_equals_sums_over_units():
    """The parts of both scores add up to the score of every unit at its bin's mean."""
    rng = np.random.default_rng(3)
    p = rng.beta(0.7, 2.2, 500)
    y = (rng.random(500) < p).astype(int)
    table, _ = row_table(
        Batch.from_columns({"confidences": p, "labels": y}, task="binary").batch, "score", "mean"
    )
    result = description(table)
    place = np.clip(np.ceil(p * BINS).astype(int) - 1, 0, None)
    forecast = table.mean_confidence[place]
    assert result["brier"]["value"] == pytest.approx(((forecast - y) ** 2).mean())
    assert result["nll"]["value"] == pytest.approx(
        -np.log(np.where(y == 1, forecast, 1 - forecast)).mean()
    )
    gaps = [(forecast[place == k] - y[place == k]).sum() for k in range(BINS)]
    assert result["ece"]["value"] == pytest.approx(np.abs(gaps).sum() / 500)
    assert result["ece"]["null_mean"] < result["ece"]["null_q95"]
    assert "raises no alarm" in result["text"] and "500" in result["text"]
    assert description(UnitTable.empty()) is None


def test_calibrated_tables_lie_where_the_null_reference_says():
    """The 95 % end is exceeded by about one in twenty, and the debiased error is smaller than the plain."""
    rng, over, debiased = np.random.default_rng(4), [], []
    weight = np.full(BINS, 100.0)
    score = (np.arange(BINS) + 0.5) / BINS
    for seed in range(200):
        result = description(
            UnitTable(weight, weight * score, rng.binomial(100, score) * 1.0, weight, weight), seed
        )
        over.append(result["ece"]["value"] > result["ece"]["null_q95"])
        debiased.append(result["debiased_ece"]["value"])
    assert 0.02 <= np.mean(over) <= 0.09
    assert np.median(debiased) < 0.02


def test_what_was_given_no_chance_has_no_log_score():
    weight = np.eye(BINS)[0] * 4
    result = description(UnitTable(weight, 0 * weight, weight / 4, weight, weight))
    assert result["nll"]["value"] is None and result["brier"]["value"] == pytest.approx(0.25)
