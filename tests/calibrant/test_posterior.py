"""Posterior class probabilities and predicted disagreement against naive loops, enumeration and sampling."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from calibrant import CalibrationInputError
from calibrant.raters.posterior import (
    after_ratings,
    expected_disagreement,
    posterior_epistemic_loss,
)

RNG = np.random.default_rng(0)
F = RNG.dirichlet([1.0, 1.0, 1.0], 6)
Y = RNG.integers(0, 4, (6, 3))
MEMBERS = RNG.dirichlet([1.0, 1.0, 1.0], (4, 6))


def test_point_disagreement_counts_pairs() -> None:
    for f, value in zip(F, expected_disagreement(F), strict=True):
        pairs = itertools.product(range(3), repeat=2)
        assert value == pytest.approx(sum(f[a] * f[b] for a, b in pairs if a != b), abs=1e-14)


def test_dirichlet_disagreement_is_the_mean_over_its_draws() -> None:
    draws = RNG.dirichlet(2.5 * F[0], 200_000)
    disagreement = 1 - (draws**2).sum(axis=1)
    error = disagreement.std() / math.sqrt(len(draws))
    assert abs(disagreement.mean() - expected_disagreement(F[:1], 2.5)[0]) < 4 * error


def test_disagreement_of_ensembles_is_the_mean_of_members() -> None:
    for i in range(6):
        point = np.mean([1 - sum(p * p for p in member[i]) for member in MEMBERS])
        assert expected_disagreement(MEMBERS)[i] == pytest.approx(point, abs=1e-14)
        spread = np.mean([(1 - sum(p * p for p in member[i])) * 3 / 4 for member in MEMBERS])
        assert expected_disagreement(MEMBERS, 3.0)[i] == pytest.approx(spread, abs=1e-14)
    weighted = expected_disagreement(MEMBERS, weights=[1, 0, 0, 0])
    np.testing.assert_allclose(weighted, expected_disagreement(MEMBERS[0]), atol=1e-14)


def test_ensembles_disagree_less_than_their_mean_prediction() -> None:
    assert (expected_disagreement(MEMBERS) < expected_disagreement(MEMBERS.mean(axis=0))).all()


@pytest.mark.parametrize("alpha", [1e-9, 0.3, 7.0, 1e12])
def test_dirichlet_posterior_is_the_closed_form(alpha: float) -> None:
    after = after_ratings(F, Y, alpha)
    for i in range(6):
        for k in range(3):
            expected = (alpha * F[i, k] + Y[i, k]) / (alpha + Y[i].sum())
            assert after.probabilities[i, k] == pytest.approx(expected, abs=1e-12)
    total = alpha + Y.sum(axis=1)
    expected = total / (total + 1) * (1 - (after.probabilities**2).sum(axis=1))
    np.testing.assert_allclose(after.disagreement, expected, atol=1e-12)


def test_ratings_one_by_one_equal_ratings_at_once() -> None:
    f, alpha = F[:1], 2.0
    for label in (0, 0, 2, 1):
        f = after_ratings(f, np.eye(3, dtype=int)[[label]], alpha).probabilities
        alpha += 1.0
    np.testing.assert_allclose(f, after_ratings(F[:1], [[2, 1, 1]], 2.0).probabilities, atol=1e-14)


def test_without_ratings_nothing_changes() -> None:
    none = np.zeros((6, 3), int)
    np.testing.assert_array_equal(after_ratings(F, none, 2.0).probabilities, F)
    np.testing.assert_array_equal(after_ratings(F, none, 1e-300).probabilities, F)
    np.testing.assert_allclose(
        after_ratings(MEMBERS, none).probabilities, MEMBERS.mean(axis=0), atol=1e-14
    )


def test_infinite_concentration_is_a_point() -> None:
    np.testing.assert_array_equal(after_ratings(F, Y, np.inf).probabilities, F)
    np.testing.assert_allclose(
        expected_disagreement(F, np.inf), expected_disagreement(F), atol=1e-15
    )


def test_ensemble_likelihood_is_a_product_over_classes() -> None:
    after = after_ratings(MEMBERS, Y)
    assert after.weights is not None
    for i in range(6):
        likelihood = [
            math.prod(p**y for p, y in zip(member[i], Y[i], strict=True)) for member in MEMBERS
        ]
        weights = np.array(likelihood) / sum(likelihood)
        np.testing.assert_allclose(after.weights[:, i], weights, atol=1e-12)
        expected = sum(w * member[i] for w, member in zip(weights, MEMBERS, strict=True))
        np.testing.assert_allclose(after.probabilities[i], expected, atol=1e-12)
        spread = sum(w * (1 - (m[i] ** 2).sum()) for w, m in zip(weights, MEMBERS, strict=True))
        assert after.disagreement[i] == pytest.approx(spread, abs=1e-12)


def test_one_vote_moves_an_ensemble() -> None:
    """A sum over classes in the likelihood's place would leave it nearly still."""
    members = np.array([[[0.98, 0.02]], [[0.02, 0.98]]])
    after = after_ratings(members, [[1, 0]])
    assert after.probabilities[0, 0] > 0.9


