"""Which labels the accuracy to expect is computed from, and that it is never returned with an open change."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from calibrant import Pane
from calibrant.drift.calibration import judge
from calibrant.drift.unit_tables import UnitTable
from calibrant.drift.words import CalibrationState, ChangeState, ScoresState
from calibrant_server.workers.alarm.words_of import ModelWords
from calibrant_server.workers.queries.kinds.drift import _with_expected
from calibrant_server.workers.store.windows import DatedPane

DAY_S = 86_400


def pane(n_labelled: int, n: int = 400) -> Pane:
    p = np.linspace(0.05, 0.95, n)
    labels = (p > 0.5).astype(int).tolist()
    return Pane.fill(p, [labels[i] if i % n < n_labelled else None for i in range(n)])


def expected(change: ChangeState, *panes: tuple[int, Pane]) -> float | None:
    nothing = judge(UnitTable.empty())
    words = ModelWords(CalibrationState("unknown", nothing, 0.02), change, ScoresState())
    inputs = SimpleNamespace(
        panes=[DatedPane(day * DAY_S, DAY_S, each, b"") for day, each in panes]
    )
    found = _with_expected(words, inputs).scores.expected
    return None if found is None else found.value


def test_there_is_none_with_an_open_change() -> None:
    current = (30, pane(300))
    assert expected(ChangeState("none_seen"), current) == pytest.approx(
        current[1].expected_accuracy().value
    )
    assert expected(ChangeState("changed"), current) is None
    assert expected(ChangeState("none_seen")) is None


def test_earlier_labels_are_used_where_the_last_days_have_few_and_no_change_was_acknowledged() -> (
    None
):
    old, few = (0, pane(400)), (30, pane(100))
    assert expected(ChangeState("none_seen"), old, few) is not None
    assert expected(ChangeState("none_seen"), few) is None
    assert expected(ChangeState("none_seen", acknowledged_at=5), old, few) is None
