"""Queries: one frozen class per result kind, the same in the request, on the wire and in the computation.

The HTTP service derives the parameters of a route from the query's fields. It builds the query once, with `resolved`,
and sends it as JSON; the worker reads the same class and computes from it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.drift.mapped_scores import OWN_SCORE
from calibrant.input.names import MAX_LENGTH
from calibrant.metrics import MetricRequest, requested
from calibrant.metrics.requests import SHARED, reject_without_effect, shared_options, takes
from calibrant.results.models import bins_of, class_index, scope_by_index, scope_of
from calibrant.segmentation.case_options import MEMBERSHIP
from calibrant_server.workers.alarm.cohorts import RATER
from calibrant_server.workers.store.model_config import ModelConfig

Raters = Literal["pooled", "mean", "majority", "single"]
Binning = Literal["equal_width", "equal_mass"]
MetricBinning = Literal["equal_width", "equal_mass", "hard", "soft", "spline", "gaussian"]
Edges = Literal["right", "left"]
PANE_QUERY = ("bins", "binning", "edges", "raters", "min_count", "scope", "ci")

CI = Field(0.95, ge=0.5, lt=1, description="Level of the intervals.")
SCOPE = Field(
    None,
    max_length=200,
    description="top_label, positive, class:NAME or all. Default: positive for binary models, else top_label.",
)
BINS = Field(
    15, ge=1, le=3600, description="Number of bins; one that the model's grid gives exactly."
)
MIN_COUNT = Field(
    0, ge=0, le=1e15, allow_inf_nan=False, description="Bins with fewer samples are left out."
)
EDGES: Any = Field("right", description="right: (a, b] with 0 in the first bin; left: [a, b).")


@dataclass(frozen=True)
class Needs:
    """Parts of a window that a result kind reads.

    Attributes
    ----------
    panes : their merge, each pane separately, the merges of parts (`SeriesQuery`), merges of which none is in two `sides`, or none
    last_s : of sides, the length of the second; of the other window of a comparison, each pane is read separately
    alarm : the state of the model's alarm
    sealed : accumulators of the sealed panes since the alarm's baseline
    changed : of an alarm, accumulators of the sealed panes since the change
    records : retained records; the result then states whether they changed while they were read
    """

    panes: Literal["merged", "each", "parts", "sides", "none"] = "merged"
    last_s: int = 0
    alarm: bool = False
    sealed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    records: bool = False


class SeriesQuery:
    """Query of the consecutive parts of a window.

    Attributes
    ----------
    every_s : length of a part, a whole number of panes
    """

    every_s: int

    def check(self, n_parts: int) -> None:
        """Reject more parts than one request may have."""
        raise NotImplementedError


class Query(BaseModel):
    """Query of a window, without the window.

    Attributes
    ----------
    kind : name of the result kind
    needs : the parts that it reads
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ClassVar[str] = ""
    needs: ClassVar[Needs] = Needs()

    def resolved(self, config: ModelConfig) -> Query:
        """Return the query for one model: every default computed, every class named by its index.

        Raises
        ------
        CalibrationInputError
            The model does not support this query.
        """
        return self.own()

    def own(self, **changed: Any) -> Self:
        """Return the kind's own query, without the further parameters of a request, with some fields changed."""
        cls: type[Query] = next(each for each in type(self).__mro__ if "kind" in vars(each))
        fields = {name: getattr(self, name) for name in cls.model_fields} | changed
        return cast(
            "Self",
            cls.model_construct(self.model_fields_set & fields.keys() | changed.keys(), **fields),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values, for the identity of the query and for transfer."""
        return self.model_dump(mode="json", by_alias=True)


class Including(Query):
    """Query with costly parts, which are computed on request."""

    parts: ClassVar[tuple[str, ...]] = ()

    include: str | None = None

    @property
    def included(self) -> frozenset[str]:
        """The requested parts."""
        return frozenset(self.include.split(",") if self.include else ())

    def canonical_include(self) -> str | None:
        """Return the requested parts in their order, each once.

        Raises
        ------
        CalibrationInputError
            A part that the kind does not have.
        """
        wanted = [each.strip() for each in self.include.split(",")] if self.include else []
        for each in wanted:
            if each not in self.parts:
                detail = f"Received {each[:60]!r}; expected one of: {', '.join(self.parts)}."
                raise CalibrationInputError.at("/include", "one_of", detail)
        return ",".join(each for each in self.parts if each in wanted) or None


def include_field(parts: tuple[str, ...]) -> Any:
    """Return the field of a query that has these parts."""
    described = (
        f"Costly parts of the response, separated by commas: {', '.join(parts)}. Default: none."
    )
    return Field(None, max_length=400, description=described)


class BinnedQuery(Query):
    """Query of binned scores."""

    bins: int = BINS
    binning: Binning = "equal_width"
    scope: str | None = SCOPE

    def resolved(self, config: ModelConfig) -> Query:
        return self.own(**self.in_model(config))

    def in_model(self, config: ModelConfig) -> dict[str, Any]:
        """Return `scope` and `bins` for the model, after checking that its panes support them."""
        scope = scope_by_index(self.scope, config)
        bins = self.bins if "bins" in self.model_fields_set else bins_of(config, scope)
        pane_query = self.pane_query(bins=bins, scope=scope)
        pane_query.check(config.spec())
        return {"bins": bins, "scope": pane_query.scope_for(config.spec())}

    def pane_query(self, **changed: Any) -> PaneQuery:
        """Return the query of a pane's view."""
        known = type(self).model_fields
        fields: dict[str, Any] = {name: getattr(self, name) for name in PANE_QUERY if name in known}
        if fields["binning"] in MEMBERSHIP.allowed:
            fields |= {"binning": "equal_width", "options": {MEMBERSHIP.name: fields["binning"]}}
        return PaneQuery(**(fields | changed))


class DetectorQuery(Query):
    """Query of one detector of the alarm."""

    scope: str | None = Field(
        None,
        max_length=len(RATER) + MAX_LENGTH,
        description="class:NAME where the alarm watches classes, rater:NAME for one rater's own detector.",
    )

    def resolved(self, config: ModelConfig) -> Query:
        scope = self.scope
        if scope is not None and scope != OWN_SCORE and not scope.startswith(RATER):
            scope = f"class:{class_index(scope.removeprefix('class:'), config, '/scope')}"
        return self.own(scope=scope)


class MetricQuery(BinnedQuery):
    """Query of one metric."""

    metric: str = Field(
        "ece",
        min_length=1,
        max_length=400,
        description="A slug, with its options in brackets: lp_ece(order=3). GET /v1/metrics lists all.",
    )

    def resolved(self, config: ModelConfig) -> Query:
        requests = requests_in(self.metric, config, "/metric", shared_options(self.binning))
        if len(requests) != 1:
            detail = f"Received {len(requests)} metrics; expected one."
            raise CalibrationInputError.at("/metric", "range", detail)
        reject_untaken(self, requests)
        return self.own(metric=requests[0].key, **self.in_model(config))

    @property
    def request(self) -> MetricRequest:
        """The requested metric with its options."""
        return requested(self.metric, "/metric", shared_options(self.binning))[0]

    @property
    def slug(self) -> str:
        """The requested metric's slug."""
        return self.request.metric.slug

    def requested(self) -> PaneQuery:
        """Return the query of the view, options in brackets included."""
        return self.request.pane_query(self.pane_query())


def requests_in(
    text: str, config: ModelConfig, pointer: str = "/metrics", shared: Collection[str] = ()
) -> list[MetricRequest]:
    """Read requested metrics; a class in a scope is named by its index from here on.

    Raises
    ------
    CalibrationInputError
        A metric or an option is unknown, or the model does not support it.
    """
    found = []
    for each in requested(text, pointer, shared):
        scope = dict(each.options).get("scope")
        if scope is not None:
            each = each.with_option("scope", scope_of(str(scope), config))
        if each.options:
            plain = PaneQuery(bins=bins_of(config, None))
            each.pane_query(plain).check(config.spec())
        found.append(each)
    return found


def reject_untaken(query: BaseModel, requests: list[MetricRequest]) -> None:
    """Reject a shared parameter that none of the requested metrics takes, and options without effect.

    Raises
    ------
    CalibrationInputError
        The parameter, with what those metrics take.
    """
    binning = getattr(query, "binning", "equal_width")
    for each in requests:
        reject_without_effect(each, binning, "/metric" if "metric" in vars(query) else "/metrics")
    for name in query.model_fields_set & set(SHARED):
        value = getattr(query, name)
        if value is None or any(_takes(each, name, value, binning) for each in requests):
            continue
        taken = sorted(
            {other for each in requests for other in SHARED if takes(each.metric, other)}
        )
        detail = f"Received {name}={value}, which none of the requested metrics takes; they take {', '.join(taken)}."
        raise CalibrationInputError.at(f"/{name}", "not_taken", detail)


def _takes(request: MetricRequest, name: str, value: object, binning: str) -> bool:
    if name == "edges" and request.binning(binning) == "equal_mass":
        return False
    if name == "binning" and value in MEMBERSHIP.allowed:
        return MEMBERSHIP in request.metric.own_options
    return takes(request.metric, name)
