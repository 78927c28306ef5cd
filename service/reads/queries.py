"""Query parameters of reads: every one known, every value checked, every refusal listing what would do."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
    create_model,
)
from pydantic_core import PydanticCustomError

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.options import Option
from calibrant.core.query import PaneQuery, default_bins
from calibrant.metrics import OPTIONS
from calibrant.segmentation.case_errors import MEMBERSHIP
from calibrant_server.service.http.errors import InvalidQuery, escaped
from calibrant_server.workers.store.durations import parse_duration
from calibrant_server.workers.store.registry import ModelConfig

RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
LOST_PLUS = re.compile(r".*\d \d\d:\d\d")
LEAP_SECOND = re.compile(r".*:60(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
SLICE = re.compile(r"[A-Za-z0-9._@-]{1,128}:[A-Za-z0-9._:@-]{1,128}")
WINDOW_NAMES = frozenset({"from_", "to", "window", "last", "clock"})

_known: dict[Any, list[str]] = {}

Raters = Literal["pooled", "mean", "majority", "single"]
Binning = Literal["equal_width", "equal_mass"]
MetricBinning = Literal["equal_width", "equal_mass", "hard", "soft", "spline", "gaussian"]
Edges = Literal["right", "left"]


def instant(text: Any) -> datetime:
    """Return an RFC 3339 instant."""
    if isinstance(text, str) and RFC3339.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError:
            pass
    raise PydanticCustomError(
        "rfc3339",
        "an RFC 3339 instant with its offset, such as 2026-11-20T09:00:00Z{hint}",
        {"hint": _hint(text) if isinstance(text, str) else ""},
    )


def _hint(text: str) -> str:
    if LOST_PLUS.fullmatch(text):
        return " (in a query + is written %2B)"
    if LEAP_SECOND.fullmatch(text):
        return " (seconds run from 00 to 59: a leap second is the one before it)"
    return ""


def duration(text: str) -> str:
    """Return an ISO 8601 duration as it is, once it was read."""
    try:
        if parse_duration(text) > 0:
            return text
    except ValueError:
        pass
    raise PydanticCustomError("iso_8601", "an ISO 8601 duration such as P7D or PT12H")


def slice_name(text: str) -> str:
    """Return `name:value` as it is, once it was read."""
    if SLICE.fullmatch(text):
        return text
    raise PydanticCustomError("slice", "a slice is written name:value, such as site:A")


Instant = Annotated[datetime, BeforeValidator(instant)]
Duration = Annotated[
    str, AfterValidator(duration), WithJsonSchema({"type": "string", "format": "duration"})
]
SliceName = Annotated[
    str,
    AfterValidator(slice_name),
    WithJsonSchema({"type": "string", "pattern": f"^{SLICE.pattern}$"}),
]


class WindowQuery(BaseModel):
    """Which data: an interval or a duration back from now, and one slice of it."""

    model_config = ConfigDict(extra="forbid")

    from_: Instant | None = Field(None, alias="from", description="First instant inside.")
    to: Instant | None = Field(None, description="First instant after; now without it.")
    window: Duration | None = Field(
        None, description="Length back from `to`, as an ISO 8601 duration, in place of `from`."
    )
    last: int | None = Field(
        None, ge=1, le=1_000_000, description="That many panes up to `to`, in place of `from`."
    )
    slice: SliceName | None = Field(None, description="One slice, as name:value.")
    clock: Literal["event", "sealed"] = Field(
        "event",
        description="event: everything by its event time, as it stands now. sealed: cohorts that have reached the "
        "model's label_horizon, as they stood then; now is where the last one ended.",
    )

    def params(self) -> dict[str, Any]:
        """Return what is asked of the window's data, without the window."""
        asked = self.model_dump(mode="json", exclude=set(WINDOW_NAMES))
        return {name: value for name, value in asked.items() if value is not None}


class ConcentrationQuery(WindowQuery):
    """Which votes, and how a concentration is fitted to them."""

    penalty: float = Field(
        0.005, ge=0, le=1e6, allow_inf_nan=False, description="Factor of (log alpha0)^2."
    )
    ci: float = Field(0.95, ge=0.5, lt=1, description="Level of the intervals.")


class BinningQuery(WindowQuery):
    """How scores are binned and ratings weighed."""

    bins: int = Field(15, ge=1, le=3600, description="Bins; those that the model's grid gives.")
    binning: Binning = "equal_width"
    edges: Edges = Field(
        "right", description="right: (a, b] with 0 in the first bin; left: [a, b)."
    )
    raters: Raters = "pooled"
    min_count: float = Field(
        0, ge=0, le=1e15, allow_inf_nan=False, description="Bins with less are left out."
    )
    scope: str | None = Field(
        None,
        max_length=200,
        description="top_label, positive, class:NAME or all; positive for binary models, else top_label.",
    )
    ci: float = Field(0.95, ge=0.5, lt=1, description="Level of the interval.")


