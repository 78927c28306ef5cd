"""Metrics as they are requested: a slug with options in brackets, such as `lp_ece(order=3)`.

A request has one canonical key: options sorted by name, the metric's own defaults dropped, numbers in their shortest
form. Options shared by several metrics (`bins`, `scope`, ...) may be written in the brackets too, where they override the
shared value; they have no fixed default and are never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from calibrant.core.errors import CalibrationInputError
from calibrant.core.label_policies import POLICIES
from calibrant.core.query import BINNINGS, MAX_BINS, TIES, Option, PaneQuery
from calibrant.segmentation.case_options import MEMBERSHIP

if TYPE_CHECKING:
    from calibrant.metrics.metric import Metric

Value = str | int | float
REQUEST = re.compile(r"([^\s(),=]{1,60})\s*(?:\(([^()]*)\))?")
MAX_REQUESTS = 100
BIN_EDGES = "bin_edges"
RATERS = Option("raters", "pooled", "Label policy.", allowed=tuple(POLICIES))
SHARED: dict[str, Option] = {
    option.name: option
    for option in (
        Option("bins", 15, "Number of bins.", low=1, high=MAX_BINS),
        Option("binning", "equal_width", "Bins of equal width or of equal mass.", allowed=BINNINGS),
        Option(
            "edges",
            "right",
            "right: (a, b] with 0 in the first bin; left: [a, b).",
            allowed=("right", "left"),
        ),
        RATERS,
        Option(
            "scope",
            "top_label",
            "top_label, positive, class:NAME (or its index) or all; default: the model's own.",
        ),
        Option("min_count", 0.0, "Bins with fewer samples are left out.", low=0.0, high=2.0**53),
    )
}


@dataclass(frozen=True)
class MetricRequest:
    """A metric with the options that the request gives it.

    Parameters
    ----------
    metric : Metric
    options : name and value, sorted by name, without the metric's own defaults
    """

    metric: Metric
    options: tuple[tuple[str, Value], ...] = ()

    @property
    def key(self) -> str:
        """Canonical text, under which the response holds the metric."""
        listed = ",".join(f"{name}={shortest(value)}" for name, value in self.options)
        return f"{self.metric.slug}({listed})" if listed else self.metric.slug

    def binning(self, shared: str) -> str:
        """Return the binning of this metric where the query's own is `shared`."""
        fixed: str | None = getattr(self.metric, "binning", None)
        return fixed or str(dict(self.options).get("binning", shared))

    def pane_query(self, shared: PaneQuery) -> PaneQuery:
        """Return the shared query with this request's options instead of its own.

        Raises
        ------
        CalibrationInputError
            An option without effect under the binning.
        """
        if not self.options:
            return shared
        reject_without_effect(self, shared.binning)
        given = dict(self.options)
        fields: dict[str, Any] = {name: given.pop(name) for name in SHARED if name in given}
        base = (
            shared.without_edges()
            if shared.bin_edges and {"bins", "binning"} & fields.keys()
            else shared
        )
        return replace(base, **fields, options={**shared.options, **given})

    def with_option(self, name: str, value: Value) -> MetricRequest:
        """Return the request with one option set."""
        return replace(self, options=tuple(sorted({**dict(self.options), name: value}.items())))


def takes(metric: Metric, name: str) -> bool:
    """Return whether a metric reads a shared option; all read the label policy, and those that take a binning own edges."""
    if name == BIN_EDGES:
        return "binning" in metric.options
    return name == RATERS.name or name in metric.options


def reject_without_effect(
    request: MetricRequest, shared: str, pointer: str | None = "/metrics"
) -> None:
    """Reject an option that the binning makes meaningless.

    Bins of equal mass have no edges of their own. Ties are split or kept together only where such bins are cut.

    Parameters
    ----------
    shared : binning of the query
    pointer : of the parameter, for errors. None: the option is a parameter of its own.

    Raises
    ------
    CalibrationInputError
        The option, and the binning that takes it.
    """
    given, binning = dict(request.options), request.binning(shared)
    by_mass = binning == "equal_mass"
    for name, is_taken, needed in (
        ("edges", not by_mass, "equal_width"),
        (TIES.name, by_mass or "binning" not in request.metric.options, "equal_mass"),
    ):
        if name in given and not is_taken:
            detail = f"{request.key} has binning={binning}; {name} needs binning={needed}. Remove {name}."
            raise CalibrationInputError.at(pointer or f"/{name}", "not_taken", detail)


def options_of(metric: Metric) -> dict[str, Option]:
    """Return the options that are allowed in a metric's brackets: its own, and the shared ones that it takes."""
    shared = {name: option for name, option in SHARED.items() if takes(metric, name)}
    return {option.name: option for option in metric.own_options} | shared


def shared_options(binning: str) -> frozenset[str]:
    """Return the names of own options that a query's `binning` gives to all metrics: it may name a membership."""
    return frozenset({MEMBERSHIP.name}) if binning in MEMBERSHIP.allowed else frozenset()


def split(text: str) -> list[str]:
    """Split a list at the commas outside brackets.

    Examples
    --------
    >>> split("ece,kde_ece(bandwidth=0.05,leave=label)")
    ['ece', 'kde_ece(bandwidth=0.05,leave=label)']
    """
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]


