"""Numbers, times and names as pages and figures write them, never with an exponent; and the verdict about a model in sentences."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from calibrant.core.documents import Result, Row
from calibrant.core.time_texts import length_text
from calibrant.figures.base import scope_of
from calibrant.figures.numbers import (
    interval_text,
    is_beyond_range,
    plain_number,
    plain_numbers,
    to_the_minute,
)
from calibrant.figures.reasons import reason_words
from calibrant_server.service.pages.direction import direction

MISSING = "–"
DATE = re.compile(r"\d{4}-\d\d-\d\d")
UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))
OF_WINDOWS = {
    "no_data": "No labelled prediction in this window.",
    "no_labels": "No labelled prediction in this window.",
    "not_in_histogram": "Histograms were posted, which do not carry this result.",
    "not_ready": "Still being computed. Reload the page in a few seconds.",
    "not_computed": "It could not be computed.",
    "no_records": "No prediction was sent with an id. Raters are compared on predictions with ids.",
    "no_named_raters": "No label names its rater. Send the raters of labels to compare them.",
    "no_cases": "No prediction names its case. Send the cases of predictions to see results per case.",
}


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with that many significant digits; very large and very small ones as a bound.

    >>> [number(each) for each in (0.083476, 1.0, 2.5e97, 1e-9, -0.5, None, 4788)]
    ['0.0835', '1', 'above 1,000,000', 'below 0.0001', '-0.500', '–', '4,788']
    """
    if value is None or math.isnan(value):
        return MISSING
    if abs(value) >= 1e6:
        return "above 1,000,000" if value > 0 else "below -1,000,000"
    if value != 0 and abs(value) < 1e-4:
        return "below 0.0001" if value > 0 else "above -0.0001"
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}"


def aligned(value: float | None, places: int = 3) -> str:
    """Return a number with fixed decimals, for columns that are compared.

    >>> aligned(0.525), aligned(0.00935), aligned(None)
    ('0.525', '0.009', '–')
    """
    return MISSING if value is None or math.isnan(value) else f"{value:.{places}f}"


def temperature(value: float | None) -> str:
    """Return a temperature; beyond the range in which one is looked for, no number fits.

    >>> temperature(1.517), temperature(32.0), temperature(1 / 32), temperature(None)
    ('1.52', 'beyond the range', 'beyond the range', '–')
    """
    if is_beyond_range(value):
        return "beyond the range"
    return aligned(value, 2)


def interval(bounds: list[float | None] | None) -> str:
    """Return an interval as `0.070 to 0.091`; empty if there is none."""
    if not bounds or None in bounds:
        return ""
    return interval_text(bounds)


def per_cent(share: float | None) -> str:
    """Return a share in per cent.

    >>> per_cent(0.8563), per_cent(1.0), per_cent(0.0004), per_cent(None)
    ('85.6 %', '100 %', '0.04 %', '–')
    """
    if share is None:
        return MISSING
    value = 100 * share
    return f"{value:.2f} %" if 0 < abs(value) < 0.1 else f"{value:.1f}".removesuffix(".0") + " %"


def reason(code: str | None) -> str:
    """Return the sentence of a reason code."""
    if not code:
        return "No data."
    words = reason_words(code)
    return OF_WINDOWS.get(code) or f"{words[:1].upper()}{words[1:]}."


def sentence(text: str) -> str:
    """Return a text as one sentence.

    >>> sentence("no cohort is sealed"), sentence("It failed.")
    ('No cohort is sealed.', 'It failed.')
    """
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."


def unbroken(text: str) -> Markup:
    """Return the text, escaped, without a line break in a date, or between a number and its sign of per cent.

    >>> unbroken("95 %") == "95" + chr(160) + "%"
    True
    >>> unbroken("from 2026-10-02 < now")
    Markup('from <span class="unbroken">2026-10-02</span> &lt; now')
    """
    escaped = str(escape(text)).replace(" %", "\u00a0%")
    return Markup(DATE.sub(r'<span class="unbroken">\g<0></span>', escaped))


def with_code(text: str) -> Markup:
    """Return the text, escaped, with what is between backticks as code.

    >>> with_code("run `a < b`")
    Markup('run <code>a &lt; b</code>')
    """
    parts = escape(text).split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts)
    )


def moment(text: str | None) -> str:
    """Return a time to the minute in UTC."""
    return to_the_minute(text) if text else MISSING


def setting(value: Any) -> str:
    """Return a setting's value: a text as it is, others as JSON.

    >>> setting("P3D"), setting(0.03), setting(None)
    ('P3D', '0.03', '–')
    """
    if value is None:
        return MISSING
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def day(text: str) -> str:
    """Return the day of a time."""
    return text[:10]


