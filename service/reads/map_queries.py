"""Queries for a calibration map, and their response model."""

from calibrant.results.calibration_map import CalibrationMap, calibration_map
from calibrant.results.map_query import MapFitQuery
from calibrant_server.service.reads.queries import ClockQuery
from calibrant_server.service.reads.response_models import part_of
from calibrant_server.service.reads.service import ReadQuery
from calibrant_server.workers.queries.declared import declared_query, query_class
from calibrant_server.workers.store.model_config import ModelConfig

# A map to apply has no weights.
_FIT = query_class(MapFitQuery)
_FIT.kind = calibration_map.name


class MapParameters(ClockQuery, declared_query(calibration_map)):  # type: ignore[misc]
    """Which map, fitted to what."""


class ApplyFit(ClockQuery, _FIT):  # type: ignore[misc,valid-type]
    """Which map, fitted to what, to map rows with."""


class MapResponse(part_of(CalibrationMap, "MapResponse")):  # type: ignore[misc]
    """A map as plain numbers, from which any client can compute it."""


def map_read_query(parameters: MapParameters, config: ModelConfig) -> ReadQuery:
    """Return the query for a map; a class is named by its index from here on.

    Raises
    ------
    CalibrationInputError
        The query does not suit the model.
    """
    return ReadQuery(parameters.resolved(config), config, parameters)
