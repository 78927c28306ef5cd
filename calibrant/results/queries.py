"""Parameters that several reads share: binned scores, one metric, and costly parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.metrics import MetricRequest, requested
from calibrant.metrics.requests import shared_options
from calibrant.results.base import says
from calibrant.results.metric_requests import reject_untaken, requests_in
from calibrant.results.models import Model, bins_of, scope_by_index
from calibrant.results.reads import Query
from calibrant.segmentation.case_options import MEMBERSHIP

Binning = Literal["equal_width", "equal_mass"]
# The part that names how a result was computed.
DETAILS = "details"
PANE_QUERY = ("bins", "binning", "edges", "raters", "min_count", "scope", "ci")


def smallest_bin() -> Any:
    """Declare the smallest bin that counts."""
    return says("Bins with fewer samples are left out.", 0, ge=0, le=1e15, allow_inf_nan=False)


def costly_parts(parts: tuple[str, ...]) -> Any:
    """Declare the parts that are computed on request."""
    return says(sentence_of(parts), None, max_length=400)


def sentence_of(parts: tuple[str, ...]) -> str:
    """Return the sentence about the parameter `include`."""
    return f"Costly parts of the response, separated by commas: {', '.join(parts)}. Default: none."


def parts_of(include: str | None) -> list[str]:
    """Return the requested parts, as they are written.

    >>> parts_of("curve, heldout"), parts_of(None)
    (['curve', 'heldout'], [])
    """
    return [each.strip() for each in include.split(",")] if include else []


def without_details(include: str | None) -> str | None:
    """Return the requested parts but `details`, which concerns the response alone."""
    return ",".join(each for each in parts_of(include) if each != DETAILS) or None


def in_order(include: str | None, parts: tuple[str, ...]) -> str | None:
    """Return the requested parts in their order, each once.

    Raises
    ------
    CalibrationInputError
        A part that the result does not have.
    """
    wanted = parts_of(include)
    for each in wanted:
        if each not in parts:
            detail = f"Received {each[:60]!r}; expected one of: {', '.join(parts)}."
            raise CalibrationInputError.at("/include", "one_of", detail)
    return ",".join(each for each in parts if each in wanted) or None


@dataclass(frozen=True, kw_only=True)
class BinnedQuery(Query):
    """Query of binned scores."""

    bins: int = says("Number of bins; one that the model's grid gives exactly.", 15, ge=1, le=3600)
    binning: Binning = says("Binning method.", "equal_width")
    scope: str | None = says(
        "The probability to bin: top_label, positive, class:NAME or all. Default: positive for binary models, else top_label.",
        None,
        max_length=200,
    )

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        scope = scope_by_index(self.scope, model)
        bins = self.bins if "bins" in given else bins_of(model, scope)
        pane_query = self.pane_query(bins=bins, scope=scope)
        pane_query.check(model.spec())
        return {"bins": bins, "scope": pane_query.scope_for(model.spec())}

    def pane_query(self, **changed: Any) -> PaneQuery:
        """Return the query of a pane's view."""
        known = {each.name for each in fields(self)}
        found: dict[str, Any] = {name: getattr(self, name) for name in PANE_QUERY if name in known}
        if found["binning"] in MEMBERSHIP.allowed:
            found |= {"binning": "equal_width", "options": {MEMBERSHIP.name: found["binning"]}}
        return PaneQuery(**(found | changed), bin_edges=getattr(self, "bin_edges", None) or ())


@dataclass(frozen=True, kw_only=True)
class EdgesQuery(BinnedQuery):
    """Query of binned scores, whose bins may have own edges."""

    bin_edges: str | None = says(
        "Own edges of the bins instead of `bins`, from 0 to 1 and separated by commas: 0,0.5,0.9,1. Each is an edge of the model's "
        "grid. Metrics with bins of another kind take their number.",
        None,
        max_length=20_000,
    )

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        if self.bin_edges is None:
            return super().resolved(model, given)
        if "bins" in given:
            detail = f"Received both bins={self.bins} and bin_edges; expected one of them."
            raise CalibrationInputError.at("/bin_edges", "one_of", detail)
        pane_query = self.pane_query(scope=scope_by_index(self.scope, model)).check(model.spec())
        listed = ",".join(map(repr, pane_query.edges_of_bins))
        scope = pane_query.scope_for(model.spec())
        return {"bins": pane_query.bins, "bin_edges": listed, "scope": scope}


@dataclass(frozen=True, kw_only=True)
class MetricQuery(BinnedQuery):
    """Query of one metric."""

    metric: str = says(
        "A slug, with its options in brackets: lp_ece(order=3). GET /v1/metrics lists all.",
        "ece",
        min_length=1,
        max_length=400,
    )

    def resolved(self, model: Model, given: Collection[str]) -> Mapping[str, Any]:
        requests = requests_in(self.metric, model, "/metric", shared_options(self.binning))
        if len(requests) != 1:
            detail = f"Received {len(requests)} metrics; expected one."
            raise CalibrationInputError.at("/metric", "range", detail)
        reject_untaken(self, given, requests, "/metric")
        return {"metric": requests[0].key, **super().resolved(model, given)}

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
