"""Accuracy: the weighted share of ratings equal to the top class (ties of probability to the lowest class)."""

from __future__ import annotations

from calibrant.metrics.metric import MEAN_NEEDS, SumMetric

METRIC = SumMetric(
    slug="accuracy",
    title="Accuracy",
    unit="share",
    direction="higher",
    needs=MEAN_NEEDS,
    formula="Σ_i w_i 1[y_i = argmax p_i] / Σ_i w_i",
    search_words={"top-1 accuracy": "", "top-1": ""},
    source="share of ratings equal to the top class",
    column="correct",
    null_column="accuracy_null",
    of_counts=True,
)
