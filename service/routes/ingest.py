"""Ingest of predictions, of labels by id, and of histogram updates; and predictions taken out again."""

from dataclasses import replace

import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.http.bodies import ARROW, JSON, NDJSON, Body
from calibrant_server.service.http.bodies import PANE as PACKED_PANE
from calibrant_server.service.http.parameters import Name, PredictionId, TextName
from calibrant_server.service.http.problems import ModelUnknown
from calibrant_server.service.ingest.batches import load_labels, prediction_batch
from calibrant_server.service.ingest.body_reading import (
    ORIGIN_FIELDS,
    PLAIN,
    TASK,
    agreed_origin,
    ignored_of_query,
    origin_of_query,
    reading_of_query,
)
from calibrant_server.service.ingest.columns import read_columns
from calibrant_server.service.ingest.histograms import load_histograms
from calibrant_server.service.ingest.multilabel import ids_of_row
from calibrant_server.service.ingest.schemas import (
    IgnoreLabel,
    IgnoringQuery,
    IngestResponse,
    Label,
    PackedPaneQuery,
    PredictionRecord,
    PredictionsBody,
    PredictionsQuery,
    RecordsBody,
)
from calibrant_server.service.ingest.service import IngestContext, digest_of
from calibrant_server.service.ingest.small_bodies import small_predictions
from calibrant_server.service.ingest.update_packing import (
    ConfidenceUpdate,
    HistogramsBody,
    HistogramUpdate,
    PaneUpdate,
    SingleConfidenceBody,
    SingleHistogramBody,
    SinglePaneBody,
)
from calibrant_server.service.openapi.schema import success, takes
from calibrant_server.service.reads.operations import Access, Ingester, Operations, Responses
from calibrant_server.workers.ingest.entries import REMOVAL, IngestBatch

router = Operations("predictions")
HEADERS = ("prefer", "idempotency_key")


def receipts(batch: str, are: str = "is") -> Responses:
    """Describe the responses of an operation that takes a batch."""
    return {
        200: success(IngestResponse, f"The {batch} {are} merged", Preference_Applied="wait=S"),
        202: success(IngestResponse, f"The {batch} {are} accepted", Location="The batch."),
    }


@router.operation(
    "POST /v1/models/{model}/predictions",
    Ingester,
    receipts("batch"),
    409,
    query=PredictionsQuery,
    headers=HEADERS,
    takes_=takes(
        "Predictions", {JSON: (PredictionsBody, RecordsBody), NDJSON: PredictionRecord, ARROW: None}
    ),
)
async def ingest_predictions(access: Access) -> Response:
    """Accept a batch of predictions, with or without labels.

    The batch is columns of equal length, or a list of records. It is all or nothing unless `partial` is set. The first
    batch of an unknown model creates the model. An Arrow IPC stream has the same columns: scores and labels as lists or
    fixed-size lists, slices as a struct, `batch_id` in the metadata of its schema.
    """
    query = access.query

    def load(body: Body, context: IngestContext) -> IngestBatch:
        return load_predictions(body, context, query)

    return await access.sender.take(query.partial, load, takes=(JSON, NDJSON, ARROW))


PLAIN_QUERY = PredictionsQuery()


def load_predictions(
    body: Body, context: IngestContext, query: PredictionsQuery = PLAIN_QUERY
) -> IngestBatch:
    """Return the batch that a body holds, or raise every violation. The query may state its origin and reading instead."""
    origin, reading = None, PLAIN
    if query.model_fields_set:
        origin, reading = origin_of_query(query), reading_of_query(query)
    is_plain = origin is None and reading == PLAIN
    small = small_predictions(body, context) if is_plain else None
    if small is not None:
        return small
    posted = read_columns(body, context.settings, head=("batch_id", TASK, *ORIGIN_FIELDS))
    agreed = posted.origin if origin is None else agreed_origin(posted.origin, origin)
    posted = replace(posted, reading=posted.reading.stated_by(reading))
    return prediction_batch(posted, context, agreed)


labels = Operations()


