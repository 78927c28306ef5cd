"""Limits on the panes that one batch may fill."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from calibrant.core.batch import BatchResult
from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.ingest.model_rules import (
    Limits,
    TooManyPanes,
    check_panes,
    rows_in_time,
)
from tests.workers.driving import MODEL
from tests.workers.test_windows import Rows, times

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
NOON_S = int(NOON.timestamp())
LIMITS = Limits(max_panes=4, future_skew_s=300)


def test_too_many_panes_say_how_to_split():
    with pytest.raises(
        TooManyPanes, match="Split the batch by event time, or by slice value"
    ) as error:
        check_panes(
            Rows(3, times(-1, -2, -3), {"s": np.array(["a", "b", "c"])}), MODEL, NOON, LIMITS
        )
    assert (error.value.n_panes, error.value.limit) == (6, 4)
    assert error.value.violations[0].rule == "too_many_panes"


def test_the_future_and_what_retention_has_taken_are_rejected():
    model = replace(MODEL, retention_s=86_400)
    skew = np.array([1, 300_000_000, 300_000_001]) + NOON_S * 1_000_000
    for found, place, rule in [(skew, 7, "future"), (times(-24, -25), 6, "retention")]:
        # The rows in front of them were rejected before.
        n = len(found)
        checked = BatchResult(Rows(n, found), [], np.arange(5, 5 + n), n + 5)
        with pytest.raises(CalibrationInputError) as error:
            rows_in_time(checked, model, NOON, LIMITS, partial=False)
        assert [(o.pointer, o.rule) for o in error.value.violations] == [
            (f"/event_times/{place}", rule)
        ]
