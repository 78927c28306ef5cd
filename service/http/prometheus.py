"""Prometheus metrics of the HTTP service; they are only returned on request."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from calibrant_server.service.security.admission import Admission
from calibrant_server.workers.ingest.troubles import Troubles

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class ServiceMetrics:
    """Counters of one app; each app has its own, so that tests do not share them."""

    def __init__(self, admission: Admission) -> None:
        self.registry = CollectorRegistry()
        labels = ("operation", "status")
        self.requests = Counter(
            "calibrant_requests", "Requests with a response.", labels, registry=self.registry
        )
        self.seconds = Histogram(
            "calibrant_request_seconds",
            "Time to the response.",
            ("operation",),
            buckets=SECONDS,
            registry=self.registry,
        )
        in_hand = Gauge(
            "calibrant_body_bytes_in_hand", "Request bodies being read.", registry=self.registry
        )
        in_hand.set_function(lambda: admission.bytes_in_hand)


OF_A_MODEL = ("tenant", "model")
GAUGES = {
    "calibrant_drift_evidence_log10": ("Evidence since the baseline.", "evidence_log10"),
    "calibrant_drift_sr_log10": ("Change statistic.", "sr_log10"),
    "calibrant_drift_threshold": ("Change statistic at which the alarm goes off.", "threshold"),
    "calibrant_drift_alarms": ("Detectors in alarm, slices included.", "n_alarms"),
    "calibrant_drift_detectors": ("Detectors, slices included.", "n_detectors"),
    "calibrant_drift_last_cohort_timestamp_seconds": ("Start of the last cohort.", "cohort"),
}
SUMS = {
    "calibrant_drift_bin_units": "Labelled units of sealed cohorts by bin of the score.",
    "calibrant_drift_bin_confidence": "Sum of their scores.",
    "calibrant_drift_bin_correct": "Sum of their labels.",
}


STATES = ("pending", "waiting", "joined", "deleted")
EVENTS = {
    "calibrant_records_conflicts": (
        "Rows refused because their id came before with other content.",
        "conflicts",
    ),
    "calibrant_records_duplicates": ("Rows whose id and content came before.", "duplicates"),
    "calibrant_records_expired": ("Records dropped at retention.", "expired"),
    "calibrant_records_expired_unlabelled": (
        "Those of them that no label ever came for.",
        "expired_unlabelled",
    ),
}


class RecordMeters(Collector):
    """Retained records of each model, by what they wait for, and the outcomes of all others."""

    def __init__(self, tallies: Mapping[str, Mapping[str, int]]) -> None:
        self.tallies = dict(sorted(tallies.items()))

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        text = "Predictions by id: pending a label, labels waiting for theirs, joined, deleted."
        records = GaugeMetricFamily("calibrant_records", text, labels=(*OF_A_MODEL, "state"))
        held = GaugeMetricFamily(
            "calibrant_records_bytes", "What they take in the store.", labels=OF_A_MODEL
        )
        for model, tallies in self.tallies.items():
            for state in STATES:
                records.add_metric([*model.split("/", 1), state], tallies[state])
            held.add_metric(model.split("/", 1), tallies["bytes"])
        yield from (records, held)
        for name, (text, key) in EVENTS.items():
            counter = CounterMetricFamily(name, text, labels=OF_A_MODEL)
            for model, tallies in self.tallies.items():
                counter.add_metric(model.split("/", 1), tallies[key])
            yield counter


class DriftMeters(Collector):
    """Each model's evidence, and sums per bin that only grow: PromQL computes any window by subtraction."""

    def __init__(self, summaries: Mapping[str, Mapping[str, Any]], most: int) -> None:
        self.summaries = dict(sorted(summaries.items())[:most])
        self.left_out = max(0, len(summaries) - most)

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        for name, (text, key) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=OF_A_MODEL)
            for model, each in self.summaries.items():
                if each[key] is not None:
                    gauge.add_metric(model.split("/", 1), each[key])
            yield gauge
        for row, (name, text) in enumerate(SUMS.items()):
            counter = CounterMetricFamily(name, text, labels=(*OF_A_MODEL, "scope", "bin"))
            for model, each in self.summaries.items():
                column = each["bins"][row] if each["bins"] else []
                for place, value in enumerate(column):
                    upper = f"{(place + 1) / len(column):.4g}"
                    counter.add_metric([*model.split("/", 1), each["scope"], upper], value)
            yield counter
        yield GaugeMetricFamily(
            "calibrant_drift_models_left_out", "Models beyond the bound.", value=self.left_out
        )


OPERATION = {
    "calibrant_parked_entries": ("Batches kept for a replay, not merged.", "parked_entries"),
    "calibrant_unsealed_models": (
        "Models with a cohort that a damaged pane keeps unsealed.",
        "unsealed_models",
    ),
    "calibrant_dead_letters": ("Batches that could not be merged.", "dead_letters"),
    "calibrant_stalled_partitions": (
        "Partitions with a backlog that does not advance.",
        "stalled_partitions",
    ),
    "calibrant_partitions_without_lease": (
        "Partitions that no worker serves.",
        "partitions_without_lease",
    ),
    "calibrant_workers": ("Worker processes with a recent heartbeat.", "workers"),
    "calibrant_backlog_entries": ("Batches that wait to be merged.", "backlog_entries"),
    "calibrant_backlog_bytes": ("Bytes that wait to be merged.", "backlog_bytes"),
    "calibrant_merge_lag_seconds": ("Age of the oldest batch that waits.", "merge_lag_s"),
}


class OperationMeters(Collector):
    """The backlog, and conditions that need an operator."""

    def __init__(self, troubles: Troubles) -> None:
        self.troubles = troubles

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        for name, (text, field) in OPERATION.items():
            yield GaugeMetricFamily(name, text, value=getattr(self.troubles, field))


def registry_of_operation(troubles: Troubles) -> CollectorRegistry:
    """Return the metrics of conditions that need an operator."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(OperationMeters(troubles))
    return registry


def registry_of_models(
    summaries: Mapping[str, Mapping[str, Any]], tallies: Mapping[str, Mapping[str, int]], most: int
) -> CollectorRegistry:
    """Return the metrics of at most this many models, by name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(DriftMeters(summaries, most))
    registry.register(RecordMeters(tallies))
    return registry
