"""STAPLE against the reference, ITK's filter."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.raters.staple import staple

# Of probabilities. Both stop when rates change by 1e-7, up to which a slow EM is that far from its end.
TOLERANCE = 5e-6
itk = pytest.importorskip("SimpleITK", reason="SimpleITK is installed by `make test-adapters`")


def ratings(seed: int, n_raters: int, n: int = 900, share: float = 0.3) -> np.ndarray:
    """Raters of different skill who mark a random region, (n, n_raters)."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < share
    sensitivity, specificity = rng.uniform(0.6, 0.98, n_raters), rng.uniform(0.7, 0.99, n_raters)
    chance = np.where(truth[:, None], sensitivity, 1.0 - specificity)
    return rng.random((n, n_raters)) < chance


def reference(marked: np.ndarray, confidence_weight: float = 1.0) -> tuple[np.ndarray, ...]:
    filter_ = itk.STAPLEImageFilter()
    filter_.SetForegroundValue(1.0)
    filter_.SetConfidenceWeight(confidence_weight)
    images = [itk.GetImageFromArray(column.astype(np.uint8).reshape(30, -1)) for column in marked.T]
    found = itk.GetArrayFromImage(filter_.Execute(images)).reshape(-1)
    return found, np.array(filter_.GetSensitivity()), np.array(filter_.GetSpecificity())


@pytest.mark.parametrize("n_raters", [3, 4, 7, 12])
@pytest.mark.parametrize("confidence_weight", [1.0, 0.7])
def test_probabilities_and_skills_are_those_of_itk(n_raters: int, confidence_weight: float) -> None:
    marked = ratings(n_raters, n_raters)
    found = staple(marked, confidence_weight=confidence_weight)
    probability, sensitivity, specificity = reference(marked, confidence_weight)
    assert found.converged
    np.testing.assert_allclose(found.probability, probability, atol=TOLERANCE)
    np.testing.assert_allclose(found.sensitivity, sensitivity, atol=TOLERANCE)
    np.testing.assert_allclose(found.specificity, specificity, atol=TOLERANCE)
    assert (found.mask == (probability > 0.5)).all()


def test_a_rare_region() -> None:
    marked = ratings(5, 5, share=0.02)
    probability, sensitivity, _ = reference(marked)
    found = staple(marked)
    np.testing.assert_allclose(found.probability, probability, atol=TOLERANCE)
    np.testing.assert_allclose(found.sensitivity, sensitivity, atol=TOLERANCE)
