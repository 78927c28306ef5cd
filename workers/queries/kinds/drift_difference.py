"""The verdict of the sequential alarm, and the last days of a window compared with a baseline or another model's same days."""

from __future__ import annotations

from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant_server.workers.alarm.alarm_snapshot import AlarmView
from calibrant_server.workers.queries.kinds import drift
from calibrant_server.workers.store.windows import Dated

BY_PANE = PAIRED = True
parts = drift.parts
_ALIKE = (
    "what both sides share is taken as independent, so intervals of a change are too wide for it"
)


def answer(
    pair: tuple[list[Dated], list[Dated]],
    config: Any,
    params: dict[str, Any],
    seed: int,
    alarm: AlarmView,
) -> dict[str, Any]:
    """As `drift`, its comparison with the other side: all of a baseline, or what another model has of the last days."""
    panes, others = pair
    for each in others[:1]:
        if (each.pane.spec.task, each.pane.spec.n_classes) != (config.task, config.n_classes):
            detail = "models of another task or other classes cannot be compared"
            raise CalibrationInputError.at("/against_model", "not_comparable", detail)
    baseline = params.get("against")
    if baseline is None:
        cut = drift.start_of_current(panes, params)
        others = [each for each in others if each.start_s >= cut]
    told = drift.answer(panes, config, params, seed, alarm, others)
    compared = told["comparison"]
    if baseline is None:
        compared["assumptions"] = [*compared["assumptions"], _ALIKE]
        return told | {"against": {"model": params["against_model"]}}
    # A baseline is one pane that knows no time.
    compared["reference"]["window"] = None
    return told | {"against": {"baseline": baseline}}
