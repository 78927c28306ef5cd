"""Losses of a model of two classes over a temperature for each, as numbers or as a figure."""

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.figures.surface import draw_surface
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.dependencies import TheMapRead
from calibrant_server.service.reads.estimates import WindowShown
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import AgainstQuery, ClockQuery
from calibrant_server.workers.queries.kinds.temperature_surface import SurfaceQuery

router = APIRouter(tags=["temperature"], default_response_class=Response)
Lines = list[list[float | None]]


class SurfaceParameters(ClockQuery, AgainstQuery, SurfaceQuery):
    """Over which temperatures, and what is drawn of it."""

    objective: Literal["nll", "brier", "ece"] = Field("nll", description="What an image shows.")
    format: Format | None = Field(
        None, description="Format of the response, instead of the header Accept."
    )


class SurfaceResponse(BaseModel):
    """Losses by the temperature of class 1 (rows) and of class 0 (columns)."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    state_version: str
    n: int
    source: Literal["sample", "cells", "case"] | None = Field(
        None,
        description="All rows of the window, cells of their logits, or those of one case.",
    )
    n_used: int | None = None
    nll_error_bound: Lines | None = Field(
        None,
        description="Proved bound of the error of `nll` if it is computed from cells. Null: exact.",
    )
    error_estimate: dict[str, float] | None = Field(
        None,
        description="By loss: the largest estimated error, if it is computed from cells. Null: exact.",
    )
    background: list[float] | None = Field(description="Temperatures of class 0.")
    foreground: list[float] | None = Field(description="Temperatures of class 1.")
    nll: Lines | None
    brier: Lines | None
    ece: Lines | None
    lowest: dict[str, dict[str, float] | None] | None = Field(
        description="By loss: the temperatures of its lowest value on the grid."
    )
    against: dict[str, Any] | None = Field(
        None, description="The other side's losses at the same temperatures."
    )
    reason: str | None = Field(
        None, description="`logits_not_kept`: predictions came as probabilities."
    )


SURFACE: dict[str, Any] = success(
    SurfaceResponse, "The surface, or a figure", ETag="Changes with the state and the query."
)


@router.get(
    "/v1/models/{model}/temperature/surface",
    operation_id="getTemperatureSurface",
    responses=or_drawn(SURFACE),
)
async def get_temperature_surface(
    read: TheMapRead, query: Annotated[SurfaceParameters, Query()]
) -> Response:
    """Return the losses over one temperature for each of two classes as JSON, SVG or PNG."""
    read_query = await read.read_query(query, objective=query.objective)
    draw = partial(draw_surface, objective=query.objective, classes=read_query.config.classes)
    return await read.respond(read_query, query.format, draw)
