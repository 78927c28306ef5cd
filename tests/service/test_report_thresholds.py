"""Decision thresholds that a model declares are those of its reports."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from calibrant.metrics import DEFAULT_METRICS
from calibrant_server.service.reads.alarms import AlarmBody
from calibrant_server.service.reads.reports import ReportParameters
from calibrant_server.workers.store.model_config import ModelConfig

CONFIG = ModelConfig("acme", "risk", "binary", 2, alarm={"thresholds": [0.2, 0.5]})


def test_a_report_has_the_net_benefit_at_each_declared_threshold():
    found = ReportParameters().of_model(CONFIG).metrics.split(",")
    assert found == [*DEFAULT_METRICS, "net_benefit(threshold=0.2)", "net_benefit(threshold=0.5)"]


def test_a_report_of_named_metrics_has_these_alone():
    assert ReportParameters(metrics="ece").of_model(CONFIG).metrics == "ece"
    plain = ModelConfig("acme", "risk", "binary", 2)
    assert ReportParameters().of_model(plain) == ReportParameters()


@pytest.mark.parametrize("thresholds", [[0.0], [1.0], [0.1] * 11, ["0.2"]])
def test_a_threshold_is_a_probability_between_0_and_1(thresholds):
    with pytest.raises(ValidationError):
        AlarmBody(thresholds=thresholds)
