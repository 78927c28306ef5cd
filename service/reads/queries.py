"""Query parameters of reads: unknown ones and invalid values are rejected, with a list of valid ones; and the parts of a window."""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from calibrant.core.durations import iso_duration, parse_duration
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.names import name_of
from calibrant.input.timestamps import RFC3339
from calibrant.metrics import METRICS, OPTIONS
from calibrant.metrics.requests import options_of
from calibrant.results.metric_work import MAX_WORK, reject_costly_metrics
from calibrant.results.metrics import TEST
from calibrant.results.queries import parts_of
from calibrant_server.service.http.parameters import PATTERN, SliceKey
from calibrant_server.service.http.problems import InvalidQuery, escaped
from calibrant_server.workers.queries.kind import Against
from calibrant_server.workers.queries.kinds.metrics_series import MetricsSeriesQuery
from calibrant_server.workers.queries.query import Declared, Query
from calibrant_server.workers.store.model_config import ModelConfig

_CALENDAR = re.compile(r"P\d+(\.\d+)?[YM]", re.ASCII)
LOST_PLUS = re.compile(r".*\d \d\d:\d\d")
LEAP_SECOND = re.compile(r".*:60(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
SLICE = "^[^:]{1,256}:.{1,256}$"

AGAINST = f"^(window:[0-9A-Za-z.,]{{2,41}}|baseline:{PATTERN}|model:{PATTERN}|reference)$"
Clock = Literal["event", "sealed"]
# Replacements of parameters of the first edition. Brackets replace options of metrics, see `replacement`.
REMOVED: dict[str, str] = {
    "job": "source and offsets, or batch_id",
    "last": "window, an ISO 8601 duration: window=PT24H for 24 hourly panes",
    "against_model": "against=model:ID",
    "status": "state=open or state=closed, with acknowledged=true or acknowledged=false",
    "sensitivity": "include=sensitivity",
    "centred": "method=isotonic(centred=true)",
    "regularisation": "method=dirichlet(regularisation=...)",
}
# Options of the figure of cases.
FIGURE_OPTIONS = ("class", "frequency_bins")
IN_A_BODY = (
    "composites",
    "metric",
    "subsets",
    "points",
    "frequency_bins",
    "case",
    "sensitivity",
    *OPTIONS,
)

_known: dict[Any, list[str]] = {}


def timestamp(text: Any) -> datetime:
    """Return an RFC 3339 timestamp."""
    if isinstance(text, str) and RFC3339.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError:
            pass
    raise PydanticCustomError(
        "rfc3339",
        "expected an RFC 3339 timestamp with its offset, such as 2026-11-20T09:00:00Z{hint}",
        {"hint": _hint(text) if isinstance(text, str) else ""},
    )


def _hint(text: str) -> str:
    if LOST_PLUS.fullmatch(text):
        return " (in a query + is written %2B)"
    if LEAP_SECOND.fullmatch(text):
        return " (seconds run from 00 to 59: a leap second is the one before it)"
    return ""


def duration(text: str) -> str:
    """Return a duration as ISO 8601; reject an invalid one."""
    try:
        if parse_duration(text) > 0:
            return iso_duration(text)
        detail = "expected more than 0 seconds, such as P7D or PT1H"
    except ValueError:
        detail = "expected a duration such as P7D, PT12H, 7d, 24h or 30m"
        if _CALENDAR.match(text):
            detail += "; months and years have no fixed length"
    raise PydanticCustomError("iso_8601", detail)


def duration_text(value: Any) -> Any:
    """Return a value unchanged; reject what is no text, such as a number without its unit."""
    if value is None or isinstance(value, str):
        return value
    raise PydanticCustomError("iso_8601", "expected a text such as P7D, PT12H, 7d, 24h or 30m")


def slice_name(text: str) -> str:
    """Return `name:value` as it is stored; reject an invalid one."""
    key, _, value = text.partition(":")
    names = name_of(key), name_of(value)
    if None in names:
        raise PydanticCustomError("slice", "expected name:value, such as site:A")
    return f"{names[0]}:{names[1]}"


Timestamp = Annotated[datetime, BeforeValidator(timestamp)]
Duration = Annotated[
    str,
    BeforeValidator(duration_text),
    AfterValidator(duration),
    WithJsonSchema({"type": "string", "examples": ["P7D", "7d"]}),
]
SliceName = Annotated[
    str,
    AfterValidator(slice_name),
    WithJsonSchema({"type": "string", "pattern": SLICE}),
]


class WindowQuery(BaseModel):
    """The requested data: an interval, or a duration back from its end, and one slice."""

    model_config = ConfigDict(extra="forbid")

    from_: Timestamp | None = Field(
        None, alias="from", description="Start of the window, included."
    )
    to: Timestamp | None = Field(None, description="End of the window, excluded. Default: now.")
    window: Duration | None = Field(
        None, description="Length back from `to` (P7D or 7d), instead of `from`."
    )
    slice: SliceName | None = Field(None, description="One slice, as name:value.")

    @property
    def on_clock(self) -> Clock:
        """The clock of the window."""
        clock: Clock = getattr(self, "clock", "event")
        return clock


class ClockQuery(WindowQuery):
    """The requested data, and their clock."""

    clock: Clock = Field(
        "event",
        description="event: all data by event time, as they are now. sealed: cohorts past label_horizon, as they were then; now is "
        "the end of the last one.",
    )


class AgainstQuery(BaseModel):
    """The other side of a comparison, if one is requested."""

    against: Annotated[str, Field(pattern=AGAINST)] | None = Field(
        None,
        description="Also return the difference, with its interval, from: `window:P7D`, the window of that length "
        "before this one; `baseline:NAME`; `model:ID`, another model over the same window, paired where ids are "
        "shared; `reference`, the cohorts of the alarm's reference.",
    )

    @property
    def compared_with(self) -> Against | None:
        """The named other side, if any."""
        if self.against is None:
            return None
        by, _, name = self.against.partition(":")
        if by == "window":
            _check_length(name)
        return Against(by, name)  # type: ignore[arg-type]  # the pattern holds


def _check_length(name: str) -> None:
    try:
        duration(name)
    except PydanticCustomError as error:
        raise unanswerable("/against", error.type, error.message()) from error


def resolved_query(query: Query, config: ModelConfig) -> Query:
    """Return a query resolved for the model.

    Raises
    ------
    InvalidQuery
        The query does not suit the model.
    """
    try:
        return query.resolved(config)
    except CalibrationInputError as error:
        raise invalid_query(error) from error


def invalid_query(error: CalibrationInputError) -> InvalidQuery:
    """Return the problem of an invalid query."""
    return InvalidQuery(" ".join(each.detail for each in error.violations), errors=error.violations)


def reject_unread(request: Request) -> None:
    """Reject query parameters that would be ignored: unknown, repeated or without a value."""
    given = request.query_params.multi_items()
    seen: set[str] = set()
    for name, value in given:
        known = _parameters(request.scope["route"])
        if name in known and name not in seen and value:
            seen.add(name)
            continue
        place = f"/{escaped(name)}"
        if name not in known:
            instead = replacement(name, request.scope["route"].operation_id, known)
            if instead is not None:
                detail = f"Received query parameter {name}, which was removed; use {instead}."
                raise unanswerable(place, "removed_parameter", detail)
            listed = f"expected one of {', '.join(known)}" if known else "this path takes none"
            raise unanswerable(
                place, "unknown_parameter", f"Received query parameter {name[:60]!r}; {listed}."
            )
        if name in seen:
            detail = f"Received {name} more than once; expected it once."
            raise unanswerable(place, "repeated_parameter", detail)
        raise unanswerable(
            place, "empty", f"Received {name} without a value; leave it out to use the default."
        )


def replacement(name: str, operation: str, known: list[str]) -> str | None:
    """Return the replacement of a removed parameter in an operation that has the `known` ones."""
    if operation == "scoreOnce":
        return f'the body: "options": {{"{name}": ...}}' if name in IN_A_BODY else None
    if name in REMOVED:
        return REMOVED[name]
    if operation == "listCases" and name in FIGURE_OPTIONS:
        return f"figure=histogram({name}=...)"
    place = next((each for each in ("metrics", "metric") if each in known), None)
    takers = [slug for slug, metric in METRICS.items() if name in options_of(metric)]
    if place is None or not takers or name == "raters":
        return None
    slug = next((each for each in ("ece", "ml1_ece") if each in takers), takers[0])
    return f"{place}={slug}({name}=...)"


def _parameters(route: APIRoute) -> list[str]:
    """Return the names of the query parameters of a route."""
    if route.endpoint not in _known:
        requested = Dependant(query_params=route.dependant.query_params)
        _known[route.endpoint] = sorted(each.alias for each in get_flat_params(requested))
    return _known[route.endpoint]


def unanswerable(pointer: str, rule: str, detail: str) -> InvalidQuery:
    """Return the problem of one query parameter."""
    return InvalidQuery(detail, errors=[Violation(pointer, rule, detail)])


class PartsQuery(Query):
    """The parts by which the data are divided."""

    every: Duration | None = Field(
        None,
        description="Return a series: the metrics of each part of this length, a multiple of the panes (P1D).",
    )
    by: SliceKey | None = Field(
        None, description="A slice key: the metrics of each of its values, in `slices`."
    )

    def resolved(self, config: ModelConfig) -> Query:
        if self.by is not None and getattr(self, "slice", None) is not None:
            raise unanswerable("/by", "one_of", "Received both slice and by; expected one of them.")
        query = super().resolved(config)
        is_compared = getattr(self, "against", None) is not None
        if is_compared and isinstance(query, Declared):
            reject_costly("/against", query, is_compared=True)
        if self.every is None:
            return query
        every_s = parse_duration(self.every)
        if every_s % config.pane_s:
            detail = f"Received every={self.every}; expected a whole number of panes of {config.pane_s} s."
            raise unanswerable("/every", "whole_panes", detail)
        more = {"every_s": int(every_s), "is_compared": is_compared}
        series: Query = MetricsSeriesQuery.model_construct(**dict(query), **more)
        return series


def reject_costly(
    pointer: str,
    query: Declared,
    n_slices: int = 1,
    is_compared: bool = False,
    at_most: int = MAX_WORK,
) -> None:
    """Reject metrics of more slices or models than one request may have (`reject_costly_metrics`)."""
    found = query.plain()
    try:
        reject_costly_metrics(
            pointer,
            found.listed,
            n_slices=n_slices,
            bins=found.bins,
            is_compared=is_compared,
            at_most=at_most,
        )
    except CalibrationInputError as error:
        raise invalid_query(error) from error


def of_slices(query: Query, n_slices: int, is_compared: bool) -> Query:
    """Return a query for each of so many slices; reject more work than one request may have."""
    if isinstance(query, MetricsSeriesQuery):
        # The number of parts is known where their panes are read.
        changed: Query = query.model_copy(update={"n_slices": max(1, n_slices)})
        return changed
    if isinstance(query, Declared):
        reject_costly("/by", query, n_slices, is_compared)
        parts = {*parts_of(getattr(query, "include", None)), TEST}
        return query.model_copy(update={"include": ",".join(sorted(parts))})
    return query
