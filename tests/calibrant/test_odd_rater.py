"""One reader is named as differing only with evidence: rarely by chance, reliably when they do, and never of two."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.raters.odd_rater import odd_rater

NAMES = ["a", "b", "c"]
N_UNITS, ROWS_OF_A_UNIT = 40, 4


def given(rng: np.random.Generator, errors: list[float]) -> np.ndarray:
    """Return classes by readers; rows of a unit share how hard they are, and each reader errs independently."""
    truth = rng.integers(0, 2, N_UNITS * ROWS_OF_A_UNIT)
    hard = np.repeat(rng.gamma(1.0, 1.0, N_UNITS), ROWS_OF_A_UNIT)
    wrong = rng.random((len(truth), len(errors))) < np.minimum(np.outer(hard, errors), 0.5)
    return truth[:, None] ^ wrong


def found(rng: np.random.Generator, errors: list[float]) -> str | None:
    classes = given(rng, errors)
    unit = np.arange(len(classes)) // ROWS_OF_A_UNIT
    odd = odd_rater(dict(zip(NAMES, classes.T, strict=False)), 2, unit)
    return None if odd is None else odd["name"]


def test_readers_of_one_quality_are_rarely_told_apart() -> None:
    """At 1 % of all readers together, 8 or more of 300 have a chance of 1.2 %."""
    rng = np.random.default_rng(4)
    assert sum(found(rng, [0.1, 0.1, 0.1]) is not None for _ in range(300)) < 8


def test_a_reader_who_differs_is_named() -> None:
    rng = np.random.default_rng(5)
    assert [found(rng, [0.05, 0.05, 0.35]) for _ in range(20)].count("c") >= 19


def test_of_two_readers_none_is_named() -> None:
    assert found(np.random.default_rng(6), [0.0, 0.5]) is None


def test_few_units_are_no_evidence() -> None:
    classes = given(np.random.default_rng(7), [0.0, 0.0, 0.5])
    unit = np.arange(len(classes)) % 19
    assert odd_rater(dict(zip(NAMES, classes.T, strict=True)), 2, unit) is None


def test_of_rare_findings_the_reader_who_overlooks_them_is_named() -> None:
    """One in ten rows has a finding. All three agree on most rows, so the shares of equal ratings hardly differ."""
    rng = np.random.default_rng(8)
    n = 600 * ROWS_OF_A_UNIT
    truth = rng.random(n) < 0.1
    marks = np.stack([truth & (rng.random(n) > missed) for missed in (0.05, 0.05, 0.6)], axis=1)
    noise = np.stack([rng.random(n) < share for share in (0.03, 0.03, 0.0)], axis=1)
    classes = (marks | noise).astype(np.int64)
    odd = odd_rater(dict(zip(NAMES, classes.T, strict=True)), 2, np.arange(n) // ROWS_OF_A_UNIT)
    assert odd is not None and odd["name"] == "c"
    assert abs(odd["agreement"] - odd["agreement_of_others"]) < 0.03
    assert odd["kappa"] < odd["kappa_of_others"] - 0.1


def test_kappas_are_those_of_pairs_of_readers() -> None:
    """Two readers' kappa beside a third; the expected agreement is of pooled shares (Scott), so that of two equal marginals is Cohen's."""
    rng = np.random.default_rng(9)
    classes = given(rng, [0.05, 0.05, 0.35])
    odd = odd_rater(dict(zip(NAMES, classes.T, strict=True)), 2, np.arange(len(classes)) // 4)
    assert odd is not None
    a, b = classes[:, 0], classes[:, 1]
    equal = float((a == b).mean())
    shares = np.bincount(np.concatenate([a, b]), minlength=2) / (2 * len(a))
    chance = float((shares**2).sum())
    assert odd["kappa_of_others"] == pytest.approx((equal - chance) / (1 - chance), abs=1e-12)
    with_c = float(np.mean([(a == classes[:, 2]).mean(), (b == classes[:, 2]).mean()]))
    of_c = np.bincount(classes[:, 2], minlength=2) / len(a)
    assert odd["kappa"] == pytest.approx((with_c - of_c @ shares) / (1 - of_c @ shares), abs=1e-12)


def test_the_labels_of_an_odd_rater_have_the_shares_of_common_rows() -> None:
    rng = np.random.default_rng(9)
    classes = given(rng, [0.05, 0.05, 0.4])
    classes[rng.random(classes.shape) < 0.2] = -1
    names = dict(zip(NAMES, classes.T, strict=True))
    odd = odd_rater(names, 2, np.arange(len(classes)) // 4)
    assert odd is not None and odd["name"] == "c"
    own, others = [], []
    for *rest, mine in classes.tolist():
        if mine >= 0 and max(rest) >= 0:
            own.append(mine)
            others += [each for each in rest if each >= 0]
    for key, ratings in (("shares", own), ("shares_of_others", others)):
        assert odd[key] == pytest.approx([1 - np.mean(ratings), np.mean(ratings)])
