"""Number of cohorts from a change to its alarm, at the model's own rate of labels and with its own scores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.drift.expected_delay import PREDICTED_CHANGES, expected_delay
from calibrant.drift.mapped_scores import OWN_SCORE
from calibrant_server.workers.alarm.detectors import n_requested
from calibrant_server.workers.alarm.settings import AlarmSettings
from calibrant_server.workers.alarm.typical_cohort import (
    band_of,
    scaled,
    sealed_rate,
    typical_table,
)
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.query import Needs, Query

# More classes are not simulated: a change of settings waits for this result.
MAX_SCOPES = 4


class ExpectedDelayQuery(Query):
    """Whether classes are watched, whose cells are then read."""

    kind: ClassVar[str] = "expected_delay"
    needs: ClassVar[Needs] = Needs(panes="each", alarm=True)

    by_class: bool = False


def accumulators(query: ExpectedDelayQuery) -> Iterable[str]:
    """Unit-weighted sums and histograms; cells of classes where bets are on some."""
    return ("counts", "units", "histograms", *(("classes",) if query.by_class else ()))


def compute(query: ExpectedDelayQuery, inputs: Inputs) -> Result:
    """Median cohorts to an alarm after each assumed change, of each watched class; none without labels."""
    panes, config, alarm = inputs.panes, inputs.config, inputs.alarm
    settings = AlarmSettings.of(config)
    fitted = alarm.active_map.fitted if settings.is_mapped else None
    merged = [each.pane for each in panes]
    scopes = settings.scopes[:MAX_SCOPES]
    tables = {
        scope: typical_table(merged, scope, settings.policy, config.task, fitted)
        for scope in scopes
    }
    if not all(table.n_units > 0 for table in tables.values()):
        return {
            "changes": None,
            "reason": "the model has no labels yet, so its rate of labels is unknown",
        }
    last_s = max(each.start_s + each.length_s for each in panes)
    length_s = last_s - min(each.start_s for each in panes)
    rate = sealed_rate(alarm, settings)
    threshold = settings.threshold(n_requested(alarm.detectors, settings))
    changes: list[Result] = []
    for scope, table in tables.items():
        per_s = rate or table.n_units / max(length_s, settings.bucket_s)
        a_cohort = scaled(table, per_s * settings.bucket_s / table.n_units)
        band = band_of(alarm, settings, scope, a_cohort)
        named = {} if scope == OWN_SCORE else {"scope": scope}
        changes += [
            named | expected_delay(a_cohort, 1, change, band, threshold)
            for change in PREDICTED_CHANGES
        ]
    return {"bucket": settings.bucket, "threshold": threshold, "changes": changes, "reason": None}


KIND = ResultKind(ExpectedDelayQuery, compute, accumulators)
