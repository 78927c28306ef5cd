"""Metrics of parts of a window, of values of a slice and of several models: their parameters, and the bound of one request."""

from pydantic import Field

from calibrant.core.durations import parse_duration
from calibrant.core.errors import CalibrationInputError
from calibrant.results.metric_work import MAX_WORK, reject_costly_metrics
from calibrant_server.service.http.parameters import SliceKey
from calibrant_server.service.reads.queries import Duration, invalid_query, unanswerable
from calibrant_server.workers.queries.declared import Declared
from calibrant_server.workers.queries.kinds.metrics_series import MetricsSeriesQuery
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.store.model_config import ModelConfig


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
    return query
