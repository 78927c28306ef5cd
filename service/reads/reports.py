"""Contents of a model's report: which queries it needs, and what their results say."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from math import ceil
from typing import Any, cast

from pydantic import Field

from calibrant.core.durations import parse_duration
from calibrant.figures.numbers import plain_number, to_the_minute
from calibrant.metrics import DEFAULT_METRICS
from calibrant.quality_report import SUBGROUPS, LeftOut, ReportContents, Subgroup
from calibrant.quality_report.readers import CASES, of_segmentation
from calibrant.results.cases import cases
from calibrant.results.decision_curve import decision_curve
from calibrant.results.drift import EVIDENCE, drift
from calibrant.results.metric_work import metric_work
from calibrant.results.metrics import TEST, metrics
from calibrant.results.reads import Raters
from calibrant.results.reliability import reliability
from calibrant.results.temperature import temperature
from calibrant.segmentation.case_report import worst_first
from calibrant_server.service.ingest.model_rules import SEGMENTATION
from calibrant_server.service.reads.frozen_maps import effect_document
from calibrant_server.service.reads.parts import require_label
from calibrant_server.service.reads.queries import ClockQuery, reject_costly, resolved_query
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.reads.report_classes import class_errors, class_queries
from calibrant_server.service.version import CODE_VERSION
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.queries.kinds.metrics_series import MetricsSeriesQuery
from calibrant_server.workers.queries.kinds.report_metrics import ReportMetricsQuery
from calibrant_server.workers.queries.kinds.report_raters import ReportRatersQuery
from calibrant_server.workers.queries.query import (
    BINS,
    CI,
    RATERS,
    SCOPE,
    Declared,
    Query,
    query_for,
)
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import rfc3339

SUBGROUP = "subgroup "
# A subgroup in a list with commas: in double quotes, or without commas.
SUBGROUP_NAME = r'(?:"(?:[^"]|"")+"|[^":,][^:,]*:[^,]+)'
# Names of subgroups that a report lists as left out; it has the number of all.
MAX_NAMES = 20
# Cases that a report lists; its results have all.
MAX_CASES = 50
ExtraTable = tuple[str, list[str], list[list[str]]]
OBSERVED = "observe: maps are advice; none is promoted or applied"
# Of the metrics over time: a window without a start is this long, and has at most so many parts.
SERIES, OVER_TIME = "series", "ece,accuracy"
EFFECT = "map_effect"
LONGEST_SERIES, MAX_PARTS, DAY_S = "P56D", 60, 86_400
# Any tolerance makes the workers compute what could have been found; the verdict is that of the request.
ANY_TOLERANCE = 1.0
# Of the metrics; the other queries of a report take about as much.
MAX_WORK = 150
# A report with these describes another period, or another tolerance, than the words of the model.
OF_ANOTHER_VERDICT = {"from_", "to", "window", "tolerance", "clock"}
BINNED = ("bins", "scope", "raters", "ci")


class ReportParameters(ClockQuery):
    """What the report describes."""

    metrics: str = Field(
        ",".join(DEFAULT_METRICS),
        min_length=1,
        max_length=4000,
        description="As in GET metrics. The verdict is that of the first calibration error, ece if present.",
    )
    tolerance: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Largest acceptable calibration error, set beforehand. Default: `alarm.tolerance` of the model.",
    )
    bins: int = BINS
    scope: str | None = SCOPE
    raters: Raters = RATERS
    ci: float = CI
    subgroups: str | None = Field(
        None,
        max_length=6000,
        pattern=f"^{SUBGROUP_NAME}(,{SUBGROUP_NAME})*$",
        description="Subgroups to list, as name:value separated by commas; one with a comma in double quotes. Default: the "
        "declared ones and those with data, those with most panes first. A report lists as many as one request may compute.",
    )

    @property
    def subgroup_names(self) -> list[str] | None:
        """The requested subgroups."""
        found = [] if self.subgroups is None else re.findall(SUBGROUP_NAME, self.subgroups)
        names = [each[1:-1].replace('""', '"') if each[0] == '"' else each for each in found]
        return names or None

    def tolerance_of(self, config: ModelConfig) -> float:
        """Return the tolerance of the request, else that of the model."""
        return AlarmSettings.of(config).tolerance if self.tolerance is None else self.tolerance

    def of_model(self, config: ModelConfig) -> "ReportParameters":
        """Return the parameters with the Dice of segmentations and the net benefit at decision thresholds, unless the request names metrics."""
        thresholds = config.alarm.get("thresholds") or []
        dice = ["dice"] if config.task == SEGMENTATION else []
        if "metrics" in self.model_fields_set or not (thresholds or dice):
            return self
        named = [f"net_benefit(threshold={each:g})" for each in thresholds]
        return self.model_copy(update={"metrics": ",".join([self.metrics, *dice, *named])})

    def given(self, *names: str) -> dict[str, Any]:
        """Return parameters that the request has; the others get the defaults of their query."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