def ago(text: str | None, now: datetime | None = None) -> str:
    """Return how long ago a time was.

    >>> ago("2026-01-01T00:00:00Z", datetime(2026, 1, 1, 5, tzinfo=UTC))
    '5 hours ago'
    """
    if not text:
        return "never"
    elapsed = ((now or datetime.now(UTC)) - datetime.fromisoformat(text)).total_seconds()
    for unit, seconds in UNITS:
        if elapsed >= seconds:
            n = int(elapsed // seconds)
            return f"{n} {unit}{'' if n == 1 else 's'} ago"
    return "just now"


def seen(start: str | None, pane_s: int, now: datetime | None = None) -> str:
    """Return when the newest data arrived, to the precision of the start and length of their time slice.

    >>> seen("2026-01-01T05:00:00Z", 3600, datetime(2026, 1, 1, 5, 57, tzinfo=UTC))
    'in the last hour'
    >>> seen("2026-01-01T05:00:00Z", 3600, datetime(2026, 1, 1, 8, tzinfo=UTC))
    '3 hours ago'
    >>> seen("2026-01-01T05:00:00Z", 900, datetime(2026, 1, 1, 5, 1, tzinfo=UTC))
    'in the last 15 minutes'
    """
    if not start:
        return "never"
    now = now or datetime.now(UTC)
    if (now - datetime.fromisoformat(start)).total_seconds() >= pane_s:
        return ago(start, now)
    return f"in the last {length_text(pane_s).removeprefix('1 ')}"


def verdict(metrics: Result, reliability: Result, classes: list[str] | None = None) -> str:
    """Return how far confidence is from accuracy in a window, with what a calibrated model would show; the verdict is in the words."""
    error = (metrics.get("metrics") or {}).get("ece") or {}
    if error.get("value") is None:
        return f"The calibration error is not known. {reason(error.get('reason'))}"
    score = scope_of({**metrics, "classes": classes}) if metrics.get("scope") else ""
    of = f" of the {score}:" if score else ""
    measured = f"expected calibration error{of} {plain_number(error['value'])}"
    if interval(error.get("interval")):
        measured += f" (95 % interval {interval_text(error['interval'])})"
    if error.get("null_q95") is None:
        return f"{measured[0].upper()}{measured[1:]}. What chance alone would show is not known."
    mean, limit = plain_numbers([error["null_mean"], error["null_q95"]])
    null = f"By chance alone, a calibrated model would show {mean} on average, and at most {limit} in 95 % of samples"
    way = direction(reliability, per_cent) if error.get("above_null") else ""
    return f"{way}{measured[0].upper()}{measured[1:]}. {null}."


def before_map(version: int | None, drift: Result) -> str:
    """Return that the numbers are of the scores as sent, if a map is applied to them."""
    if version is None:
        return ""
    text = f"These numbers and figures describe the scores as the model sent them, before map version {version} is applied."
    return text + (" The words use the scores after it." if _is_mapped(drift) else "")


def restart(drift: Result, promotions: list[Row]) -> str:
    """Return why the evidence is shorter than the curve: a map was promoted; nothing if the alarm follows none."""
    version = drift.get("map_version")
    if version is None or not _is_mapped(drift):
        return ""
    times = [each["promoted_at"] for each in promotions if str(each["version"]) == str(version)]
    when = f" on {day(times[-1])}" if times else ""
    return (
        f"The evidence restarted when map version {version} was promoted{when}: "
        "earlier predictions stay in the curve, but no longer count for the words."
    )


def before_change(drift: Result, temperature: Result, first_at: str | None) -> str:
    """Return that a temperature of a window includes days before an open change, if it does and a correction without them is recommended.

    first_at : when the first labelled data of the page's curve begin, as RFC 3339; None if it is not known
    """
    change, step = drift.get("change") or {}, (drift.get("recommendation") or {}).get("next") or {}
    start, window = change.get("start"), temperature.get("window") or {}
    has_map = str(step.get("path", "")).endswith("/maps")
    if (
        not start
        or not has_map
        or first_at is None
        or max(window.get("from", ""), first_at) >= start
    ):
        return ""
    return "It includes days before the change; the correction recommended above does not."


def effect_sentence(effect: Result) -> str:
    """Return what a promoted map changed on the labels so far of predictions since its promotion."""
    if not effect.get("since"):
        return ""
    start = f"Predictions since {moment(effect['since'])}, the first time slice after the promotion"
    if effect.get("before") is None:
        return f"{start}: no labels yet, so what the map changed is not known."
    first, then = (effect[name]["ece"] for name in ("before", "after"))
    limit = then.get("null_q95")
    chance = f" A calibrated model would show at most {plain_number(limit)} in 95 % of samples."
    return (
        f"{start}: {effect['n']:,} labelled predictions so far. Calibration error before the map {_with_interval(first)}, after it "
        f"{_with_interval(then)}.{chance if limit is not None else ''}"
    )


def _with_interval(error: Row) -> str:
    if error.get("value") is None:
        return f"not known ({reason_words(error.get('reason'))})"
    bounds = (
        interval(error.get("interval")) and f" (95 % interval {interval_text(error['interval'])})"
    )
    return f"{plain_number(error['value'])}{bounds}"


def _is_mapped(drift: Result) -> bool:
    return bool((drift.get("detector") or {}).get("scores", "mapped") == "mapped")
