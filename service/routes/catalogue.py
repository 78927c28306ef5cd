"""Catalogues of the metrics and calibration maps that can be requested."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.calibrators import MAPS
from calibrant.catalogue import catalogue, option_of
from calibrant.results.map_query import OPTIONS
from calibrant_server.service.http.json_bodies import json_response
from calibrant_server.service.openapi.schema import problems, success
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


class CatalogueOption(BaseModel):
    """An option, written in the brackets of the slug."""

    name: str
    description: str
    default: str | int | float = Field(
        description="For a shared option: the default if the model does not determine it."
    )
    shared: bool = Field(description="Whether it may also be a parameter of the request.")
    allowed: list[str | int] | None = Field(description="Every allowed value, if they are listed.")
    low: float | None
    high: float | None


class SearchWord(BaseModel):
    """A name of the metric in papers and elsewhere."""

    word: str
    with_: str | None = Field(alias="with", description="Parameters that the name implies.")


class MetricEntry(BaseModel):
    """One metric."""

    slug: str
    title: str
    source: str = Field(description="Paper and authors.")
    formula: str
    unit: str
    range: list[float | None] = Field(description="Lowest and highest value; null if unbounded.")
    direction: Literal["lower", "higher", "zero"] = Field(description="Which value is better.")
    default: bool = Field(description="Whether `GET metrics` returns it by default.")
    exactness: Literal["exact", "estimated"] = Field(
        description="exact: the stored state gives the value of the raw rows, to rounding. estimated: from cells or "
        "from the stored sample, with `error_bound` where there is one."
    )
    requires: list[str]
    options: list[CatalogueOption]
    search_words: list[SearchWord]


class MetricCatalogue(BaseModel):
    """Every metric, by slug."""

    metrics: list[MetricEntry]


class CalibratorEntry(BaseModel):
    """One method of recalibration."""

    slug: str
    title: str
    source: str = Field(description="Paper and authors.")
    input: str = Field(description="What the formula takes: logit, probability or probabilities.")
    objective: str = Field(description="The loss that the fit minimises.")
    scopes: list[str] = Field(description="Which probabilities it maps.")
    fitted_to: Literal["state", "rows"] = Field(
        description="state: the stored sums, which describe all data. rows: the stored sample, or posted rows."
    )
    options: list[CatalogueOption]
    parameters: list[str] = Field(description="Parameters of the request that it reads.")


class CalibratorCatalogue(BaseModel):
    """Every method, by slug."""

    calibrators: list[CalibratorEntry]


@router.get(
    "/v1/metrics",
    operation_id="listMetrics",
    responses={200: success(MetricCatalogue, "The metrics"), **problems(422)},
)
async def list_metrics(
    caller: AnyCaller, query: Annotated[CatalogueParameters, Query()]
) -> Response:
    """List the metrics with their papers, formulas, options and search words."""
    return json_response({"metrics": catalogue(query.search)})


@router.get(
    "/v1/calibrators",
    operation_id="listCalibrators",
    responses={200: success(CalibratorCatalogue, "The methods"), **problems(422)},
)
async def list_calibrators(caller: AnyCaller) -> Response:
    """List the methods of recalibration with their papers and options."""
    entries = [
        {
            "slug": each.slug,
            "title": each.title,
            "source": each.source,
            "input": each.input,
            "objective": each.objective,
            "scopes": list(each.scopes),
            "fitted_to": "rows" if each.solve_rows is not None else "state",
            "options": [option_of(OPTIONS[name]) for name in each.options if name in OPTIONS],
            "parameters": [name for name in each.options if name not in OPTIONS],
        }
        for each in MAPS.values()
    ]
    return json_response({"calibrators": entries})
