"""Prometheus series of models: their words, their alarms, and their retained records.

They are the same on every instance of the service, so a scrape asks one instance for them (`/metrics/models`) and each
instance for its own series (`/metrics`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from calibrant.core.documents import Result
from calibrant_server.service.reads.model_statuses import DatedStatus, StatusCache
from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.alarm.alarm_commit import AlarmSummary
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.store.model_config import ModelConfig

OF_A_MODEL = ("tenant", "model")
Gauge = Literal["n_alarms", "n_detectors", "first_cohort", "cohort"]
GAUGES: dict[str, tuple[str, Gauge]] = {
    "calibrant_drift_alarms": ("Detectors in alarm, slices included.", "n_alarms"),
    "calibrant_drift_detectors": ("Detectors, slices included.", "n_detectors"),
    "calibrant_drift_first_cohort_timestamp_seconds": (
        "Start of the first cohort.",
        "first_cohort",
    ),
    "calibrant_drift_last_cohort_timestamp_seconds": ("Start of the last cohort.", "cohort"),
}
STATUS: dict[str, tuple[Literal["label_coverage", "temperature", "map_version"], str]] = {
    "calibrant_model_label_coverage": (
        "label_coverage",
        "Labelled share of the predictions of the last 7 days.",
    ),
    "calibrant_model_temperature": (
        "temperature",
        "Temperature that fits the labels of the last 7 days.",
    ),
    "calibrant_model_map_version": ("map_version", "Version of the current calibration map."),
}
WORDS: dict[str, tuple[Literal["calibration", "change", "scores"], tuple[str, ...], str]] = {
    "calibrant_model_calibration": (
        "calibration",
        ("good", "off", "unknown"),
        "Calibration compared with the tolerance: 1 for the word that applies.",
    ),
    "calibrant_model_change": (
        "change",
        ("none_seen", "changed", "not_armed", "no_recent_predictions", "no_recent_labels"),
        "The model compared with its own past: 1 for the word that applies.",
    ),
    "calibrant_model_scores": (
        "scores",
        ("none_seen", "shifted", "unknown"),
        "Distribution of the scores, labelled or not: 1 for the word that applies.",
    ),
}
ERROR = {
    "calibrant_model_calibration_error": (
        "value",
        "Expected calibration error of the last 7 days.",
    ),
    "calibrant_model_calibration_error_null_mean": (
        "null_mean",
        "Mean error of a calibrated model with the same data.",
    ),
    "calibrant_model_calibration_error_null_q95": (
        "null_q95",
        "Error that a calibrated model with the same data exceeds in one of 20 cases.",
    ),
}
SUMS = {
    "calibrant_drift_bin_units": "Labelled units of sealed cohorts by bin of the score.",
    "calibrant_drift_bin_confidence": "Sum of their scores.",
    "calibrant_drift_bin_correct": "Sum of their labels.",
}


STATES = ("pending", "waiting", "joined", "deleted")
EVENTS = {
    "calibrant_records_conflicts": (
        "Rows rejected because their id had arrived before with other content.",
        "conflicts",
    ),
    "calibrant_records_duplicates": ("Rows whose id and content had arrived before.", "duplicates"),
    "calibrant_records_expired": ("Records dropped at retention.", "expired"),
    "calibrant_records_expired_unlabelled": (
        "Expired records that never received a label.",
        "expired_unlabelled",
    ),
}


class RecordMetrics(Collector):
    """Retained records of each model, by what they wait for, and the outcomes of all others."""

    def __init__(self, tallies: Mapping[str, Mapping[str, int]]) -> None:
        self.tallies = dict(sorted(tallies.items()))

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        text = "Records by id: predictions pending a label, labels waiting for a prediction, joined, deleted."
        records = GaugeMetricFamily("calibrant_records", text, labels=(*OF_A_MODEL, "state"))
        record_bytes = GaugeMetricFamily(
            "calibrant_records_bytes", "Bytes of these records in the store.", labels=OF_A_MODEL
        )
        for model, tallies in self.tallies.items():
            for state in STATES:
                records.add_metric([*model.split("/", 1), state], tallies[state])
            record_bytes.add_metric(model.split("/", 1), tallies["bytes"])
        yield from (records, record_bytes)
        for name, (text, key) in EVENTS.items():
            counter = CounterMetricFamily(name, text, labels=OF_A_MODEL)
            for model, tallies in self.tallies.items():
                counter.add_metric(model.split("/", 1), tallies[key])
            yield counter


class DriftMetrics(Collector):
    """Each model's detectors, and sums per bin that only grow: PromQL computes any window by subtraction."""

    def __init__(self, summaries: Mapping[str, AlarmSummary]) -> None:
        self.summaries = dict(sorted(summaries.items()))

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        for name, (text, key) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=OF_A_MODEL)
            for model, each in self.summaries.items():
                value = each.get(key)
                if value is not None:
                    gauge.add_metric(model.split("/", 1), value)
            yield gauge
        for row, (name, text) in enumerate(SUMS.items()):
            counter = CounterMetricFamily(name, text, labels=(*OF_A_MODEL, "scope", "bin"))
            for model, each in self.summaries.items():
                column = each["bins"][row] if each["bins"] else []
                for place, total in enumerate(column):
                    upper = f"{(place + 1) / len(column):.4g}"
                    counter.add_metric([*model.split("/", 1), each["scope"], upper], total)
            yield counter


