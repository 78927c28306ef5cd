"""What the door counts about itself, for Prometheus; it goes nowhere unless somebody asks."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.admission import Admission

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Meters:
    """Counters of one app; each app has its own, so that tests do not share them."""

    def __init__(self, admission: Admission) -> None:
        self.registry = CollectorRegistry()
        labels = ("operation", "status")
        self.requests = Counter(
            "calibrant_requests", "Requests answered.", labels, registry=self.registry
        )
        self.seconds = Histogram(
            "calibrant_request_seconds",
            "Time to answer.",
            ("operation",),
            buckets=SECONDS,
            registry=self.registry,
        )
        in_hand = Gauge(
            "calibrant_body_bytes_in_hand", "Request bodies being read.", registry=self.registry
        )
        in_hand.set_function(lambda: admission.bytes_in_hand)

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.requests.labels(operation, str(status)).inc()
        self.seconds.labels(operation).observe(seconds)


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


class DriftMeters(Collector):
    """Each model's evidence, and sums by bin that only grow: any window of them is a subtraction in PromQL."""

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


def drift_registry(summaries: Mapping[str, Mapping[str, Any]], most: int) -> CollectorRegistry:
    """Return the meters of at most so many models, by name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(DriftMeters(summaries, most))
    return registry
