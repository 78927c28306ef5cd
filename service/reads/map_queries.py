"""Queries for a calibration map, and their response model."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.reads.queries import ClockQuery
from calibrant_server.service.reads.recommendations import Recommendation
from calibrant_server.service.reads.service import ReadQuery
from calibrant_server.workers.queries.kinds.calibration_map import CalibrationMapQuery, MapFitQuery
from calibrant_server.workers.store.model_config import ModelConfig


class MapParameters(ClockQuery, CalibrationMapQuery):
    """Which map, fitted to what."""


class ApplyFit(ClockQuery, MapFitQuery):
    """Which map, fitted to what, to map rows with."""


class MapResponse(BaseModel):
    """A map as plain numbers, from which any client can compute it."""

    model_config = ConfigDict(extra="allow")

    method: str
    scope: Literal["positive", "top_label", "class", "full"]
    parameters: dict[str, Any] | None
    digest: str | None
    n: int
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    heldout: dict[str, Any] | None = None
    gradient_norm: float | None = Field(None, description="Largest slope of the mean loss.")
    iterations: int | None = None
    objective_before: float | None = None
    objective_after: float | None = None
    at_bound: bool | None = None
    standard_errors: dict[str, Any] | None = Field(
        None, description="Standard errors of the parameters."
    )
    sample: dict[str, Any] | None = Field(
        None, description="For maps fitted to the stored sample: n, threshold, complete."
    )
    recommendation: Recommendation | None = None
    reason: str | None = None


def map_read_query(parameters: MapParameters, config: ModelConfig) -> ReadQuery:
    """Return the query for a map; a class is named by its index from here on.

    Raises
    ------
    CalibrationInputError
        The query does not suit the model.
    """
    return ReadQuery(parameters.resolved(config), config, parameters)