def queries(
    parameters: ReportParameters, config: ModelConfig, slices: Sequence[str], shown: tuple[str, ...]
) -> dict[str, ReadQuery]:
    """Return the queries of a report by name.

    Parameters
    ----------
    parameters : of the request
    config : of the model
    slices : subgroups
    shown : further contents, for the ETag
    """
    binned = parameters.given(*BINNED)
    measured = {**binned, "tolerance": ANY_TOLERANCE}
    requested: dict[str, Query] = {
        "metrics": ReportMetricsQuery(metrics=parameters.metrics, **measured),
        "reliability": query_for(reliability, **binned),
        "temperature": query_for(temperature, **parameters.given("raters", "ci"), include="curve"),
        "drift": query_for(drift, include=EVIDENCE),
        "raters": ReportRatersQuery(metric="ece", **parameters.given("bins", "scope")),
    }
    if config.task == SEGMENTATION:
        requested["cases"] = query_for(cases)
    if config.task == "binary" or "net_benefit" in parameters.metrics:
        given = parameters.given("scope", "raters", "ci")
        requested["decision_curve"] = query_for(decision_curve, **given)
    requested |= class_queries(parameters.scope, config, **parameters.given("raters", "ci"))
    found = {
        name: ReadQuery(resolved_query(query, config), config, parameters, shown=shown)
        for name, query in requested.items()
    }
    found[SERIES] = series_query(parameters, config)
    return found | {
        f"{SUBGROUP}{name}": subgroup_query(parameters, config, name) for name in slices
    }


def series_query(parameters: ReportParameters, config: ModelConfig) -> ReadQuery:
    """Return the query of the metrics over time, in days or longer parts."""
    view = parameters
    if view.from_ is None and view.window is None:
        view = view.model_copy(update={"window": LONGEST_SERIES})
    if view.window is not None:
        length_s = float(parse_duration(view.window))
    else:
        length_s = ((view.to or datetime.now(UTC)) - cast("datetime", view.from_)).total_seconds()
    part_s = max(DAY_S, config.pane_s)
    every_s = part_s * max(1, ceil(length_s / part_s / MAX_PARTS))
    query = query_for(metrics, metrics=OVER_TIME, **parameters.given("scope", "raters", "ci"))
    found = MetricsSeriesQuery.model_construct(
        **dict(resolved_query(query, config)), every_s=every_s
    )
    return ReadQuery(found, config, view)


def work_of(parameters: ReportParameters, config: ModelConfig) -> int:
    """Return the units of work of a report's metrics; reject too many."""
    require_label(config, parameters.slice)
    query = query_for(metrics, metrics=parameters.metrics, **parameters.given(*BINNED))
    found = cast("Declared", resolved_query(query, config))
    reject_costly("/metrics", found, at_most=MAX_WORK)
    return metric_work(found.plain().listed, found.plain().bins)


def subgroup_query(parameters: ReportParameters, config: ModelConfig, name: str) -> ReadQuery:
    """Return the query of a subgroup."""
    query = query_for(metrics, metrics="ece", include=TEST, **parameters.given(*BINNED))
    return ReadQuery(resolved_query(query, config), config, parameters, slice=name)


def contents_of(
    parameters: ReportParameters,
    config: ModelConfig,
    results: Mapping[str, Any],
    active_map: dict[str, Any] | None,
    subgroups_left_out: Sequence[str] = (),
    is_observed: bool = False,
) -> ReportContents:
    """Return the contents of the report from the results of `queries`; in observe mode no map is in use."""
    measured, window = results["metrics"], results["metrics"]["window"]
    about = {"ci": parameters.ci, "bins": results["reliability"].get("bins")}
    return ReportContents(
        title=f"Calibration of {config.model}",
        metrics=measured | about,
        subject=[
            ("Model", config.model),
            ("Window", f"{_span(window)}, {parameters.clock} time"),
            ("Subgroup", parameters.slice or "all predictions"),
            *([("Classes", ", ".join(config.classes))] if config.classes else []),
            *([("Mode", OBSERVED)] if is_observed else []),
        ],
        classes=tuple(config.classes or ()),
        generated_at=rfc3339(datetime.now(UTC).replace(microsecond=0)),
        reliability=results["reliability"],
        temperature=results["temperature"],
        decision_curve=results.get("decision_curve"),
        series=results[SERIES],
        class_errors=class_errors(results, config),
        tolerance=parameters.tolerance_of(config),
        detectable={
            name: each
            for name, each in (measured.get("detectable") or {}).items()
            if isinstance(each, dict)
        },
        ratings_per_prediction=_ratings(measured),
        unit="patient" if config.unit == "patient" else "unit",
        left_out=_left_out(measured, subgroups_left_out),
        subgroups=[
            Subgroup(name.removeprefix(SUBGROUP), each)
            for name, each in results.items()
            if name.startswith(SUBGROUP)
        ],
        readers=_readers(results["raters"]),
        odd_reader=results["raters"].get("odd_rater"),
        readers_missing=_readers_missing(results["raters"], config),
        rater_disagreement=results["raters"].get("disagreement"),
        extra_tables=_cases(results.get("cases")),
        drift=results["drift"],
        are_words_the_verdict=not parameters.model_fields_set & OF_ANOTHER_VERDICT,
        active_map=None if is_observed else active_map,
        map_effect=None if active_map is None else _effect(results.get(EFFECT), active_map, config),
        versions=[
            ("calibrant", version("calibrant")),
            ("Code", CODE_VERSION),
            ("State of the window", str(measured.get("state_version", "unknown"))),
            ("Model", f"revision {config.revision}"),
        ],
    )