class StatusMetrics(Collector):
    """Status of each model: calibration error with its null reference, temperature, map, labels, sealing."""

    def __init__(
        self,
        configs: Sequence[ModelConfig],
        statuses: Mapping[str, DatedStatus],
        summaries: Mapping[str, AlarmSummary],
        n_left_out: int,
    ) -> None:
        self.configs, self.statuses, self.summaries = configs, statuses, summaries
        self.n_left_out = n_left_out

    def collect(self) -> Iterator[Metric]:
        """Yield every family; a value that is not known has no sample."""
        found = {key: each.fields for key, each in self.statuses.items()}
        for name, (field, text) in STATUS.items():
            yield _gauge(name, text, ((model, each[field]) for model, each in found.items()))
        for name, (word, all_words, text) in WORDS.items():
            yield _words(name, text, all_words, ((m, each[word]) for m, each in found.items()))
        scores = ((model, (each["scores"] or {}).get("value")) for model, each in found.items())
        yield _gauge("calibrant_model_score_shift", "Population stability index.", scores)
        for name, (key, text) in ERROR.items():
            values = ((model, (each["error"] or {}).get(key)) for model, each in found.items())
            yield _gauge(name, text, values)
        yield _gauge(
            "calibrant_model_status_timestamp_seconds",
            "Time when the status was computed, or was found to be current.",
            ((model, each.at_s) for model, each in self.statuses.items()),
        )
        yield _gauge(
            "calibrant_model_label_horizon_seconds",
            "Age at which a cohort is sealed.",
            ((each.key, each.label_horizon_s) for each in self.configs),
        )
        yield _gauge(
            "calibrant_model_last_sealed_cohort_end_timestamp_seconds",
            "End of the last cohort that was sealed and evaluated.",
            ((each.key, _sealed_until(each, self.summaries)) for each in self.configs),
        )
        yield GaugeMetricFamily(
            "calibrant_models_left_out", "Models beyond the bound.", value=self.n_left_out
        )


def _gauge(
    name: str, text: str, values: Iterable[tuple[str, float | int | None]]
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, text, labels=OF_A_MODEL)
    for model, value in values:
        if value is not None:
            gauge.add_metric(model.split("/", 1), value)
    return gauge


def _words(
    name: str, text: str, words: tuple[str, ...], found: Iterable[tuple[str, Result | None]]
) -> GaugeMetricFamily:
    """Return a gauge of each word, 1 for the one that applies; a model without one has no sample."""
    gauge = GaugeMetricFamily(name, text, labels=(*OF_A_MODEL, "word"))
    for model, value in found:
        if value is not None:
            for word in words:
                gauge.add_metric([*model.split("/", 1), word], float(value["word"] == word))
    return gauge


def _sealed_until(config: ModelConfig, summaries: Mapping[str, AlarmSummary]) -> int | None:
    summary = summaries.get(config.key)
    last = None if summary is None else summary.get("cohort")
    return None if last is None else last + AlarmSettings.of(config).bucket_s


class ModelSeries:
    """The series of a tenant's models; statuses are checked at most once a minute each."""

    def __init__(self, reading: ReadService, statuses: StatusCache) -> None:
        self._reading, self._statuses = reading, statuses

    async def registry(
        self, tenant: str, configs: Sequence[ModelConfig], most: int
    ) -> CollectorRegistry:
        """Return the series of the first `most` models by name.

        Parameters
        ----------
        tenant : whose models
        configs : all models of the tenant
        most : bound; `calibrant_models_left_out` is the number of models beyond it
        """
        chosen = sorted(configs, key=lambda each: each.model)[:most]
        inbox = self._reading.inbox
        summaries = await inbox.alarms.summaries()
        summaries = {each.key: summaries[each.key] for each in chosen if each.key in summaries}
        statuses = await self._statuses.refreshed(chosen)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(StatusMetrics(chosen, statuses, summaries, len(configs) - len(chosen)))
        registry.register(DriftMetrics(summaries))
        registry.register(RecordMetrics(await inbox.tallies_of(chosen)))
        return registry
