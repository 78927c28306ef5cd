"""Figures of a model's page: reliability with the band of a calibrated model, evidence, temperature, slices, sparkline."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup

from calibrant.calibrators.temperature.drawn_curve import drawn_curve
from calibrant.core.documents import Result, Row
from calibrant_server.service.pages.numbers import day, interval, number, per_cent
from calibrant_server.service.pages.svg import Point, Scale, SvgFigure, ticks

# Bins with fewer independent units are drawn as points that no line joins.
MIN_JOINED = 5.0
NORMAL_95 = 1.959963984540054
# A value beyond this multiple of the threshold is an arrow at the upper end.
CLIPPED_AT = 2.0
# Above this share in one bin, the other bins would not be visible on a linear axis.
MAX_SHARE_OF_ONE_BIN = 0.75
WIDTH = 420.0
# Characters of a slice's value that fit left of its dot, in the larger letters of a narrow screen too.
MAX_VALUE = 15
LEFT, RIGHT = 46.0, 408.0
SCORE_NAMES = {"top_label": "confidence of the top class", "positive": "probability of class 1"}


def reliability_chart(table: Result, error: Result | None) -> Markup:
    """Return the reliability diagram with the 95 % band of a calibrated model, above the distribution of scores."""
    rows = filled_rows(table)
    y_name = "accuracy" if table.get("scope") == "top_label" else "observed frequency"
    about = f"{y_name.capitalize()} over confidence in {len(rows)} bins with data. {'. '.join(_error_lines(error))}"
    figure = SvgFigure("reliability", (WIDTH, 468), "Reliability diagram", about)
    x, y = Scale((0, 1), (LEFT, RIGHT)), Scale((0, 1), (346, 42))
    _square(figure, x, y, y_name)
    _draw_band(figure, rows, x, y)
    figure.line((x(0), y(0)), (x(1), y(1)), "diagonal")
    for row in rows:
        low, high = row["interval"]
        figure.line(
            (x(row["mean_confidence"]), y(low)), (x(row["mean_confidence"]), y(high)), "bar"
        )
    for run in joined_runs(rows):
        figure.path([(x(each["mean_confidence"]), y(each["accuracy"])) for each in run], "curve")
    for row in rows:
        style = "dot" if row["n_effective"] >= MIN_JOINED else "dot few"
        tip = f"confidence {per_cent(row['mean_confidence'])}, {y_name} {per_cent(row['accuracy'])}, n = {row['n_predictions']:,}"
        figure.dot((x(row["mean_confidence"]), y(row["accuracy"])), 4, style, tip)
    for i, line in enumerate(_error_lines(error)):
        figure.text((LEFT, 14 + 16.0 * i), line, "note")
    _draw_shares(figure, rows, x)
    figure.text(((LEFT + RIGHT) / 2, 462), _score_name(table), "axis", "middle")
    return figure.markup()


def filled_rows(table: Result) -> list[Row]:
    """Return the bins that hold labelled predictions."""
    return [row for row in table.get("table") or [] if row.get("mean_confidence") is not None]


def band_of(row: Row) -> tuple[float, float]:
    """Return between which shares 95 % of calibrated models with this bin's independent units are."""
    p = row["mean_confidence"]
    reach = NORMAL_95 * math.sqrt(max(p * (1 - p), 0) / max(row["n_effective"], 1.0))
    return max(0.0, p - reach), min(1.0, p + reach)


def joined_runs(rows: list[Row]) -> list[list[Row]]:
    """Return runs of neighbouring bins that a line may join: each has enough independent units."""
    runs: list[list[Row]] = [[]]
    for row in rows:
        if row["n_effective"] >= MIN_JOINED:
            runs[-1].append(row)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if len(run) > 1]


def _draw_band(figure: SvgFigure, rows: list[Row], x: Scale, y: Scale) -> None:
    for row in rows:
        low, high = band_of(row)
        left, right = x(row["lower"]), x(row["upper"])
        figure.rectangle((left, y(high)), right - left, y(low) - y(high), "null")