def parse(text: str, pointer: str = "/metrics") -> tuple[str, dict[str, str]]:
    """Read a name and the options in its brackets.

    Raises
    ------
    CalibrationInputError
        Text of another form, or an option given twice.

    Examples
    --------
    >>> parse("lp_ece(order=3)")
    ('lp_ece', {'order': '3'})
    """
    found = REQUEST.fullmatch(text.strip())
    if found is None:
        detail = (
            f"Received {text[:60]!r}; expected a name, with options in brackets: lp_ece(order=3)."
        )
        raise CalibrationInputError.at(pointer, "metric_form", detail)
    slug, inside = found.groups()
    given: dict[str, str] = {}
    for part in inside.split(",") if inside and inside.strip() else ():
        name, _, value = (each.strip() for each in part.partition("="))
        if not name or not value:
            detail = f"Received {part.strip()[:60]!r} in {slug}(...); expected name=value."
            raise CalibrationInputError.at(pointer, "metric_form", detail)
        if name in given:
            raise CalibrationInputError.at(
                pointer,
                "repeated_option",
                f"Received the option {name[:60]} of {slug} twice; expected it once.",
            )
        given[name] = value
    return slug, given


def read_option(
    slug: str, name: str, value: str, options: Mapping[str, Option], pointer: str
) -> Value:
    """Read one option in the brackets of a name.

    Raises
    ------
    CalibrationInputError
        An option that is not taken, or a value that it does not allow.
    """
    if name not in options:
        listed = ", ".join(options) or "none"
        detail = (
            f"Received the option {name[:60]!r}, which {slug} does not take; it takes {listed}."
        )
        raise CalibrationInputError.at(pointer, "unknown_option", detail)
    try:
        return options[name].read(value)
    except CalibrationInputError as error:
        (violation,) = error.violations
        raise CalibrationInputError.at(
            pointer, violation.rule, f"{slug}: {violation.detail.rstrip('.')}."
        ) from error


def read_request(
    text: str, known: Mapping[str, Metric], pointer: str = "/metrics", shared: Collection[str] = ()
) -> MetricRequest:
    """Read one request.

    Parameters
    ----------
    text : slug, with options in brackets or without
    known : the metrics by slug
    pointer : of the parameter, for errors
    shared : names of own options that the query gives to all metrics; brackets override them, with the default too

    Raises
    ------
    CalibrationInputError
        Text of another form, an unknown slug or option, or a value that the option does not allow.
    """
    slug, written = parse(text, pointer)
    if slug not in known:
        raise CalibrationInputError.at(pointer, "unknown_metric", _unknown(slug, known))
    metric = known[slug]
    given = {
        name: read_option(slug, name, value, options_of(metric), pointer)
        for name, value in written.items()
    }
    own = {option.name: option.default for option in metric.own_options}
    kept = {
        name: value
        for name, value in given.items()
        if name in SHARED or name in shared or value != own.get(name)
    }
    return MetricRequest(metric, tuple(sorted(kept.items())))


def read_requests(
    texts: str | Iterable[str],
    known: Mapping[str, Metric],
    pointer: str = "/metrics",
    shared: Collection[str] = (),
) -> list[MetricRequest]:
    """Read requests, from a list with commas or one by one; the same request is read once.

    Raises
    ------
    CalibrationInputError
        As `read_request`, or more than 100 requests.
    """
    parts: list[Any] = split(texts) if isinstance(texts, str) else list(texts)
    for each in parts:
        if not isinstance(each, str):
            detail = (
                f"Received {type(each).__name__} among the metrics; expected text, such as 'ece'."
            )
            raise CalibrationInputError.at(pointer, "metric_form", detail)
    if len(parts) > MAX_REQUESTS:
        detail = f"Received {len(parts)} metrics; at most {MAX_REQUESTS} are computed at once."
        raise CalibrationInputError.at(pointer, "range", detail)
    return list(
        {
            request.key: request
            for request in (read_request(each, known, pointer, shared) for each in parts)
        }.values()
    )


def shortest(value: Value) -> str:
    """Write a value in its shortest form: whole numbers without a point.

    Examples
    --------
    >>> [shortest(value) for value in (3.0, 0.05, 15, "label")]
    ['3', '0.05', '15', 'label']
    """
    is_integral = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return str(int(value)) if is_integral else str(value)


def _unknown(slug: str, known: Mapping[str, Metric]) -> str:
    """Name the metric that a search word means, else the nearest slug."""
    shown = repr(slug[:60])
    for metric in known.values():
        for word in metric.search_words:
            if plain(word) == plain(slug):
                return f"{shown} is a search word; the slug is {metric.slug}{_how(metric, word)}."
    nearest = max(known, key=lambda each: _closeness(plain(slug[:60]), plain(each)))
    return f"There is no metric {shown}; the nearest is {nearest}. GET /v1/metrics and calibrant.METRICS list all."


def _closeness(word: str, slug: str) -> tuple[float, int]:
    """Return the similarity of two words; of equally similar ones, the closest length wins."""
    return SequenceMatcher(None, word, slug).ratio(), -abs(len(word) - len(slug))


def _how(metric: Metric, word: str) -> str:
    """Return the options that a search word implies, if it does."""
    how = metric.search_words[word]
    return f" with {how}" if how else ""


def plain(text: str) -> str:
    """Return letters and digits alone, in lower case: how search words are compared."""
    return "".join(letter for letter in text.lower() if letter.isalnum())
