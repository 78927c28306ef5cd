"""STAPLE and the errors against a consensus: a naive EM, limits, invariances, and what is rejected."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, CalibrationInputError
from calibrant.raters.staple import staple
from calibrant.report import score_batch


def simulated(seed: int = 0, n: int = 80, n_raters: int = 4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.4
    sensitivity, specificity = rng.uniform(0.6, 0.95, (2, n_raters))
    chance = np.where(truth[:, None], sensitivity, 1.0 - specificity)
    return rng.random((n, n_raters)) < chance


def naive(marked: np.ndarray, iterations: int) -> tuple[list[float], list[float], list[float]]:
    """Pixel by pixel, as the formulas are printed."""
    n, r = marked.shape
    prior = marked.mean()
    p, q, w = [0.99999] * r, [0.99999] * r, [0.0] * n
    for _ in range(iterations):
        for i in range(n):
            inside, outside = prior, 1.0 - prior
            for j in range(r):
                inside *= p[j] if marked[i, j] else 1.0 - p[j]
                outside *= 1.0 - q[j] if marked[i, j] else q[j]
            w[i] = inside / (inside + outside)
        for j in range(r):
            p[j] = sum(w[i] for i in range(n) if marked[i, j]) / sum(w)
            q[j] = sum(1 - w[i] for i in range(n) if not marked[i, j]) / sum(1 - x for x in w)
    return w, p, q


@pytest.mark.parametrize("seed", range(3))
def test_staple_equals_the_naive_version(seed: int) -> None:
    marked = simulated(seed)
    found = staple(marked, max_iterations=25)
    weight, sensitivity, specificity = naive(marked, found.n_iterations)
    assert found.probability == pytest.approx(weight, abs=1e-12)
    assert found.sensitivity == pytest.approx(sensitivity, abs=1e-12)
    assert found.specificity == pytest.approx(specificity, abs=1e-12)


def test_better_raters_are_found() -> None:
    rng = np.random.default_rng(2)
    truth = rng.random(4000) < 0.3
    skill = np.array([0.95, 0.9, 0.9, 0.6])
    marked = np.where(rng.random((4000, 4)) < skill, truth[:, None], ~truth[:, None])
    found = staple(marked)
    assert found.converged
    assert found.sensitivity == pytest.approx(skill, abs=0.03)
    assert found.specificity == pytest.approx(skill, abs=0.03)
    ratings = marked.sum(axis=1) > 2
    assert (found.mask == truth).mean() > (ratings == truth).mean()


def test_limits_and_order() -> None:
    marked = simulated(1)
    found = staple(marked)
    turned = staple(marked[::-1, ::-1])
    assert turned.probability[::-1] == pytest.approx(found.probability, abs=1e-12)
    assert turned.sensitivity[::-1] == pytest.approx(found.sensitivity, abs=1e-12)
    alike = staple(np.repeat(marked[:, :1], 3, axis=1))
    assert (alike.mask == marked[:, 0]).all()
    for value in (False, True):
        same = staple(np.full((5, 3), value))
        assert (same.mask == value).all() and np.isnan(
            same.sensitivity if not value else same.specificity
        ).all()
    for wrong in (np.zeros((4, 2)), np.zeros((0, 3)), np.zeros(3)):
        with pytest.raises(CalibrationInputError, match="raters or more"):
            staple(wrong)
    with pytest.raises(CalibrationInputError, match="confidence_weight"):
        staple(marked, confidence_weight=0.0)


def rated(n: int = 60, n_raters: int = 3) -> tuple[Batch, dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(3), n)
    truth = np.array([rng.choice(3, p=row) for row in p])
    wrong = rng.random((n, n_raters)) < 0.2
    classes = np.where(wrong, rng.integers(0, 3, (n, n_raters)), truth[:, None])
    columns = {
        "probabilities": p,
        "labels": classes.tolist(),
        "cases": [f"scan-{i % 2}" for i in range(n)],
    }
    batch = Batch.from_columns(columns, task="segmentation").batch
    return batch, {f"r{j}": classes[:, j] for j in range(n_raters)}


def consensus(batch: Batch, raters: dict | None, **params: object) -> dict:
    pane_query = {"metrics": ["ece"], "include": ["consensus"], "bins": 10} | params
    return score_batch(batch, pane_query, raters)["consensus"]


def test_errors_against_the_consensus_by_hand() -> None:
    batch, raters = rated()
    found = consensus(batch, raters)
    means = {name: [] for name in ("staple", "majority", "pooled")}
    for case in found["cases"]:
        rows = np.flatnonzero(batch.cases == case["case"])
        assert case["raters"] == ["r0", "r1", "r2"] and case["n_pixels"] == len(rows)
        errors = {name: [] for name in means}
        for result in case["classes"]:
            k = int(result["class"])
            own = np.stack([raters[name][rows] == k for name in case["raters"]], axis=1)
            exact = staple(own)
            assert result["sensitivity"]["r1"] == pytest.approx(exact.sensitivity[1])
            assert result["n_consensus"] == exact.mask.sum()
            score = batch.probabilities[rows, k]
            counts = batch.label_counts[rows]
            references = {
                "staple": exact.mask,
                "majority": np.argmax(counts, axis=1) == k,
                "pooled": counts[:, k] / 3,
            }
            for name, truth in references.items():
                total = 0.0
                for m in range(10):
                    here = (np.ceil(score * 10).clip(1) - 1) == m
                    total += abs(truth[here].sum() - score[here].sum())
                assert result["ece"][name] == pytest.approx(total / len(rows), abs=1e-12)
                errors[name].append(total / len(rows))
        for name, values in errors.items():
            means[name].append(np.mean(values))
    assert found["mean"] == pytest.approx({name: np.mean(each) for name, each in means.items()})
    assert [len(case["classes"]) for case in found["cases"]] == [2, 2]
    inside = consensus(batch, raters, background="in")["cases"][0]["classes"]
    assert [each["class"] for each in inside] == ["0", "1", "2"]


def test_raters_who_left_pixels_out_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, raters = rated(n_raters=4)
    raters["r3"] = np.where(np.arange(60) == 1, -1, raters["r3"])
    found = consensus(batch, raters)
    assert [case["raters"] for case in found["cases"]] == [
        ["r0", "r1", "r2", "r3"],
        ["r0", "r1", "r2"],
    ]
    few = consensus(batch, {name: raters[name] for name in ("r0", "r1", "r3")})
    assert few["cases"][1]["reason"] == "too_few_raters" and few["n_cases_counted"] == 1
    none = consensus(batch, {name: raters[name] for name in ("r0", "r1")})
    assert (none["mean"], none["reason"]) == (None, "too_few_raters")
    assert consensus(batch, None)["reason"] == "raters_not_named"
    bare = Batch.from_columns({"probabilities": [[0.4, 0.6]], "labels": [1]}).batch
    assert consensus(bare, {"r0": np.array([1])})["reason"] == "no_cases"
    monkeypatch.setattr("calibrant.segmentation.single_cases.MAX_CASES", 1)
    assert consensus(batch, raters)["reason"] == "too_many_cases"
