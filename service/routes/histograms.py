"""Histogram updates: what a client has already reduced, as sums by bin or as packed panes."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from calibrant_server.service.http.bodies import JSON, NDJSON, Body
from calibrant_server.service.http.bodies import PANE as PACKED_PANE
from calibrant_server.service.ingest.histograms import load_histograms
from calibrant_server.service.ingest.schemas import IngestResponse, PackedPaneQuery
from calibrant_server.service.ingest.service import (
    IngestContext,
    TheIngestAccess,
)
from calibrant_server.service.ingest.updates import (
    ConfidenceUpdate,
    HistogramsBody,
    HistogramUpdate,
    PaneUpdate,
    SingleConfidenceBody,
    SingleHistogramBody,
    SinglePaneBody,
)
from calibrant_server.service.openapi.schema import problems, success, takes
from calibrant_server.workers.ingest.entries import IngestBatch

router = APIRouter(tags=["histograms"], default_response_class=Response)


@router.post(
    "/v1/models/{model}/histograms",
    operation_id="ingestHistograms",
    status_code=202,
    responses={
        200: success(IngestResponse, "The updates are merged", Preference_Applied="wait=S"),
        202: success(IngestResponse, "The updates are accepted", Location="The batch."),
        **problems(408, 409, 413, 415, 422, 429),
    },
    openapi_extra=takes(
        "Updates",
        json=(HistogramsBody, SingleHistogramBody, SingleConfidenceBody, SinglePaneBody),
        ndjson=(HistogramUpdate, ConfidenceUpdate, PaneUpdate),
        pane=None,
    ),
)
async def ingest_histograms(
    access: TheIngestAccess, query: Annotated[PackedPaneQuery, Query()]
) -> Response:
    """Accept increments or running totals of histograms, or panes filled at the edge.

    One pane may be the body itself, as `Pane.to_bytes()` made it; `event_time` and `slice` are then in the query, its batch id
    in the header Idempotency-Key.
    """

    def load(body: Body, context: IngestContext) -> IngestBatch:
        return load_histograms(body, context, query)

    takes = (JSON, NDJSON, PACKED_PANE)
    return await access.take(query.partial, load, is_costly=True, takes=takes)