def test_prior_weights_of_members_count() -> None:
    after = after_ratings(MEMBERS, Y, weights=[0.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(after.probabilities, MEMBERS[1], atol=1e-14)


def test_ensemble_of_dirichlets_is_bayes_rule() -> None:
    """By enumeration of one further rater: evidence with the label over evidence without it."""
    alphas = np.array([[0.5], [2.0], [9.0], [1.0]])
    after = after_ratings(MEMBERS, Y, alphas)

    def evidence(ratings: np.ndarray, i: int) -> float:
        total = 0.0
        for member, alpha in zip(MEMBERS, alphas[:, 0], strict=True):
            value, done = 1.0, 0
            for k, count in enumerate(ratings):
                for j in range(int(count)):
                    value *= (alpha * member[i, k] + j) / (alpha + done)
                    done += 1
            total += value / len(MEMBERS)
        return total

    for i in range(6):
        for k in range(3):
            more = Y[i].copy()
            more[k] += 1
            assert after.probabilities[i, k] == pytest.approx(
                evidence(more, i) / evidence(Y[i], i), abs=1e-12
            )
        differ = 0.0
        for a, b in itertools.permutations(range(3), 2):
            more = Y[i].copy()
            more[a] += 1
            more[b] += 1
            differ += evidence(more, i) / evidence(Y[i], i)
        assert after.disagreement[i] == pytest.approx(differ, abs=1e-12)


def test_ensembles_of_one_are_their_member() -> None:
    alone = after_ratings(F[None], Y, 3.0)
    np.testing.assert_allclose(
        alone.probabilities, after_ratings(F, Y, 3.0).probabilities, atol=1e-13
    )


def test_names_of_classes_do_not_matter() -> None:
    order = [2, 0, 1]
    for made in (
        lambda f, y: after_ratings(f[0], y, 2.0),
        after_ratings,
        lambda f, y: after_ratings(f, y, 2.0),
    ):
        np.testing.assert_allclose(
            made(MEMBERS[:, :, order], Y[:, order]).probabilities,
            made(MEMBERS, Y).probabilities[:, order],
            atol=1e-13,
        )


def test_epistemic_loss_after_ratings_is_the_mean_over_them() -> None:
    q, f, alpha = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6]), 1.7
    epistemic, irreducible = ((f - q) ** 2).sum(), (q * (1 - q)).sum()
    for n in (0, 1, 2, 3):
        mean = 0.0
        for labels in itertools.product(range(3), repeat=n):
            ratings = np.bincount(labels, minlength=3)[None] if n else np.zeros((1, 3), int)
            after = after_ratings(f[None], ratings, alpha).probabilities[0]
            mean += math.prod(q[label] for label in labels) * ((after - q) ** 2).sum()
        assert posterior_epistemic_loss(epistemic, irreducible, alpha, n) == pytest.approx(
            mean, abs=1e-14
        )
    best = irreducible / epistemic
    least = posterior_epistemic_loss(epistemic, irreducible, best)
    for other in (0.9 * best, 1.1 * best):
        assert posterior_epistemic_loss(epistemic, irreducible, other) > least
    assert posterior_epistemic_loss(epistemic, irreducible, math.inf) == epistemic


@pytest.mark.parametrize(
    ("ratings", "rule"),
    [
        ([[1, -1, 0]], "counts"),
        ([[0.5, 0, 0]], "counts"),
        ([[1, 0]], "shape"),
        ([1, 0, 0], "shape"),
    ],
)
def test_bad_ratings_are_rejected(ratings: object, rule: str) -> None:
    with pytest.raises(CalibrationInputError) as rejection:
        after_ratings(F[:1], ratings, 2.0)  # type: ignore[arg-type]
    assert rejection.value.violations[0].rule == rule


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan])
def test_concentrations_are_positive(alpha: float) -> None:
    with pytest.raises(CalibrationInputError):
        after_ratings(F, Y, alpha)
    with pytest.raises(CalibrationInputError):
        after_ratings(MEMBERS, Y, alpha)


def test_impossible_ratings_are_rejected_by_row() -> None:
    members = np.array([[[0.5, 0.5], [1.0, 0.0]]])
    with pytest.raises(CalibrationInputError) as rejection:
        after_ratings(members, [[0, 1], [0, 1]])
    assert [violation.pointer for violation in rejection.value.violations] == ["/label_counts/1"]