def _square(figure: SvgFigure, x: Scale, y: Scale, y_name: str) -> None:
    for tick in (0, 0.2, 0.4, 0.6, 0.8, 1.0):
        figure.line((LEFT, y(tick)), (RIGHT, y(tick)), "grid")
        figure.line((x(tick), y(0)), (x(tick), y(1)), "grid")
        figure.text((LEFT - 6, y(tick) + 4), f"{tick:g}", "tick", "end")
        figure.text((x(tick), 442), f"{tick:g}", "tick", "middle")
    figure.sideways((13, (y(0) + y(1)) / 2), y_name, "axis")


def _draw_shares(figure: SvgFigure, rows: list[Row], x: Scale) -> None:
    """Draw the share of the data in each bin; on a logarithmic axis if one bin holds nearly all."""
    top, bottom = 366.0, 424.0
    total = sum(row["weight"] for row in rows)
    if not total:
        return
    shares = [row["weight"] / total for row in rows]
    is_log = max(shares) > MAX_SHARE_OF_ONE_BIN and len(shares) > 1
    least = 10.0 ** math.floor(math.log10(min(shares)))
    scale = (
        Scale((math.log10(least / 2), 0), (bottom, top))
        if is_log
        else Scale((0, max(shares)), (bottom, top))
    )
    for row, share in zip(rows, shares, strict=True):
        height = bottom - scale(math.log10(share) if is_log else share)
        width = x(row["upper"]) - x(row["lower"])
        figure.rectangle((x(row["lower"]) + 0.5, bottom - height), width - 1, height, "share")
    figure.line((LEFT, bottom), (RIGHT, bottom), "base")
    ends = (least, 1.0) if is_log else (0.0, max(shares))
    for value in ends:
        place = scale(math.log10(value) if is_log else value)
        figure.text((LEFT - 6, place + 4), _share(value), "tick", "end")
    # Between the axes: a full first bin would cover it below.
    name = "share of the data, log" if is_log else "share of the data"
    figure.text((LEFT + 4, top - 6), name, "axis")


def _share(value: float) -> str:
    return f"{100 * value:.0f}%" if value >= 0.01 or value == 0 else f"{100 * value:g}%"


def _error_lines(error: Result | None) -> list[str]:
    """Return the calibration error with its interval, and its null reference."""
    if not error or error.get("value") is None:
        return []
    bounds = interval(error.get("interval"))
    lines = [f"ECE {number(error['value'])}" + (f", 95 % interval {bounds}" if bounds else "")]
    if error.get("null_q95") is not None:
        mean, most = number(error["null_mean"]), number(error["null_q95"])
        lines.append(f"A calibrated model: {mean}, 95 % below {most}")
    return lines


def _score_name(table: Result) -> str:
    scope = str(table.get("scope", ""))
    return SCORE_NAMES.get(scope, f"probability of {scope.replace(':', ' ')}")


