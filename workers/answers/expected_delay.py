"""How soon a change would be found, at the model's own rate of labels and with its own scores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from calibrant.accumulators.units import UNIT_BINS
from calibrant.drift.delay import ASKED, expected_delay
from calibrant.drift.mapped import OWN_SCORE, scalar, table_at
from calibrant.drift.tables import merged, unit_table
from calibrant.drift.tolerance import Tolerance
from workers.alarm.detectors import n_asked
from workers.alarm.settings import AlarmSettings
from workers.alarm.view import AlarmView
from workers.windows import Dated

BY_PANE = True


def parts(params: dict[str, Any]) -> Iterable[str]:
    """Unit-weighted sums."""
    return ("units",)


def answer(
    panes: list[Dated], config: Any, params: dict[str, Any], seed: int, alarm: AlarmView
) -> dict[str, Any]:
    """Median cohorts to an alarm after each asked change; none without labels to go by."""
    settings = AlarmSettings.of(config)
    typical = merged((unit_table(each.pane, settings.policy, UNIT_BINS) for each in panes), UNIT_BINS)
    if not typical.n_units > 0:
        return {"changes": None, "reason": "no labels yet to tell the model's rate of labels from"}
    fitted = alarm.in_force.fitted if settings.is_mapped else None
    if fitted is not None and settings.bets == OWN_SCORE:
        # A map of whole rows leaves the scores where they are here: sums by bin do not hold rows.
        mapped = scalar(fitted, OWN_SCORE, config.task, typical.mean_confidence)
        typical = typical if mapped is None else table_at(typical, mapped)
    last_s = max(each.start_s + each.length_s for each in panes)
    length_s = last_s - min(each.start_s for each in panes)
    n_cohorts = max(1, -(-length_s // settings.bucket_s))
    threshold = settings.threshold(n_asked(alarm.detectors, settings))
    changes = [
        expected_delay(typical, n_cohorts, change, Tolerance.within(settings.tolerance), threshold)
        for change in ASKED
    ]
    return {"bucket": settings.bucket, "threshold": threshold, "changes": changes, "reason": None}
