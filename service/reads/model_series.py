"""Prometheus series of models: their words, their alarms, and their retained records.

They are the same on every instance of the service, so a scrape asks one instance for them (`/metrics/models`) and each
instance for its own series (`/metrics`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from calibrant_server.service.reads.fleet import DatedStatus, recent_statuses
from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.alarm.alarm_commit import AlarmSummary
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.store.model_config import ModelConfig

OF_A_MODEL = ("tenant", "model")
Sample = tuple[Sequence[str], float | int | None]
# By name of the series: what it says, and the field of the summary of alarms.
ALARMS = {
    "calibrant_drift_alarms": (
        "Detectors with an open change that is not acknowledged, slices included.",
        "n_alarms",
    ),
    "calibrant_drift_detectors": ("Detectors, slices included.", "n_detectors"),
    "calibrant_drift_first_cohort_timestamp_seconds": (
        "Start of the first cohort.",
        "first_cohort",
    ),
    "calibrant_drift_last_cohort_timestamp_seconds": ("Start of the last cohort.", "cohort"),
}
BINS = {
    "calibrant_drift_bin_units": "Labelled units of sealed cohorts by bin of the score.",
    "calibrant_drift_bin_confidence": "Sum of their scores.",
    "calibrant_drift_bin_correct": "Sum of their labels.",
}
# Words of the status, and what each may be.
WORDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "calibrant_model_calibration": (
        "Calibration compared with the tolerance: 1 for the word that applies.",
        ("good", "off", "unknown"),
        "calibration",
    ),
    "calibrant_model_change": (
        "The model compared with its own past: 1 for the word that applies.",
        ("none_seen", "changed", "not_armed", "no_recent_predictions", "no_recent_labels"),
        "change",
    ),
    "calibrant_model_scores": (
        "Distribution of the scores, labelled or not: 1 for the word that applies.",
        ("none_seen", "shifted", "unknown"),
        "scores",
    ),
}
ERROR = "calibrant_model_calibration_error"
# Numbers of the status: what each says, the field, and its member.
NUMBERS: dict[str, tuple[str, str, str | None]] = {
    "calibrant_model_label_coverage": (
        "Labelled share of the predictions of the last 7 days.",
        "label_coverage",
        None,
    ),
    "calibrant_model_temperature": (
        "Temperature that fits the labels of the last 7 days.",
        "temperature",
        None,
    ),
    "calibrant_model_map_version": ("Version of the current calibration map.", "map_version", None),
    "calibrant_model_score_shift": ("Population stability index.", "scores", "value"),
    ERROR: ("Expected calibration error of the last 7 days.", "error", "value"),
    f"{ERROR}_null_mean": (
        "Mean error of a calibrated model with the same data.",
        "error",
        "null_mean",
    ),
    f"{ERROR}_null_q95": (
        "Error that a calibrated model with the same data exceeds in one of 20 cases.",
        "error",
        "null_q95",
    ),
}
STATES = ("pending", "waiting", "joined", "deleted")
RECORDS = {
    "conflicts": "Rows rejected because their id had arrived before with other content.",
    "duplicates": "Rows whose id and content had arrived before.",
    "expired": "Records dropped at retention.",
    "expired_unlabelled": "Expired records that never received a label.",
}


def _family(
    kind: type[Any], name: str, text: str, samples: Iterable[Sample], *labels: str
) -> Metric:
    """Return one family of series by model; a value that is not known has no sample."""
    family: Metric = kind(name, text, labels=(*OF_A_MODEL, *labels))
    for (model, *more), value in samples:
        if value is not None:
            family.add_metric([*model.split("/", 1), *more], value)  # type: ignore[attr-defined]
    return family


def record_series(tallies: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    """Yield retained records of each model, by what they wait for, and the outcomes of all others."""
    text = "Records by id: predictions pending a label, labels waiting for a prediction, joined, deleted."
    by_state = [((m, state), each[state]) for m, each in tallies.items() for state in STATES]
    yield _family(GaugeMetricFamily, "calibrant_records", text, by_state, "state")
    bytes_of = [((m,), each["bytes"]) for m, each in tallies.items()]
    text = "Bytes of these records in the store."
    yield _family(GaugeMetricFamily, "calibrant_records_bytes", text, bytes_of)
    for key, text in RECORDS.items():
        found = [((m,), each[key]) for m, each in tallies.items()]
        yield _family(CounterMetricFamily, f"calibrant_records_{key}", text, found)


def drift_series(summaries: Mapping[str, AlarmSummary]) -> Iterator[Metric]:
    """Yield each model's detectors, and sums per bin that only grow: PromQL computes any window by subtraction."""
    every: dict[str, Any] = dict(sorted(summaries.items()))
    for name, (text, key) in ALARMS.items():
        found = [((m,), each.get(key)) for m, each in every.items()]
        yield _family(GaugeMetricFamily, name, text, found)
    for row, (name, text) in enumerate(BINS.items()):
        totals = [
            ((m, each["scope"], f"{(place + 1) / len(each['bins'][row]):.4g}"), total)
            for m, each in every.items()
            for place, total in enumerate(each["bins"][row] if each["bins"] else [])
        ]
        yield _family(CounterMetricFamily, name, text, totals, "scope", "bin")