class LabelsBody(BaseModel):
    """Labels as columns of one length."""

    model_config = ConfigDict(extra="forbid")

    batch_id: Name | None = None
    ignore_label: IgnoreLabel = None
    ids: list[TextName]
    labels: list[Label] = Field(
        description="A class, or one per rater; null if a named rater withdraws their rating, or if an unnamed rater of several gave "
        "none. One-hot rows are rejected."
    )
    raters: list[TextName | list[TextName | None] | None] | None = Field(
        None,
        description="Names of the raters. A later rating of a named rater replaces their earlier one; unnamed ratings are added.",
    )
    revision: list[int | list[int | None] | None] | None = Field(
        None,
        description="The rating with the higher revision is stored, in any order of arrival. Default: the later rating is stored.",
    )


class LabelsQuery(IgnoringQuery):
    """Query of a batch of labels."""


class LabelRecord(BaseModel):
    """One line of NDJSON: labels of one prediction. `batch_id` may be alone in the first line."""

    model_config = ConfigDict(extra="forbid")

    id: TextName
    label: Label = None
    rater: TextName | list[TextName | None] | None = None
    revision: int | list[int | None] | None = None


@labels.operation(
    "POST /v1/models/{model}/labels",
    Ingester,
    receipts("batch"),
    409,
    query=LabelsQuery,
    headers=HEADERS,
    takes_=takes("Labels", {JSON: LabelsBody, NDJSON: LabelRecord, ARROW: None}),
    tag="labels",
)
async def ingest_labels(access: Access) -> Response:
    """Accept labels for predictions by id; labels that arrive before their prediction wait for it."""
    ignored = ignored_of_query(access.query.ignore_label)

    def load(body: Body, context: IngestContext) -> IngestBatch:
        return load_labels(body, context, ignored)

    try:
        return await access.sender.take(access.query.partial, load, takes=(JSON, NDJSON, ARROW))
    except ModelUnknown as error:
        raise await _named(access, error) from error


async def _named(access: Access, error: ModelUnknown) -> ModelUnknown:
    """Return the problem of an unknown model with its name and the nearest one."""
    caller = access.caller
    mine = await access.connection.registry.list(caller.tenant)
    named = caller.unknown(
        access.model, [each.model for each in mine if caller.may_use(each.model)]
    )
    return ModelUnknown(f"{named.detail} {error.detail}")


@labels.operation(
    "DELETE /v1/models/{model}/predictions/{prediction_id:path}",
    Ingester,
    receipts("batch"),
    409,
    id=("prediction_id", PredictionId),
    headers=HEADERS,
    tag="predictions",
)
async def delete_prediction(access: Access) -> Response:
    """Remove one prediction with its ratings permanently."""

    def load(body: Body, context: IngestContext) -> IngestBatch:
        if context.config is None:
            raise ModelUnknown()
        ids = ids_of_row(access.id, context.config)
        payload = orjson.dumps({"ids": ids})
        # A removal is retained even if its id is unknown.
        digest = digest_of(payload)
        return context.batch(
            context.config, REMOVAL, payload, digest, len(ids), retains=True, ids=ids
        )

    return await access.sender.take(False, load, has_body=False)


histograms = Operations("histograms")


@histograms.operation(
    "POST /v1/models/{model}/histograms",
    Ingester,
    receipts("updates", "are"),
    409,
    query=PackedPaneQuery,
    headers=HEADERS,
    takes_=takes(
        "Updates",
        {
            JSON: (HistogramsBody, SingleHistogramBody, SingleConfidenceBody, SinglePaneBody),
            NDJSON: (HistogramUpdate, ConfidenceUpdate, PaneUpdate),
            PACKED_PANE: None,
        },
    ),
)
async def ingest_histograms(access: Access) -> Response:
    """Accept increments or running totals of histograms, or panes filled at the edge.

    One pane may be the body itself, as `Pane.to_bytes()` made it; `event_time` and `slice` are then in the query, its batch id
    in the header Idempotency-Key.
    """
    query = access.query

    def load(body: Body, context: IngestContext) -> IngestBatch:
        return load_histograms(body, context, query)

    takes = (JSON, NDJSON, PACKED_PANE)
    return await access.sender.take(query.partial, load, is_costly=True, takes=takes)
