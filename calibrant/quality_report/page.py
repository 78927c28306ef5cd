"""The page: tables and sentences of the contents, written by one template that escapes every value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from calibrant.core.extras import pip_install
from calibrant.core.label_policies import POLICY_TEXTS
from calibrant.figures.numbers import (
    MISSING,
    above_interval_note,
    interval_text,
    percent,
    plain_number,
    to_the_minute,
)
from calibrant.figures.reasons import reason_words
from calibrant.metrics import is_error, slug_of, title_of
from calibrant.quality_report.assumptions import assumptions, unit_count
from calibrant.quality_report.chance import null_texts, result_title
from calibrant.quality_report.contents import SUBGROUPS, ReportContents
from calibrant.quality_report.decisions import flagged_note, flagged_sentences
from calibrant.quality_report.readers import odd_reader_sentence, pair_tables, reader_rows
from calibrant.quality_report.service_rows import active_map_rows, alarm_rows, loss_rows
from calibrant.quality_report.smallest_errors import detectable_text, places_of
from calibrant.quality_report.verdicts import (
    WORDS,
    assessment,
    brier_note,
    errors_of,
    interval_or_reason,
    main_metric,
    main_verdict,
    reason_text,
    subgroup_sentence,
    verdict_of,
)

if TYPE_CHECKING:
    from jinja2 import Template

PERIODS = {
    "now": "This period",
    "in_30_days": "After 30 more days",
    "in_90_days": "After 90 more days",
}
# Of longer tables the first rows are shown, the others in a fold.
MAX_ROWS, N_OF_MANY = 15, 10
BRIER = " (sum over classes)"
NUMBER = re.compile(rf"−?\d[\d,]*(\.\d+)?|{MISSING}")
NOT_A_DEVICE = (
    "Calibrant is not a medical device. This report describes measurements. It is no advice on the care of a patient, and it "
    "does not replace the evaluation that regulations require."
)


def page(contents: ReportContents) -> str:
    """Return a report as one HTML page that needs nothing from elsewhere.

    Raises
    ------
    ImportError
        Jinja2 is not installed; the extra `report` brings it.
    """
    try:
        from markupsafe import Markup

        from calibrant.quality_report.figures import figures

        template = load_report_template()
        drawn = figures(contents)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("calibrant"):
            raise
        raise ImportError(
            f"Reports need {error.name}, which is not installed. Install the extra: {pip_install('report')}"
        ) from error
    metrics = [_metric_row(key, each, contents) for key, each in contents.estimates.items()]
    subgroups = _subgroups(contents)
    style = files("calibrant.quality_report").joinpath("style.css").read_text("utf-8")
    return template.render(
        contents=contents,
        written_at=contents.generated_at and to_the_minute(contents.generated_at),
        style=Markup(style),
        verdict=main_verdict(contents),
        data=[*contents.subject, *_data(contents)],
        ratings=list(contents.ratings_per_prediction.items()),
        metrics=metrics,
        brier_note=brier_note(contents),
        above_note=above_interval_note(errors_of(contents.estimates)),
        subgroups_above_note=above_interval_note(
            error
            for each in contents.subgroups
            for error in errors_of(each.metrics.get("metrics") or {})
        ),
        has_null=any(row["null_q95"] != MISSING for row in metrics),
        protocol=_protocol(contents),
        detectable=[
            (
                PERIODS.get(period, period.replace("_", " ")),
                detectable_text(found, places_of(contents)),
            )
            for period, found in contents.detectable.items()
        ],
        temperature=_temperature(contents.temperature, contents.classes),
        subgroups=subgroups,
        subgroup_sentence=subgroup_sentence(contents),
        subgroups_left_out=any(each.what == SUBGROUPS for each in contents.left_out),
        subgroups_have_null=any(row["null_q95"] != MISSING for row in subgroups),
        flagged=flagged_sentences(contents),
        flagged_note=flagged_note(contents),
        readers=reader_rows(contents.readers),
        odd_reader=odd_reader_sentence(contents),
        comparison=_comparison(contents.comparison),
        figures=drawn,
        extra_tables=[
            _aligned(*_without_empty(*table))
            for table in (*pair_tables(contents.readers), *contents.extra_tables)
        ],
        max_rows=MAX_ROWS,
        n_of_many=N_OF_MANY,
        assumptions=assumptions(contents),
        is_of_a_service=contents.drift is not None or contents.active_map is not None,
        active_map=active_map_rows(contents.active_map, contents.classes),
        alarm=alarm_rows(contents.drift),
        not_a_device=NOT_A_DEVICE,
        level=percent(contents.ci),
    )


@cache
def load_report_template() -> Template:
    """Return the compiled template of the page; a server compiles it when it starts."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("calibrant.quality_report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_unbroken,
    )
    return environment.get_template("report.html")


