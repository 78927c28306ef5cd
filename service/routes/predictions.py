"""Ingest of predictions with their labels."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Response

from calibrant_server.service.http.bodies import ARROW, JSON, NDJSON, Body
from calibrant_server.service.ingest.body_reading import PLAIN, BodyReading, reading_of_query
from calibrant_server.service.ingest.columns import read_columns
from calibrant_server.service.ingest.origin import ORIGIN_FIELDS, agreed_origin, origin_of_query
from calibrant_server.service.ingest.prediction_batch import prediction_batch, small_predictions
from calibrant_server.service.ingest.schemas import (
    IngestResponse,
    PredictionRecord,
    PredictionsBody,
    PredictionsQuery,
    RecordsBody,
)
from calibrant_server.service.ingest.service import (
    IngestContext,
    TheIngestAccess,
)
from calibrant_server.service.openapi.schema import problems, success, takes
from calibrant_server.workers.ingest.entries import IngestBatch, SourceOffsets

router = APIRouter(tags=["predictions"], default_response_class=Response)


@router.post(
    "/v1/models/{model}/predictions",
    operation_id="ingestPredictions",
    status_code=202,
    responses={
        200: success(IngestResponse, "The batch is merged", Preference_Applied="wait=S"),
        202: success(IngestResponse, "The batch is accepted", Location="The batch."),
        **problems(408, 409, 413, 415, 422, 429),
    },
    openapi_extra=takes(
        "Predictions",
        json=(PredictionsBody, RecordsBody),
        ndjson=PredictionRecord,
        arrow=None,
    ),
)
async def ingest_predictions(
    access: TheIngestAccess, query: Annotated[PredictionsQuery, Query()]
) -> Response:
    """Accept a batch of predictions, with or without labels.

    The batch is columns of equal length, or a list of records. It is all or nothing unless `partial` is set. The first
    batch of an unknown model creates the model. An Arrow IPC stream has the same columns: scores and labels as lists or
    fixed-size lists, slices as a struct, `batch_id` in the metadata of its schema.
    """
    origin, reading = None, PLAIN
    if query.model_fields_set:
        origin, reading = origin_of_query(query), reading_of_query(query)

    def load(body: Body, context: IngestContext) -> IngestBatch:
        return load_predictions(body, context, origin, reading)

    return await access.take(query.partial, load, takes=(JSON, NDJSON, ARROW))


def load_predictions(
    body: Body,
    context: IngestContext,
    origin: SourceOffsets | None = None,
    reading: BodyReading = PLAIN,
) -> IngestBatch:
    """Return the batch that a body holds, or raise every violation. The query may state its origin and reading instead."""
    is_plain = origin is None and reading == PLAIN
    small = small_predictions(body, context) if is_plain else None
    if small is not None:
        return small
    posted = read_columns(body, context.settings, head=("batch_id", *ORIGIN_FIELDS))
    agreed = posted.origin if origin is None else agreed_origin(posted.origin, origin)
    posted = replace(posted, reading=posted.reading.stated_by(reading))
    return prediction_batch(posted, context, agreed)
