"""Labels for predictions sent earlier, or about to come, by id; and predictions taken out again."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.http.bodies import ARROW, JSON, NDJSON, Body
from calibrant_server.service.http.errors import ModelUnknown
from calibrant_server.service.http.parameters import Name, PredictionId
from calibrant_server.service.ingest.label_batch import load_labels
from calibrant_server.service.ingest.schemas import IngestQuery, IngestResponse, Label
from calibrant_server.service.ingest.service import (
    IngestAccess,
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
    ids: list[Name]
    labels: list[Label] = Field(
        description="A class, or one per rater; null if a named rater withdraws their rating."
    )
    raters: list[Name | list[Name | None] | None] | None = Field(
        None,
        description="Names of the raters. A later rating of a named rater replaces their earlier one; unnamed ratings are added.",
    )
    revision: list[int | list[int | None] | None] | None = Field(
        None,
        description="The rating with the higher revision is stored, in any order of arrival. Default: the later rating is stored.",
    )


class LabelRecord(BaseModel):
    """One line of NDJSON: labels of one prediction. `batch_id` may be alone in the first line."""

    model_config = ConfigDict(extra="forbid")

    id: Name
    label: Label = None
    rater: Name | list[Name | None] | None = None
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
    access: TheIngestAccess, query: Annotated[IngestQuery, Query()]
) -> Response:
    """Accept labels for predictions by id; labels that arrive before their prediction wait for it."""
    return await take_labels(access, query.partial)


async def take_labels(access: IngestAccess, partial: bool = False) -> Response:
    """Take the batch of a request."""
    return await access.take(partial, load_labels, takes=(JSON, NDJSON, ARROW))


DIRECT = {"ingestLabels": take_labels}


@router.delete(
    "/v1/models/{model}/predictions/{prediction_id}",
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