def _effect(
    found: dict[str, Any] | None, active_map: dict[str, Any], config: ModelConfig
) -> dict[str, Any] | None:
    """Return what the promoted map changed, if predictions since its promotion have labels."""
    has_labels = found is not None and found["before"] is not None
    return effect_document(found, active_map, config) if has_labels else None


def _span(window: Mapping[str, str]) -> str:
    """Return the limits of a window to the minute, at most until now; a window of a model without data begins in 1970."""
    end = to_the_minute(min(window["to"], rfc3339(datetime.now(UTC))))
    is_open = window["from"] == rfc3339(datetime.fromtimestamp(0, UTC))
    return f"all until {end}" if is_open else f"{to_the_minute(window['from'])} to {end}"


def _ratings(metrics: Mapping[str, Any]) -> dict[str, int]:
    """Return how many predictions have one rating, and how many more."""
    one, labelled = metrics.get("n_one_rating"), metrics.get("n_labelled")
    if one is None or not labelled:
        return {}
    return {name: n for name, n in (("1", int(one)), ("2 or more", int(labelled - one))) if n}


def _readers_missing(found: Mapping[str, Any], config: ModelConfig) -> str | None:
    """Return why readers are not compared, and what compares them."""
    detail: str | None = found.get("detail")
    is_long = config.task == SEGMENTATION and found.get("reason") == "too_many_records"
    return of_segmentation(str(detail)) if is_long else detail


def _readers(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the raters of a window, if several are named."""
    by_rater, dice = found.get("by_rater") or {}, found.get("dice_by_rater") or {}
    if len(by_rater) < 2:
        return []
    return [
        {
            "name": name,
            "n_ratings": each["n"],
            "agreement": each["agreement"],
            "kappa": each["kappa"],
            "dice": each.get("dice"),
            "metrics": {"ece": {"value": each["value"]}}
            | ({"dice": dice[name]} if name in dice else {}),
        }
        for name, each in by_rater.items()
    ]


def _cases(found: Mapping[str, Any] | None) -> list[ExtraTable]:
    """Return the stored cases as a table, those with the lowest Dice first; none without cases."""
    rows = worst_first(
        each | {"dice": each["dice"]["mean"], "ece": each["ece"]["mean"]}
        for each in (found or {}).get("cases") or ()
    )
    if not rows:
        return []
    caption = CASES
    if len(rows) > MAX_CASES:
        caption += f": {MAX_CASES} of {len(rows):,}; GET cases has all, also as CSV"
    texts = [
        [each["case"], *map(plain_number, (each["dice"], each["ece"])), f"{each['weight']:,.0f}"]
        for each in rows[:MAX_CASES]
    ]
    return [(caption, ["Case", "Dice", "ECE, mean over classes", "Ratings"], texts)]


def _left_out(metrics: Mapping[str, Any], subgroups: Sequence[str]) -> list[LeftOut]:
    rows = []
    unlabelled = (metrics.get("n_predictions") or 0) - (metrics.get("n_labelled") or 0)
    if metrics.get("histograms"):
        n_in_histograms = max(each["n_predictions"] or 0 for each in metrics["histograms"])
        why = "they are in the binned metrics of their kind only."
        rows.append(LeftOut("predictions received as plain histograms", int(n_in_histograms), why))
        unlabelled -= int(n_in_histograms)
    if unlabelled > 0:
        rows.append(LeftOut("predictions without a label", unlabelled, "no label has arrived."))
    if subgroups:
        rows.append(LeftOut(SUBGROUPS, len(subgroups), _why_left_out(subgroups)))
    return rows


def _why_left_out(subgroups: Sequence[str]) -> str:
    named = ", ".join(subgroups[:MAX_NAMES])
    if len(subgroups) > MAX_NAMES:
        named += f" and {len(subgroups) - MAX_NAMES} more"
    key = subgroups[0].partition(":")[0]
    return (
        f"{named}. One report computes a limited number, those with data in most time slices first. For the others, add "
        f"subgroups={_quoted(subgroups[0])} (several with commas) to the request of a report, or read GET metrics?by={key}."
    )


def _quoted(name: str) -> str:
    """Return a subgroup as the parameter `subgroups` reads it."""
    if re.fullmatch(SUBGROUP_NAME, name) and not name.startswith('"'):
        return name
    return '"' + name.replace('"', '""') + '"'
