"""Bound of the metrics of several slices or models in one request."""

from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.reads.queries import invalid_query
from calibrant_server.workers.queries.kinds.metrics import MetricsQuery
from calibrant_server.workers.queries.kinds.metrics_series import MetricsSeriesQuery
from calibrant_server.workers.queries.metric_work import MAX_WORK, reject_costly_metrics
from calibrant_server.workers.queries.query import Query


def reject_costly(
    pointer: str,
    query: MetricsQuery,
    n_slices: int = 1,
    is_compared: bool = False,
    at_most: int = MAX_WORK,
) -> None:
    """Reject metrics of more slices or models than one request may have (`reject_costly_metrics`)."""
    try:
        reject_costly_metrics(
            pointer,
            query.listed,
            n_slices=n_slices,
            bins=query.bins,
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
    if isinstance(query, MetricsQuery):
        reject_costly("/by", query, n_slices, is_compared)
    return query