def evidence_chart(drift: Result) -> Markup:
    """Return the evidence of a change by cohort, clipped at twice the level of an alarm."""
    rows = evidence_rows(drift)
    threshold = rows[-1]["threshold_log10"]
    low = min(0.0, *(row["evidence_log10"] for row in rows))
    low, high = max(low, -threshold), CLIPPED_AT * threshold
    n_clipped = sum(row["evidence_log10"] > high for row in rows)
    about = f"{len(rows)} cohorts from {day(rows[0]['from'])} to {day(rows[-1]['from'])}. {clipped_text(n_clipped)}"
    figure = SvgFigure("evidence", (WIDTH, 250), "Evidence of a change by cohort", about)
    x, y = Scale((0, max(len(rows) - 1, 1)), (LEFT + 8, RIGHT - 8)), Scale((low, high), (206, 16))
    for tick in ticks(low, high, 5):
        figure.line((LEFT, y(tick)), (RIGHT, y(tick)), "grid")
        figure.text((LEFT - 6, y(tick) + 4), f"{tick:g}", "tick", "end")
    start = drift.get("start_of_change")
    if start:
        first = next((i for i, row in enumerate(rows) if row["from"] >= start), None)
        if first is not None:
            figure.rectangle(
                (x(first), y(high)), x(len(rows) - 1) - x(first) + 8, y(low) - y(high), "change"
            )
            figure.text((x(first) + 4, y(low) - 6), "since the change", "note")
    figure.line((LEFT, y(threshold)), (RIGHT, y(threshold)), "threshold")
    figure.text((LEFT + 4, y(threshold) - 5), "level of an alarm", "note")
    for run in runs_inside([row["evidence_log10"] for row in rows], high):
        figure.path([(x(i), y(rows[i]["evidence_log10"])) for i in run], "curve")
    for i, row in enumerate(rows):
        tip = f"{day(row['from'])}: {statistic_text(row['evidence_log10'])}"
        if row["evidence_log10"] > high:
            figure.arrow((x(i), y(high) - 4), "arrow")
        else:
            figure.dot((x(i), y(row["evidence_log10"])), 3, "dot", tip)
    step = max(1, -(-len(rows) // 4))
    for i in range(0, len(rows), step):
        figure.text((x(i), 224), day(rows[i]["from"]), "tick", "start" if i == 0 else "middle")
    figure.sideways((13, (y(low) + y(high)) / 2), "−log₁₀ p of a change", "axis")
    return figure.markup()


def runs_inside(values: list[float], high: float) -> list[list[int]]:
    """Return runs of points that a line joins: those inside the axis, and the first outside on either side.

    >>> runs_inside([0, 1, 9, 9, 9, 1], high=2)
    [[0, 1, 2], [4, 5]]
    """
    runs: list[list[int]] = [[]]
    for i, value in enumerate(values):
        near = values[max(i - 1, 0) : i + 2]
        if value <= high or min(near) <= high:
            runs[-1].append(i)
        if value > high and runs[-1]:
            runs.append([i] if i + 1 < len(values) and values[i + 1] <= high else [])
    return [run for run in runs if len(run) > 1]


def evidence_rows(drift: Result) -> list[Row]:
    """Return the recent cohorts, oldest first."""
    return [row for row in drift.get("recent") or [] if row.get("evidence_log10") is not None]


def clipped_text(n_clipped: int) -> str:
    """Return the sentence about values above the axis."""
    if not n_clipped:
        return ""
    cohorts = "cohort is" if n_clipped == 1 else "cohorts are"
    return f"The value of {n_clipped} {cohorts} above twice the level: arrows."


def statistic_text(log10: float) -> str:
    """Return a p-value, given −log₁₀ of it."""
    return f"p = {10.0**-log10:.2g}" if log10 < 6 else "p below one in a million"


def temperature_chart(fitted: Result) -> Markup | None:
    """Return the negative log-likelihood along the temperature, before and after; None without a curve."""
    curve = fitted.get("curve") or {}
    best = fitted.get("temperature")
    pairs = [
        (t, loss)
        for t, loss in zip(curve.get("temperature") or [], curve.get("nll") or [], strict=False)
        if loss is not None
    ]
    if best is None or len(pairs) < 2:
        return None
    low, high = min(0.5, best / 2), max(2.0, best * 3)
    before, after = fitted["before"]["nll"], fitted["after"]["nll"]
    pairs = sorted(
        [pair for pair in pairs if low <= pair[0] <= high] + [(1.0, before), (best, after)]
    )
    pairs = _smooth(pairs)
    top = min(max(loss for _, loss in pairs), after + 4 * max(before - after, 0.02 * after))
    least = after - 0.08 * (top - after)
    about = f"Lowest at temperature {number(best)}: {number(after)} instead of {number(before)} at temperature 1."
    figure = SvgFigure("temperature", (WIDTH, 250), "Log loss along the temperature", about)
    x = Scale((math.log(low), math.log(high)), (LEFT, RIGHT))
    y = Scale((least, top), (206, 16))
    for tick in ticks(least, top, 5):
        figure.line((LEFT, y(tick)), (RIGHT, y(tick)), "grid")
        figure.text((LEFT - 6, y(tick) + 4), f"{tick:g}", "tick", "end")
    for tick in (0.25, 0.5, 1, 2, 4, 8, 16):
        if low <= tick <= high:
            figure.line((x(math.log(tick)), 16), (x(math.log(tick)), 206), "grid")
            figure.text((x(math.log(tick)), 224), f"{tick:g}", "tick", "middle")
    bounds = fitted.get("interval")
    if bounds and None not in bounds:
        left, right = x(math.log(bounds[0])), x(math.log(bounds[1]))
        figure.rectangle((left, 16), right - left, 190, "change")
    figure.path([(x(math.log(t)), y(loss)) for t, loss in pairs if loss <= top], "curve")
    figure.dot((x(0), y(before)), 5, "dot before", "before: temperature 1")
    figure.dot((x(math.log(best)), y(after)), 5, "dot after", f"after: temperature {number(best)}")
    _name_losses(figure, (x(0), y(before)), (x(math.log(best)), y(after)), before, after)
    figure.text(((LEFT + RIGHT) / 2, 244), "temperature", "axis", "middle")
    figure.text((LEFT, 11), "log loss (nats)", "axis")
    return figure.markup()


def _name_losses(
    figure: SvgFigure, first: Point, second: Point, before: float, after: float
) -> None:
    """Write both losses at their dots: as one text where they are equal, one above the other where the dots are near."""
    if number(before) == number(after):
        text = f"before and after {number(after)}"
        figure.text((second[0], second[1] - 14), text, "note", "middle")
        return
    is_near = abs(second[0] - first[0]) < 110 and abs(second[1] - first[1]) < 16
    figure.text(
        (first[0] + 8, first[1] - (28 if is_near else 6)), f"before {number(before)}", "note"
    )
    figure.text((second[0], second[1] - 10), f"after {number(after)}", "note", "middle")


def _smooth(pairs: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the curve through its points, closely enough to look smooth; temperatures are unique."""
    along = np.geomspace(pairs[0][0], pairs[-1][0], 120)
    curve = drawn_curve("nll", dict(pairs), along)
    return [(float(t), float(loss)) for t, loss in zip(along, curve, strict=True)]


def slices_chart(rows: list[Row]) -> Markup:
    """Return calibration errors of slices as dots with intervals and a tick where 95 % of calibrated models are below."""
    known = [row for row in rows if row["value"] is not None]
    highest = max(
        *(
            max(row["value"], (row["interval"] or [0, 0])[1] or 0, row["null_q95"] or 0)
            for row in known
        ),
        0.01,
    )
    height = 40.0 + 26 * len(known)
    about = ". ".join(f"{row['name']}: {number(row['value'])}" for row in known)
    figure = SvgFigure("slices", (WIDTH, height), "Calibration error by slice", about)
    x = Scale((0, 1.05 * highest), (130, RIGHT))
    for tick in ticks(0, 1.05 * highest, 5):
        figure.line((x(tick), 8), (x(tick), height - 26), "grid")
        figure.text((x(tick), height - 10), f"{tick:g}", "tick", "middle")
    for i, row in enumerate(known):
        place = 22.0 + 26 * i
        figure.text((122, place + 4), _short_value(row["name"]), "tick", "end")
        if interval(row["interval"]):
            figure.line((x(row["interval"][0]), place), (x(row["interval"][1]), place), "bar")
        if row["null_q95"] is not None:
            figure.line(
                (x(row["null_q95"]), place - 9), (x(row["null_q95"]), place + 9), "nulltick"
            )
        figure.dot((x(row["value"]), place), 4.5, "dot", f"{row['name']}: {number(row['value'])}")
    return figure.markup()


def _short_value(slice_: str) -> str:
    """Return the value of a slice, short enough for its place: the heading of the figure has the name of its slices.

    >>> _short_value("site:A"), _short_value("scanner:MAGNETOM-Vida-3T:Station-12")
    ('A', 'MAGNETOM-Vida-…')
    """
    value = slice_.partition(":")[2] or slice_
    return value if len(value) <= MAX_VALUE else value[: MAX_VALUE - 1] + "…"


def sparkline(name: str, shares: list[float]) -> Markup:
    """Return the evidence of a change at the last cohorts relative to its level, clipped at twice it."""
    over = shares[-1] >= 1
    about = f"Last of {len(shares)} cohorts: {'above' if over else 'below'} the level"
    figure = SvgFigure(name, (96, 26), about)
    x, y = Scale((0, max(len(shares) - 1, 1)), (3, 93)), Scale((-0.2, CLIPPED_AT), (24, 3))
    figure.line((3, y(1)), (93, y(1)), "threshold")
    figure.path([(x(i), y(share)) for i, share in enumerate(shares)], "curve")
    figure.dot((x(len(shares) - 1), y(shares[-1])), 2.5, "dot after" if over else "dot")
    return figure.markup()
