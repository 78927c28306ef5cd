"""How well probabilities predict a yes-or-no statistic of several raters of one prediction, such as that all agree.

The statistic's share over all subsets of a prediction's ratings is unbiased for its label distribution. A model predicts it as the
probability among as many labels drawn from its probabilities. The loss is unbiased, and its calibration part is binned by the
predicted probability. For two raters and `disagreement` this is `disagreement_loss`, which the state holds. Others need complete
predictions: posted rows, or the stored sample. Each prediction has its own weight, whatever its number of ratings.
"""

from __future__ import annotations

import numpy as np

from calibrant.core.available_rows import available_rows
from calibrant.core.query import Option
from calibrant.core.view import NoResultError, View
from calibrant.metrics.formula_metric import FormulaMetric, MetricValue
from calibrant.raters.disagreement_tables import table_of_rows
from calibrant.raters.label_statistics import STATISTICS

MAX_ROWS = 20_000
STATISTIC = Option(
    "statistic",
    "disagreement",
    "Event among the raters: `disagreement` (not all agree), `all_differ` (no two agree) or `majority` (more than half agree).",
    allowed=tuple(STATISTICS),
)
N_RATERS = Option("n_raters", 2, "Number of raters in the statistic.", low=2, high=20)


def read(view: View) -> MetricValue | None:
    rows = available_rows(view, MAX_ROWS)
    if rows is None:
        return None
    name, order = str(STATISTIC.of(view.pane_query)), int(N_RATERS.of(view.pane_query))
    number = rows.label_counts.sum(axis=1)
    enough = number >= order
    if not enough.any():
        raise NoResultError("too_few_votes", f"no available prediction has {order} ratings")
    observed, predicted = STATISTICS[name]
    table = table_of_rows(
        np.clip(predicted(rows.probabilities[enough], order), 0.0, 1.0),
        observed(rows.label_counts[enough], order),
        view.pane_query.bins,
        view.pane_query.edges,
        weight=(rows.weight / number if view.pane_query.raters == "pooled" else rows.weight)[
            enough
        ],
    )
    weight = table.weight
    filled = weight > 0
    means = {
        key: (table.sums[column][filled] / weight[filled]).tolist()
        for key, column in (("observed", "disagreement"), ("predicted", "predicted"))
    }
    extra = {
        "statistic": name,
        "n_raters": order,
        "observed": float(table.sums["disagreement"].sum() / weight.sum()),
        "predicted": float(table.sums["predicted"].sum() / weight.sum()),
        "calibration_loss": table.calibration(),
        "calibration_loss_plugin": table.calibration_plugin(),
        "ce": table.error(),
        "bins": view.pane_query.bins,
        "table": {
            "bin": np.flatnonzero(filled).tolist(),
            "n": table.count[filled].tolist(),
            **means,
        },
        "n_too_few_votes": int((~enough).sum()),
        **rows.about,
    }
    return MetricValue(table.loss(), extra)


METRIC = FormulaMetric(
    slug="rater_statistic",
    title="Loss of a statistic of several raters",
    unit="squared probability",
    range=(None, None),
    needs=("sample",),
    formula="mean_i of the unbiased (φ_i - φ(p_i))^2, φ of n raters",
    search_words={"higher-order statistic": "", "Hi-EL": "", "statistic loss": ""},
    source="Mimori et al. (AISTATS 2021), section 4, eqs. 15 and 16",
    options=("bins", "edges"),
    own_options=(STATISTIC, N_RATERS),
    read=read,
    no_interval="not_replicated",
    no_null="not_a_gap_metric",
)