def status_series(
    configs: Sequence[ModelConfig],
    statuses: Mapping[str, DatedStatus],
    summaries: Mapping[str, AlarmSummary],
) -> Iterator[Metric]:
    """Yield the status of each model: calibration error with its null reference, temperature, map, labels, words, sealing."""
    fields: dict[str, Any] = {model: each.fields for model, each in statuses.items()}
    for name, (text, field, member) in NUMBERS.items():
        values = [
            ((m,), each[field] if member is None else (each[field] or {}).get(member))
            for m, each in fields.items()
        ]
        yield _family(GaugeMetricFamily, name, text, values)
    for name, (text, words, field) in WORDS.items():
        found = [
            ((m, word), float(each[field]["word"] == word))
            for m, each in fields.items()
            for word in (words if each[field] is not None else ())
        ]
        yield _family(GaugeMetricFamily, name, text, found, "word")
    times: dict[str, tuple[str, list[Sample]]] = {
        "status_timestamp": (
            "Time when the status was computed, or was found to be current.",
            [((m,), each.at_s) for m, each in statuses.items()],
        ),
        "label_horizon": (
            "Age at which a cohort is sealed.",
            [((each.key,), each.label_horizon_s) for each in configs],
        ),
        "last_sealed_cohort_end_timestamp": (
            "End of the last cohort that was sealed and evaluated.",
            [((each.key,), _sealed_until(each, summaries)) for each in configs],
        ),
    }
    for name, (text, samples) in times.items():
        yield _family(GaugeMetricFamily, f"calibrant_model_{name}_seconds", text, samples)


def _sealed_until(config: ModelConfig, summaries: Mapping[str, AlarmSummary]) -> int | None:
    summary = summaries.get(config.key)
    last = None if summary is None else summary.get("cohort")
    return None if last is None else last + AlarmSettings.of(config).bucket_s


async def model_series(
    reads: ReadService, configs: Sequence[ModelConfig], most: int
) -> Iterator[Metric]:
    """Return the series of the first `most` models by name; statuses are checked at most once a minute each.

    Parameters
    ----------
    configs : all models of the tenant
    most : bound; `calibrant_models_left_out` is the number of models beyond it
    """
    chosen = sorted(configs, key=lambda each: each.model)[:most]
    summaries = await reads.inbox.alarms.summaries()
    summaries = {each.key: summaries[each.key] for each in chosen if each.key in summaries}
    statuses = await recent_statuses(reads, chosen)
    tallies = dict(sorted((await reads.inbox.tallies_of(chosen)).items()))
    n_left_out = len(configs) - len(chosen)
    left_out = GaugeMetricFamily("calibrant_models_left_out", "Models beyond the bound.", n_left_out)  # fmt: skip
    return chain(
        status_series(chosen, statuses, summaries),
        (left_out,),
        drift_series(summaries),
        record_series(tallies),
    )
