"""The bound of the metrics of one request holds before anything is read."""

from __future__ import annotations

import pytest

from calibrant.core.errors import CalibrationInputError
from calibrant.metrics import DEFAULT_METRICS, METRICS
from calibrant.results.metric_work import (
    MAX_WORK,
    metric_work,
    reject_costly_metrics,
)
from calibrant.results.metrics import metrics
from calibrant_server.workers.queries.kinds.metrics_series import MetricsSeriesQuery
from calibrant_server.workers.queries.query import query_for
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store.windows import Window
from tests.workers.driving import MODEL, delivery

HOUR_S = 3600
EVER = Window(0, 1 << 32)


@pytest.mark.parametrize(
    ("metrics", "more"),
    [
        (DEFAULT_METRICS, {}),
        (DEFAULT_METRICS, {"is_compared": True}),
        (DEFAULT_METRICS, {"n_parts": 24}),
        (DEFAULT_METRICS, {"n_parts": 31}),
        (DEFAULT_METRICS, {"n_slices": 20}),
        (["ece"], {"n_slices": 40}),
        (["ece", "brier", "accuracy"], {"n_parts": 90}),
        (["ece"], {"n_parts": 168}),
        (["ece"], {"n_parts": 200}),
        (["corp_miscalibration"], {"n_parts": 100}),
        (list(METRICS), {}),
    ],
)
def test_ordinary_requests_are_within_the_bound(metrics, more):
    reject_costly_metrics("/metrics", metrics, **more)


@pytest.mark.parametrize(
    ("metrics", "more", "named"),
    [
        (DEFAULT_METRICS, {"n_parts": 32}, "12 metrics of 32 parts: "),
        (DEFAULT_METRICS, {"n_parts": 90}, "12 metrics of 90 parts: "),
        (["ece"], {"n_parts": 201}, "1 metrics of 201 parts: "),
        (["corp_miscalibration"], {"n_parts": 101}, "1 metrics of 101 parts: 1010 units of work"),
        (DEFAULT_METRICS, {"bins": 1200}, "12 metrics of one window: "),
        (list(METRICS), {"is_compared": True}, "metrics of one window: "),
        (list(METRICS), {"n_slices": 2}, "metrics of 2 slice values: "),
        (["ece"], {"n_parts": 24, "n_slices": 50}, "1 metrics of 24 parts of 50 slice values: "),
    ],
)
def test_more_is_rejected_with_what_it_would_take(metrics, more, named):
    with pytest.raises(CalibrationInputError) as error:
        reject_costly_metrics("/by", metrics, **more)
    [violation] = error.value.violations
    assert (violation.pointer, violation.rule) == ("/by", "too_many_values")
    assert named in violation.detail and f"at most {MAX_WORK}" in violation.detail


def test_every_query_of_metrics_is_compared_with_the_bound():
    costly = ",".join(f"{slug}(bins=1200)" for slug in ("ece", "mce", "rmsce", "ace"))
    many = costly + ",nll,brier,auc," + costly.replace("1200", "900")
    with pytest.raises(CalibrationInputError):
        query_for(metrics, metrics=many).resolved(MODEL)
    accepted = query_for(metrics, metrics="ece(bins=1200)").resolved(MODEL)
    assert accepted.to_dict()["metrics"] == "ece(bins=1200)"


def test_a_series_is_rejected_before_its_panes_are_read(bench):
    """Slices of the request and its other side count for each part."""
    hours = list(range(40))
    bench.put_model()
    bench.engine()
    bench.deliver(delivery("many", [1] * 40, event_times=[h * HOUR_S * 10**6 for h in hours]))
    bench.merged("many")
    panes = WindowPanes(bench.store, bench.numerics)
    read = []
    panes._reader.decode = lambda *given: read.append(1)  # type: ignore[method-assign]
    each = metric_work(["ece"])
    n_slices = MAX_WORK // (40 * each)
    query = MetricsSeriesQuery(metrics="ece", every_s=HOUR_S, n_slices=n_slices)
    with pytest.raises(CalibrationInputError, match=f"40 parts of {n_slices} slice values"):
        panes.parts(MODEL, "", EVER, None, HOUR_S, query.check)
    assert not read
