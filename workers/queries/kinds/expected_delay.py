"""Number of cohorts from a change to its alarm, at the model's own rate of labels and with its own scores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.drift.calibration import N_RECENT
from calibrant.drift.mapped_scores import OWN_SCORE
from calibrant.drift.power import PREDICTED_CHANGES, Monitor
from calibrant.drift.unit_tables import UnitTable
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.detectors import n_requested
from calibrant_server.workers.alarm.typical_cohort import typical_table
from calibrant_server.workers.alarm.words_of import typical_of
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.query import Needs, Query

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
    settings = AlarmSettings.of(inputs.config)
    tables = {scope: _typical(inputs, scope) for scope in settings.scopes[:MAX_SCOPES]}
    if not all(table.n_units > 0 for table in tables.values()):
        return {
            "changes": None,
            "reason": "the model has no labels yet, so its rate of labels is unknown",
        }
    level = settings.level(n_requested(inputs.alarm.detectors, settings))
    changes = [row for scope, table in tables.items() for row in _rows(scope, table, level)]
    return {"bucket": settings.bucket, "changes": changes, "reason": None}


def _rows(scope: str, typical: UnitTable, level: float) -> list[Result]:
    """Return the delay of each change after 28 such cohorts without variation between them."""
    monitor = Monitor.steady(typical, level, N_RECENT)
    named = {} if scope == OWN_SCORE else {"scope": scope}
    return [
        named
        | {
            "change": asdict(change),
            "median": monitor.delay(change),
            "units_per_cohort": typical.n_units,
        }
        for change in PREDICTED_CHANGES
    ]


def _typical(inputs: Inputs, scope: str) -> UnitTable:
    """Return a typical cohort: the mean of the sealed ones, or the window's units at their rate."""
    settings, config, alarm = AlarmSettings.of(inputs.config), inputs.config, inputs.alarm
    sealed = [each for each in alarm.cohort_results if each.is_labelled]
    if scope == settings.scopes[0] and sealed:
        return typical_of(sealed[-N_RECENT:])
    fitted = alarm.active_map.fitted if settings.is_mapped else None
    panes = [each.pane for each in inputs.panes]
    table = typical_table(panes, scope, settings.policy, config.task, fitted)
    length_s = _length_s(inputs)
    return UnitTable(*(table.columns * settings.bucket_s / max(length_s, settings.bucket_s)))


def _length_s(inputs: Inputs) -> int:
    starts = [each.start_s for each in inputs.panes]
    ends = [each.start_s + each.length_s for each in inputs.panes]
    return max(ends, default=0) - min(starts, default=0)


KIND = ResultKind(ExpectedDelayQuery, compute, accumulators)