def _unbroken(value: Any) -> Any:
    """Return a text without a line break between a number and its sign of per cent."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


def _data(contents: ReportContents) -> list[tuple[str, str]]:
    """Return what was evaluated, in numbers."""
    rows = []
    if contents.n_cases is not None:
        received = contents.n_cases_received
        is_part = received is not None and received != contents.n_cases
        text = f"{contents.n_cases:,} of {received:,}" if is_part else f"{contents.n_cases:,}"
        rows.append(("Cases", text))
    is_named = contents.metrics.get("unit_source") == "named"
    named = "Patients" if contents.unit == "patient" else "Patients or other units"
    unit = named if is_named else "Units (none named: each prediction is one)"
    rows.append((unit, unit_count(contents)))
    for label, name in (
        ("Predictions", "n_predictions"),
        ("Predictions with a label", "n_labelled"),
        ("Ratings", "n_ratings"),
    ):
        n = contents.count(name)
        rows.append((label, MISSING if n is None else f"{n:,}"))
    return rows


def _protocol(contents: ReportContents) -> list[tuple[str, str]]:
    """Return how the results were computed."""
    values, policy = contents.metrics, str(contents.metrics.get("raters") or "pooled")
    key = main_metric(contents.estimates)
    rows = [
        ("Main metric", title_of(key) if key else MISSING),
        (
            "Tolerance, set beforehand",
            "none" if contents.tolerance is None else f"{contents.tolerance:g}",
        ),
        ("Score", contents.score or MISSING),
        ("Label policy", f"{policy}: {POLICY_TEXTS.get(policy, '')}"),
        ("Level of the intervals", percent(contents.ci)),
    ]
    bins = values.get("bins") or (contents.reliability or {}).get("bins")
    return rows if bins is None else [*rows, ("Bins", f"{bins}")]


def _metric_row(key: str, each: Mapping[str, Any], contents: ReportContents) -> dict[str, str]:
    verdict = ""
    null_mean, null_q95, above = null_texts(key, each)
    if contents.tolerance is not None and is_error(slug_of(key)):
        verdict = WORDS[verdict_of(each, contents.tolerance)]
    return {
        "title": result_title(key, each) + (BRIER if slug_of(key) == "brier" else ""),
        "value": plain_number(each.get("value")),
        "interval": interval_or_reason(each),
        "null_mean": null_mean,
        "null_q95": null_q95,
        "above": above,
        "verdict": verdict,
    }


def _temperature(fitted: Mapping[str, Any] | None, classes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the fitted temperature with what it would change."""
    if fitted is None:
        return []
    if fitted.get("temperature") is None:
        return [("Temperature", f"none: {reason_text(fitted)}")]
    rows = [
        ("Temperature", plain_number(fitted["temperature"])),
        ("Assessment", assessment(fitted)),
    ]
    if fitted.get("interval") is not None:
        rows.insert(1, ("Interval", interval_text(fitted["interval"])))
    return [*rows, *loss_rows(fitted, classes)]


def _subgroups(contents: ReportContents) -> list[dict[str, str]]:
    rows = []
    for group in contents.subgroups:
        estimates = group.metrics.get("metrics") or {}
        key = main_metric(estimates)
        each = estimates[key] if key else {"value": None, "reason": "no_data"}
        row = _metric_row(key or "", each, contents)
        n, units = (group.metrics.get(name) for name in ("n_labelled", "n_units"))
        rows.append(
            row
            | {
                "name": group.name,
                "n": MISSING if n is None else f"{n:,}",
                "units": MISSING if units is None else f"{units:,}",
            }
        )
    return rows


def _without_empty(
    caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[str, list[str], list[list[str]]]:
    """Return a table without the columns in which no row has a value."""
    kept = [place for place in range(len(header)) if any(row[place] != MISSING for row in rows)]
    return (
        caption,
        [header[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
    )


def _aligned(
    caption: str, header: list[str], rows: list[list[str]]
) -> tuple[str, list[tuple[str, bool]], list[list[tuple[str, bool]]]]:
    """Return a table whose cells state whether their column has numbers only, which are aligned to the right."""
    are_numbers = [
        all(NUMBER.fullmatch(row[place]) for row in rows) for place in range(len(header))
    ]
    return (
        caption,
        list(zip(header, are_numbers, strict=True)),
        [list(zip(row, are_numbers, strict=True)) for row in rows],
    )


def _comparison(found: Mapping[str, Any] | None) -> list[dict[str, str]]:
    if found is None:
        return []
    rows = []
    for key, each in found["metrics"].items():
        interval = each.get("difference_interval")
        why = reason_words(each.get("difference_reason"), "none")
        rows.append(
            {
                "title": title_of(key),
                "value": plain_number(each.get("value")),
                "against": plain_number(each.get("against")),
                "difference": plain_number(each.get("difference")),
                "interval": why if interval is None else interval_text(interval),
            }
        )
    return rows
