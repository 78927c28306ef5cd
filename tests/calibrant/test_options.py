"""Options of metrics: declared once, read in one way, rejected by name and rule."""

from __future__ import annotations

from typing import Any

import pytest

from calibrant import CalibrationInputError, Pane, PaneSpec
from calibrant.core.query import Option, PaneQuery
from calibrant.core.view import View
from calibrant.metrics import METRICS, OPTIONS, compute_metrics

EMPTY = Pane(PaneSpec("multiclass", 3))


def asked(**options: Any) -> dict[str, dict[str, Any]]:
    return compute_metrics(
        View(EMPTY, PaneQuery(options=options)), ["kde_ece", "tace", "ece_sweep"]
    )


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_every_option_has_what_a_query_and_a_document_need(option: Option) -> None:
    assert option.description.endswith(".")
    assert option.read(option.default) == option.default
    assert option.read(str(option.default)) == option.default
    assert bool(option.allowed) != (option.low is not None and option.high is not None)
    assert option.of(PaneQuery()) == option.default


def test_an_option_means_the_same_for_every_metric_that_reads_it() -> None:
    for metric in METRICS.values():
        for option in metric.own_options:
            assert OPTIONS[option.name] == option
            assert option.name not in PaneQuery.__dataclass_fields__


@pytest.mark.parametrize(
    ("options", "pointer", "rule"),
    [
        ({"epsilom": 0.1}, "/epsilom", "unknown_option"),
        ({"epsilon": "much"}, "/epsilon", "type"),
        ({"epsilon": True}, "/epsilon", "type"),
        ({"epsilon": [0.1]}, "/epsilon", "type"),
        ({"epsilon": 1.5}, "/epsilon", "range"),
        ({"epsilon": "nan"}, "/epsilon", "range"),
        ({"bandwidth": 0.0}, "/bandwidth", "range"),
        ({"norm": 3}, "/norm", "one_of"),
        ({"norm": 1.5}, "/norm", "type"),
        ({"leave": "nothing"}, "/leave", "one_of"),
        ({"leave": 0.5}, "/leave", "type"),
        ({"ties": ""}, "/ties", "one_of"),
        ({"norm": "9" * 5000}, "/norm", "type"),
    ],
)
def test_what_an_option_cannot_be(options: dict[str, Any], pointer: str, rule: str) -> None:
    with pytest.raises(CalibrationInputError) as rejection:
        asked(**options)
    violation = rejection.value.violations[0]
    assert (violation.pointer, violation.rule) == (pointer, rule)
    assert len(violation.detail) < 400


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"epsilon": None},
        {"epsilon": "0.25"},
        {"epsilon": 0},
        {"norm": "2"},
        {"norm": 2.0},
        {"loss_weight": 1},
    ],
)
def test_what_an_option_may_be(options: dict[str, Any]) -> None:
    assert asked(**options)["tace"]["reason"] == "no_data"
