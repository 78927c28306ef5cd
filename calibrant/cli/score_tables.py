"""Tables of an evaluation in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from calibrant.cli.terminal import new_table
from calibrant.figures.numbers import (
    MISSING,
    counted,
    interval_text,
    percent,
    plain_number,
    plain_numbers,
)
from calibrant.figures.reasons import reason_words
from calibrant.metrics import is_error, slug_of, title_of
from calibrant.quality_report import ReportContents
from calibrant.quality_report.chance import null_texts, result_title
from calibrant.quality_report.decisions import flagged_sentences
from calibrant.quality_report.smallest_errors import (
    detectable_errors,
    places_of,
    unknown_detectable,
)
from calibrant.quality_report.verdicts import (
    WORDS,
    assessment,
    brier_note,
    interval_or_reason,
    main_verdict,
    reason_text,
    subgroup_sentence,
    verdict_of,
)

COLOURS = {
    "within_tolerance": "green",
    "on_average": "yellow",
    "outside": "red",
    "not_shown": "yellow",
    "none": "none",
}


def show(contents: ReportContents, console: Console) -> None:
    """Print what was evaluated, the metrics, the verdict and the temperature."""
    for name, text in contents.subject:
        console.print(Text(f"{name}: {text}"))
    console.print(Text(_counts(contents)))
    for each in contents.left_out:
        console.print(Text(f"Left out: {each.n:,} {each.what}: {each.why}"))
    console.print(_metrics(contents))
    if (note := brier_note(contents)) is not None:
        console.print(Text(note))
    verdict = main_verdict(contents)
    console.print(Text(verdict.headline, style=f"bold {COLOURS[verdict.state]}"))
    for sentence in (*verdict.sentences, *verdict.details):
        console.print(Text(sentence))
    for sentence in flagged_sentences(contents):
        console.print(Text(sentence))
    if contents.tolerance is None:
        console.print(Text("To set a tolerance of 0.05: --tolerance 0.05"))
    if "now" in contents.detectable:
        for line in _detectable(contents.detectable["now"], places_of(contents)):
            console.print(Text(line))
    console.print(
        Text(_temperature(contents.temperature, "bin_edges" in (contents.reliability or {})))
    )
    if contents.subgroups:
        console.print(_subgroups(contents))
        console.print(Text(subgroup_sentence(contents) or ""))
    if contents.comparison is not None:
        console.print(_comparison(contents.comparison))
    for caption, header, rows in contents.extra_tables if contents.compat is not None else ():
        console.print(_extra(caption, header, rows))


def _detectable(found: Mapping[str, Any], places: Sequence[float]) -> list[str]:
    why = unknown_detectable(found)
    if why is not None:
        return [f"Smallest detectable error: not known ({why})."]
    errors = detectable_errors(found, places)
    if not errors:
        return ["These data reveal no error of any size reliably."]
    return [
        "Smallest errors that these data reveal in 80 % of samples:",
        *(f"  {each}" for each in errors),
    ]


def _extra(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = new_table(header, title=caption)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _counts(contents: ReportContents) -> str:
    n, units = contents.count("n_labelled"), contents.count("n_units")
    ratings = contents.count("n_ratings")
    text = f"{counted(n, 'labelled prediction')}, {counted(ratings, 'rating')}"
    if contents.metrics.get("unit_source") == "named":
        return f"{text}, {counted(units, 'unit')}."
    return f"{text}; each prediction counts as independent (name the patient with --unit)."


def _metrics(contents: ReportContents) -> Table:
    has_null = any(each.get("null_mean") is not None for each in contents.estimates.values())
    names = ["Metric", "Value", f"{percent(contents.ci)} interval"]
    names += ["Calibrated model:\nmean and 95 % limit"] if has_null else []
    names += [] if contents.tolerance is None else [f"Tolerance {contents.tolerance:g}"]
    table = new_table(names, numbers=("Value",))
    for key, each in contents.estimates.items():
        cells: list[Text | str] = [
            Text(result_title(key, each)),
            plain_number(each.get("value")),
            _interval(each),
        ]
        if has_null:
            cells.append(_null(key, each))
        if contents.tolerance is not None:
            cells.append(_verdict(key, each, contents.tolerance))
        table.add_row(*cells)
    return table


def _interval(each: Mapping[str, Any]) -> Text:
    is_none = each.get("value") is not None and each.get("interval") is None
    return Text(interval_or_reason(each), style="dim" if is_none else "")


def _null(key: str, each: Mapping[str, Any]) -> Text:
    mean, limit, above = null_texts(key, each)
    if mean == MISSING:
        return Text(MISSING)
    return Text(f"{mean}, {limit}{'  above' if above == 'above' else ''}")


def _verdict(key: str, each: Mapping[str, Any], tolerance: float) -> Text:
    if not is_error(slug_of(key)):
        return Text("")
    state = verdict_of(each, tolerance)
    return Text(WORDS[state], style=COLOURS[state])


def _temperature(fitted: Mapping[str, Any] | None, has_own_edges: bool) -> str:
    if fitted is None or fitted.get("temperature") is None:
        return f"Temperature: none: {reason_text(fitted or {})}."
    text = f"Temperature: {plain_number(fitted['temperature'])}"
    if fitted.get("interval") is not None:
        text += f" ({interval_text(fitted['interval'])})"
    before, after = (fitted.get(name) or {} for name in ("before", "after"))
    if before.get("ece") is not None and after.get("ece") is not None:
        change = " to ".join(plain_numbers([before["ece"], after["ece"]]))
        bins = f"ECE of {fitted['bins']} bins" if has_own_edges else "ECE"
        text += f". Dividing the logits by it takes the {bins} of the same data from {change}"
    bounds = fitted.get("interval") or (2.0, 2.0)
    if fitted.get("verdict") not in (None, "ok") or bounds[0] <= 1.0 <= bounds[1]:
        text += f". {assessment(fitted)}"
    return text + "."


def _subgroups(contents: ReportContents) -> Table:
    errors = [group.metrics["metrics"]["ece"] for group in contents.subgroups]
    has_null = any(each.get("null_mean") is not None for each in errors)
    names = ["Subgroup", "Labelled", "ECE", "Interval"]
    names += ["Calibrated model"] if has_null else []
    names += [] if contents.tolerance is None else ["Verdict"]
    table = new_table(names, numbers=("Labelled", "ECE"), title="Subgroups")
    for group, each in zip(contents.subgroups, errors, strict=True):
        n = f"{group.metrics['n_labelled']:,}"
        cells: list[Text | str] = [
            Text(group.name),
            n,
            plain_number(each["value"]),
            _interval(each),
        ]
        if has_null:
            cells.append(_null("ece", each))
        if contents.tolerance is not None:
            cells.append(_verdict("ece", each, contents.tolerance))
        table.add_row(*cells)
    return table


def _comparison(found: Mapping[str, Any]) -> Table:
    title = Text(f"Comparison with {found['name']}")
    numbers = ("This", "Other", "Difference")
    table = new_table(("Metric", *numbers, "Interval of the difference"), numbers, title)
    for key, each in found["metrics"].items():
        interval = each.get("difference_interval")
        shown = (
            reason_words(each.get("difference_reason"), "none")
            if interval is None
            else interval_text(interval)
        )
        values = [plain_number(each.get(name)) for name in ("value", "against", "difference")]
        table.add_row(Text(title_of(key)), *values, Text(shown))
    return table
