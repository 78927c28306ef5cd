"""Labels for predictions sent earlier, or about to come, by id; and predictions taken out again."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.http.bodies import ARROW, JSON, NDJSON, Body
from calibrant_server.service.http.errors import ModelUnknown
from calibrant_server.service.http.parameters import Name, PredictionId, TextName
from calibrant_server.service.ingest.body_reading import ignored_of_query
from calibrant_server.service.ingest.label_batch import load_labels
from calibrant_server.service.ingest.schemas import (
    IgnoreLabel,
    IngestQuery,
    IngestResponse,
    Label,
)
from calibrant_server.service.ingest.service import (
    IngestContext,
    TheIngestAccess,
    digest_of,
)
from calibrant_server.service.openapi.schema import problems, success, takes
from calibrant_server.workers.ingest.entries import REMOVAL, IngestBatch

router = APIRouter(default_response_class=Response)


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


class LabelsQuery(IngestQuery):
    """Query of a batch of labels."""

    ignore_label: str | None = Field(
        None,
        max_length=400,
        description="The same as `ignore_label` of a body; several with commas.",
    )


class LabelRecord(BaseModel):
    """One line of NDJSON: labels of one prediction. `batch_id` may be alone in the first line."""

    model_config = ConfigDict(extra="forbid")

    id: TextName
    label: Label = None
    rater: TextName | list[TextName | None] | None = None
    revision: int | list[int | None] | None = None


INGEST: dict[int | str, dict[str, Any]] = {
    200: success(IngestResponse, "The batch is merged", Preference_Applied="wait=S"),
    202: success(IngestResponse, "The batch is accepted", Location="The batch."),
}


@router.post(
    "/v1/models/{model}/labels",
    operation_id="ingestLabels",
    tags=["labels"],
    status_code=202,
    responses={**INGEST, **problems(408, 409, 413, 415, 422, 429)},
    openapi_extra=takes("Labels", json=LabelsBody, ndjson=LabelRecord, arrow=None),
)
async def ingest_labels(
    access: TheIngestAccess, query: Annotated[LabelsQuery, Query()]
) -> Response:
    """Accept labels for predictions by id; labels that arrive before their prediction wait for it."""
    ignored = ignored_of_query(query.ignore_label)

    def load(body: Body, context: IngestContext) -> IngestBatch:
        return load_labels(body, context, ignored)

    return await access.take(query.partial, load, takes=(JSON, NDJSON, ARROW))


@router.delete(
    "/v1/models/{model}/predictions/{prediction_id:path}",
    operation_id="deletePrediction",
    tags=["predictions"],
    status_code=202,
    responses={**INGEST, **problems(409, 422, 429)},
)
async def delete_prediction(access: TheIngestAccess, prediction_id: PredictionId) -> Response:
    """Remove one prediction with its ratings permanently."""

    def load(body: Body, context: IngestContext) -> IngestBatch:
        payload = orjson.dumps({"id": prediction_id})
        if context.config is None:
            raise ModelUnknown()
        # A removal is retained even if its id is unknown.
        return context.batch(
            context.config,
            REMOVAL,
            payload,
            digest_of(payload),
            1,
            retains=True,
            ids=(prediction_id,),
        )

    return await access.take(False, load, has_body=False)
