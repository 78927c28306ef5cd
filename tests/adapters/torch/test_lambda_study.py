"""The study over λ: its table has the paper's columns, and the loss lowers the error that it is the loss of."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is installed by `make test-adapters`")

from benchmarks.lambda_study import METRICS, ring_and_disc, study, table


def test_the_weight_lowers_the_calibration_error() -> None:
    found = study((0.0, 4.0), steps=120, seeds=1)
    assert found[4.0]["ml1_ace"][0] < 0.8 * found[0.0]["ml1_ace"][0]
    assert found[4.0]["dice"][0] > 0.6
    rows = table(found).splitlines()
    assert rows[0] == "| λ | Dice | macro-ACE | micro-ACE | macro-ECE |"
    assert [row.split(" | ")[0] for row in rows[2:]] == ["| 0", "| 4"]
    assert len(rows[2].split("|")) - 3 == len(METRICS)


def test_the_set_is_the_same_each_time_and_has_every_class() -> None:
    images, classes = ring_and_disc(4, 7)
    again = ring_and_disc(4, 7)
    assert (images == again[0]).all() and (classes == again[1]).all()
    assert classes.unique().tolist() == [0, 1, 2]
