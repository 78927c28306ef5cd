"""The result of each sealed cohort: evidence of a change, cohort by cohort."""

from __future__ import annotations

from calibrant.core.documents import Result
from calibrant.results.drift import drift_history
from calibrant_server.workers.alarm.cohorts import CohortResult, kept_cohorts
from calibrant_server.workers.alarm.episodes import interval, log10_of_p
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.query import Declared, declared_query


def compute(query: Declared, inputs: Inputs) -> Result:
    """The cohorts of the window, oldest first."""
    alarm, settings = inputs.alarm, inputs.alarm.state.settings
    return {
        "bucket": settings.bucket,
        "kept_cohorts": kept_cohorts(alarm.name),
        "cohorts": [
            _row(look, settings.bucket_s) for look in alarm.results if look.cohort in alarm.window
        ],
    }


def _row(look: CohortResult, bucket_s: int) -> Result:
    table = look.table
    n = table.n_units
    return {
        "cohort": interval(look.cohort, bucket_s),
        "evidence_log10": log10_of_p(look.p),
        "threshold_log10": log10_of_p(look.level),
        "over_threshold": look.p < look.level,
        "n_units": n,
        "mean_confidence": float(table.confidence.sum()) / n if n else None,
        "accuracy": float(table.correct.sum()) / n if n else None,
        "n_predictions": int(table.predictions.sum()),
        "n_labelled": int(table.labelled.sum()),
    }


KIND = ResultKind(declared_query(drift_history), compute)
