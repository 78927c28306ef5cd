"""The recommendation of a model that changed or is off, with the numbers of the calls that fit its update.

Temperature and map come from the same queries as `GET temperature` and `GET calibration-map` with `clock=sealed` and
`weights=unit` over the cohorts concerned: since the change, or the recent ones. They are of scores as sent, whatever map is active: `next` replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import numpy as np

from calibrant.core.action_texts import CORRECTIONS, REPLACES
from calibrant.core.actions import ActionRequest, Advice, map_method, next_request, recommendation
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.time_texts import period_text
from calibrant.drift.cohort_tables import OWN_SCORE, row_table
from calibrant.drift.recommendation import (
    ModelUpdate,
    cox_updates,
    recommended_action,
    softmax_update,
)
from calibrant.drift.unit_tables import UnitTable, unit_table
from calibrant.results.calibration_map import calibration_map
from calibrant.results.temperature import temperature
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.cohorts import parts_of, rater_in, since_change
from calibrant_server.workers.alarm.words_of import AlarmSnapshot
from calibrant_server.workers.queries.kind import Inputs, state_of
from calibrant_server.workers.queries.mapped_window import sampled_rows
from calibrant_server.workers.queries.query import query_for
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import Window

ONE_RATER = (
    "This is about the labels of one rater, and a map is fitted to the labels of all: ask the rater, and compare with the "
    "alarm of all labels."
)


def change_advice(inputs: Inputs) -> Advice | None:
    """Return the recommendation of the requested detector; None if it neither changed nor is off."""
    alarm, config = inputs.alarm, inputs.config
    windows = alarm.corrected()
    if windows is None or alarm.changed is None:
        return None
    settings = alarm.state.settings
    until = windows[1].from_s - settings.bucket_s
    first, later = since_change(alarm.results, windows[0].from_s, until)
    if settings.rater is not None or rater_in(alarm.name) is not None:
        return recommendation("collect_more", ONE_RATER, {"update": None, "tried": []})
    calls = _Calls(config, settings, windows[0], alarm)
    try:
        updates = calls.updates(first, later, settings.tolerance)
    except CalibrationInputError as error:
        return recommendation("collect_more", error.violations[0].detail, {"tried": []})
    if isinstance(updates, str):
        return recommendation("collect_more", updates, {"update": None, "tried": []})
    days = period_text((windows[0].from_s, windows[0].to_s))
    advice = recommended_action(first, later, settings.tolerance, updates, days)
    return calls.named(advice)


def of_temperature(inputs: Inputs, pane: Pane) -> Advice:
    """Return the recommendation of `GET temperature` for the window, so that both reads give the same."""
    raters = inputs.alarm.state.settings.policy
    query = query_for(temperature, include="recommendation", raters=raters)
    found = temperature(state_of(replace(inputs, merged=pane)), query.plain()).to_dict()
    advice: Advice = found["recommendation"]
    return replacing_map(advice, inputs.alarm.state.active_map.version)


def replacing_map(advice: Advice, version: str | None) -> Advice:
    """Return a recommendation that says whether its correction replaces the active map or is applied on top of it."""
    if version is None or advice["action"] not in CORRECTIONS:
        return advice
    return {**advice, "reason": f"{advice['reason']} {REPLACES.format(version)}"}


class _Calls:
    """Calls that fit an update to the cohorts since the change."""

    def __init__(
        self, config: ModelConfig, settings: AlarmSettings, window: Window, alarm: AlarmSnapshot
    ) -> None:
        assert alarm.changed is not None
        self._config, self._policy, self._window = config, settings.policy, window
        self._scope, self._slice = parts_of(alarm.name)
        self._map_version = alarm.state.active_map.version
        self._since_change, self._later = alarm.changed

    def updates(
        self, first: UnitTable, later: UnitTable, tolerance: float
    ) -> list[ModelUpdate] | str:
        """Return the candidates of the model's task, or the reason why there are none."""
        if self._config.task == "binary":
            return self._of_two_classes(first, later, tolerance)
        fitted = self._temperature()
        if fitted["temperature"] is None:
            return f"No temperature can be fitted to these cohorts: {fitted['detail']}"
        changed, after = (
            self._at_temperature(pane, fitted["temperature"])
            for pane in (self._since_change, self._later)
        )
        return [softmax_update(fitted["temperature"], changed, after, tolerance)]

    def named(self, advice: Advice) -> Advice:
        """Return the recommendation with the call that returns its numbers, and with the request that makes the map."""
        is_binary = self._config.task == "binary"
        evidence = advice["evidence"]
        method = map_method(str(evidence["update"]), is_binary)
        if method is None:
            return advice
        evidence = {**evidence, "call": self._call(method)}
        advice = replacing_map(advice, self._map_version)
        following = next_request(
            advice["action"],
            self._config.model,
            is_binary,
            None if advice["action"] == "collect_more" else self._view,
        )
        named: Advice = {**advice, "evidence": evidence}
        if following is not None:
            named["next"] = following
        return named

    @property
    def _view(self) -> dict[str, str]:
        """What is fitted, as parameters of a call."""
        window = self._window.to_dict()
        view = {"from": window["from"], "to": window["to"], "clock": "sealed", "weights": "unit"}
        view |= {"raters": self._policy, "slice": self._slice}
        return {name: str(value) for name, value in view.items() if value}

    def _call(self, method: str) -> ActionRequest:
        view = self._view
        name = "temperature"
        if method != "temperature":
            name, view = "calibration-map", {"method": method, **view}
        path = f"/v1/models/{self._config.model}/{name}?{urlencode(view, safe=':')}"
        return {"method": "GET", "path": path, "body": None}

    def _of_two_classes(
        self, first: UnitTable, later: UnitTable, tolerance: float
    ) -> list[ModelUpdate] | str:
        """Return updates of the score as sent, each with the parameters of its call."""
        changed = _as_many(
            unit_table(self._since_change, self._policy), first.n_units + later.n_units
        )
        after = _as_many(unit_table(self._later, self._policy), later.n_units)
        fitted, platt = self._temperature(), self._platt()
        named: dict[str, tuple[int, dict[str, float] | None]] = {
            "temperature": (1, _one("temperature", fitted["temperature"])),
            "intercept": (2, platt),
            "slope_intercept": (2, platt),
        }
        return [
            replace(each, n_parameters=named[each.action][0], parameters=named[each.action][1])
            for each in cox_updates(_less(changed, after), after, tolerance)
            if named[each.action][1] is not None
        ]

    def _temperature(self) -> Result:
        query = query_for(temperature, raters=self._policy, weights="unit").plain()
        return temperature(state_of(self._inputs), query).to_dict()

    def _platt(self) -> dict[str, float] | None:
        query = query_for(calibration_map, method="platt", raters=self._policy, weights="unit")
        return calibration_map(state_of(self._inputs), query.plain()).parameters

    @property
    def _inputs(self) -> Inputs:
        return Inputs(self._config, self._window, self._since_change)

    def _at_temperature(self, pane: Pane, fitted: float) -> UnitTable:
        """Return the detector's table of the stored sample's rows at a temperature."""
        if not pane.keeps("sample") or not pane.sample.n:
            return UnitTable.empty()
        divided: Mapping[str, Any] = {
            "method": "temperature",
            "scope": "full",
            "class": None,
            "parameters": {"temperature": fitted},
        }
        return row_table(sampled_rows(pane), self._scope or OWN_SCORE, self._policy, divided)


def _one(name: str, value: float | None) -> dict[str, float] | None:
    return None if value is None else {name: value}


def _less(total: UnitTable, part: UnitTable) -> UnitTable:
    """Return the table of the cohorts that are not in the part; rounding leaves nothing below 0."""
    weight = np.maximum(total.weight - part.weight, 0.0)
    columns = np.maximum(total.columns - part.columns, 0.0)
    columns[0] = weight
    columns[1:3] = np.minimum(columns[1:3], weight)
    return UnitTable(*columns)


def _as_many(table: UnitTable, n_units: float) -> UnitTable:
    """Return the table as that of at most so many units: a pane counts a unit once that is in several of a cohort."""
    share = min(1.0, n_units / table.n_units) if table.n_units else 1.0
    return UnitTable(*(share * table.columns))
