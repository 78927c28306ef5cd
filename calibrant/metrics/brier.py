"""Brier score, summed over classes, as the mean over ratings of the squared distance to the rated class.

Models of two classes also report `brier_binary`, half of it: the mean squared error of class 1, which scikit-learn's
`brier_score_loss` returns. A rating of a class with probability 0 counts like any other.
"""

from __future__ import annotations

from calibrant.core.documents import Extra
from calibrant.core.view import View
from calibrant.metrics.metric import MEAN_NEEDS, SumMetric


def binary_half(view: View, value: float) -> Extra:
    """Return the mean squared error of class 1 of two classes."""
    return {"brier_binary": value / 2.0} if view.spec.n_classes == 2 else {}


METRIC = SumMetric(
    slug="brier",
    title="Brier score",
    unit="squared probability, summed over classes",
    range=(0.0, 2.0),
    needs=MEAN_NEEDS,
    formula="mean_i Σ_k (p_ik - y_ik)^2; of two classes, twice the mean squared error of class 1",
    search_words={
        "Brier score": "",
        "mean squared error of probabilities": "",
        "quadratic score": "",
    },
    source="Brier (1950), multi-class form",
    column="brier",
    null_column="brier_null",
    about=binary_half,
)