def _option_field(option: Option) -> Any:
    limits = (
        {"ge": option.low, "le": option.high} if option.type is not str else {"max_length": 200}
    )
    kind: Any = Literal[option.allowed] if option.allowed else option.type
    described = f"{option.description} {option.default} without it."
    if option.allowed:
        return (
            Annotated[kind, BeforeValidator(option.type)] | None,
            Field(None, description=described),
        )
    given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    return (kind | None, Field(None, description=described, **given))


def options_query(name: str, options: Iterable[Option]) -> type[BaseModel]:
    """Return the model of a query that may name these options."""
    fields: dict[str, Any] = {
        option.name: _option_field(option) for option in sorted(options, key=lambda each: each.name)
    }
    config = ConfigDict(extra="forbid")
    return create_model(name, __config__=config, **fields)


# One source: the options that the metrics declare are the options that a query may name.
if TYPE_CHECKING:

    class OptionsQuery(BaseModel):
        pass
else:
    OptionsQuery = options_query("OptionsQuery", OPTIONS.values())


def asked_of(query: BinningQuery, config: ModelConfig) -> dict[str, Any]:
    """Return the query as the workers take it, once the model's panes can be asked it.

    A class in the scope is named by its index from here on.
    """
    scope = by_index(query.scope, config)
    membership = query.binning in MEMBERSHIP.allowed
    bins = query.bins if "bins" in query.model_fields_set else bins_of(config, scope)
    question = PaneQuery(
        bins=bins,
        binning="equal_width" if membership else query.binning,
        edges=query.edges,
        raters=query.raters,
        min_count=query.min_count,
        scope=scope,
        ci=query.ci,
    )
    try:
        question.check(config.spec())
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    return {**query.params(), "bins": bins, "scope": question.scope_for(config.spec())}


def by_index(scope: str | None, config: ModelConfig) -> str | None:
    """Return the scope with its class named by index."""
    if scope is None or not scope.startswith("class:"):
        return scope
    return f"class:{class_index(scope.removeprefix('class:'), config, '/scope')}"


def scope_of(asked: str | None, config: ModelConfig) -> str:
    """Return the scope that is asked for, or the model's own."""
    question = PaneQuery(scope=by_index(asked, config))
    try:
        return question.scope_for(config.spec())
    except CalibrationInputError as error:
        raise invalid_query(error) from error


def bins_of(config: ModelConfig, scope: str | None) -> int:
    """Return the bins of who does not ask for a number: 15, or the nearest that the model's grid gives."""
    known = scope in ("top_label", "positive", "all") or (scope or "").startswith("class:")
    return default_bins(config.spec(), scope if known else None)


def class_index(name: str, config: ModelConfig, pointer: str) -> int:
    """Return the index of the class with this name, or this index."""
    if config.classes and name in config.classes:
        return config.classes.index(name)
    if name.isascii() and name.isdigit() and len(name) < 9 and int(name) < config.n_classes:
        return int(name)
    known = ", ".join(config.classes[:50]) if config.classes else f"0 to {config.n_classes - 1}"
    raise unanswerable(
        pointer, "unknown_class", f"{name!r} is not a class of the model; known: {known}."
    )


def invalid_query(error: CalibrationInputError) -> InvalidQuery:
    """Return the problem of a question that cannot be asked."""
    return InvalidQuery(" ".join(each.detail for each in error.violations), errors=error.violations)


def refuse_unread(request: Request) -> None:
    """Refuse what would be passed over in a query: a parameter that is unknown, stands twice or has no value."""
    given = request.query_params.multi_items()
    seen: set[str] = set()
    for name, value in given:
        known = _parameters(request.scope["route"])
        place, shown = f"/{escaped(name)}", name[:60]
        if name not in known:
            listed = f"known: {', '.join(known)}" if known else "this path takes none"
            raise unanswerable(
                place, "unknown_parameter", f"There is no query parameter {shown!r}; {listed}."
            )
        if name in seen:
            raise unanswerable(place, "repeated_parameter", f"{name} stands twice in the query.")
        if not value:
            raise unanswerable(
                place, "empty", f"{name} has no value; leave it out for what it is by itself."
            )
        seen.add(name)


def _parameters(route: APIRoute) -> list[str]:
    """Return the names that the query of a route may have."""
    if route.endpoint not in _known:
        asked = Dependant(query_params=route.dependant.query_params)
        _known[route.endpoint] = sorted(each.alias for each in get_flat_params(asked))
    return _known[route.endpoint]


def unanswerable(pointer: str, rule: str, detail: str) -> InvalidQuery:
    """Return the problem of one query parameter."""
    return InvalidQuery(detail, errors=[Violation(pointer, rule, detail)])
