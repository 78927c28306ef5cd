"""Catalogues of the metrics and calibration maps that can be requested."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.results.catalogue import CalibratorCatalogue, MetricCatalogue, calibrators, catalogue
from calibrant_server.service.http.json_bodies import json_response
from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.reads.response_models import part_of
from calibrant_server.service.security.keys import Caller, needs

AnyCaller = Annotated[Caller, Depends(needs("read", "maps:read", "ingest"))]
router = APIRouter(tags=["catalogue"], default_response_class=Response)


class CatalogueParameters(BaseModel):
    """Which metrics."""

    model_config = ConfigDict(extra="forbid")

    search: str | None = Field(
        None,
        max_length=100,
        description="Part of a slug, a title, a search word or an author, such as MR-ECE or Mimori. Default: all metrics.",
    )


@router.get(
    "/v1/metrics",
    operation_id="listMetrics",
    responses={200: success(part_of(MetricCatalogue), "The metrics"), **problems(422)},
)
async def list_metrics(
    caller: AnyCaller, query: Annotated[CatalogueParameters, Query()]
) -> Response:
    """List the metrics with their papers, formulas, options and search words."""
    return json_response(catalogue(query.search).to_dict())


@router.get(
    "/v1/calibrators",
    operation_id="listCalibrators",
    responses={200: success(part_of(CalibratorCatalogue), "The methods"), **problems(422)},
)
async def list_calibrators(caller: AnyCaller) -> Response:
    """List the methods of recalibration with their papers and options."""
    return json_response(calibrators().to_dict())
