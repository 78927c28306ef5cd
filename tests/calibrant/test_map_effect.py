"""Reliability before and after a map, against probabilities that are mapped and binned one by one."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal
from calibrant.core.pane import Pane
from calibrant.stability.before_and_after import BINS, map_effect

N = 300
RNG = np.random.default_rng(11)
Z = RNG.normal(0, 2, (N, 3))
P = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
Y = np.array([RNG.choice(3, p=row) for row in np.sqrt(P) / np.sqrt(P).sum(axis=1, keepdims=True)])
IDS = [f"i{i}" for i in range(N)]


def naive_error(score: list[float], hit: list[bool]) -> float:
    error = 0.0
    for b in range(BINS):
        rows = [i for i in range(N) if b / BINS < score[i] <= (b + 1) / BINS]
        error += abs(sum(score[i] - hit[i] for i in rows)) / N
    return error


def tempered(p: np.ndarray, temperature: float) -> np.ndarray:
    powers = p ** (1 / temperature)
    return powers / powers.sum()


def full() -> tuple[dict, Pane, list[float], list[float], list[bool]]:
    """A temperature of three classes: the top class stays."""
    fitted = {"method": "temperature", "scope": "full", "class": None, "parameters": {"temperature": 2.0}}  # fmt: skip
    hit = [bool(row.argmax() == y) for row, y in zip(P, Y, strict=True)]
    after = [float(tempered(row, 2.0).max()) for row in P]
    return fitted, cal.Pane.fill(P, Y, ids=IDS), [float(row.max()) for row in P], after, hit


def one_event() -> tuple[dict, Pane, list[float], list[float], list[bool]]:
    """Platt's map of one class of three."""
    fitted = {"method": "platt", "scope": "class", "class": 1, "parameters": {"slope": 0.5, "intercept": 0.2, "clip": 1e-9}}  # fmt: skip
    own = P[:, 1].tolist()
    after = [1 / (1 + np.exp(-(0.5 * np.log(p / (1 - p)) + 0.2))) for p in own]
    return fitted, cal.Pane.fill(P, Y, ids=IDS), own, after, (Y == 1).tolist()


def binary() -> tuple[dict, Pane, list[float], list[float], list[bool]]:
    p, hit = P[:, 0], Y == 0
    fitted = {"method": "temperature", "scope": "positive", "class": None, "parameters": {"temperature": 2.0}}  # fmt: skip
    after = [float(tempered(np.array([1 - each, each]), 2.0)[1]) for each in p]
    return fitted, cal.Pane.fill(p, hit.astype(int), ids=IDS), p.tolist(), after, hit.tolist()


@pytest.mark.parametrize(
    ("case", "scope"), [(full, "top_label"), (one_event, "class:1"), (binary, "positive")]
)
def test_both_sides_are_those_of_the_rows_one_by_one(case, scope) -> None:
    fitted, pane, before, after, hit = case()
    found = map_effect(fitted, pane)
    assert [found[side]["scope"] for side in ("before", "after")] == [scope] * 2
    assert found["n"] == N and found["sample"]["complete"]
    for side, score in (("before", before), ("after", after)):
        assert found[side]["ece"]["value"] == pytest.approx(naive_error(score, hit), abs=1e-6)
        assert sum(row["n_predictions"] for row in found[side]["table"]) == N
        for row in found[side]["table"]:
            mine = [i for i in range(N) if row["lower"] < score[i] <= row["upper"]]
            assert row["n_predictions"] == len(mine)
            if mine:
                rate = sum(hit[i] for i in mine) / len(mine)
                assert row["accuracy"] == pytest.approx(rate, abs=1e-9)


def test_without_labels_there_is_a_reason() -> None:
    fitted, _, before, *_ = binary()
    found = map_effect(fitted, cal.Pane.fill(before, [None] * N, ids=IDS))
    assert (found["before"], found["after"], found["reason"]) == (None, None, "no_labels")
