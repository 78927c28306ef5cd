"""Methods of predicting rater disagreement, compared on posted ratings."""

from typing import Any, Literal

import numpy as np
import orjson
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import CalibrationInputError
from calibrant.raters.alpha_calibration import compared as compared_ways
from calibrant.raters.rated_rows import MAX_FEATURE
from calibrant.results.disagreement import MethodsQuery
from calibrant_server.service.http.bodies import JSON, Body
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.http.parameters import TextName
from calibrant_server.service.ingest.columns import posted_columns
from calibrant_server.service.ingest.model_rules import checked_batch
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, object_of, reject_unknown
from calibrant_server.service.ingest.schemas import Label
from calibrant_server.service.openapi.schema import problems, success, takes
from calibrant_server.service.reads.operations import Access, MapReader, operation
from calibrant_server.service.settings import Settings
from calibrant_server.workers.queries.declared import Declared, query_class
from calibrant_server.workers.store.model_config import ModelConfig

router = APIRouter(tags=["raters"], default_response_class=Response)

MAX_NUMBERS = 2_000_000
Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class DisagreementMethodsQuery(query_class(MethodsQuery)):  # type: ignore[misc]
    """How concentrations are fitted to posted ratings, and evaluated."""


class DisagreementMethodsBody(BaseModel):
    """Predictions with several ratings each, and features for the head."""

    model_config = ConfigDict(extra="forbid")

    probabilities: list[list[float]] | None = Field(
        None, description="Rows sum to 1 within the rounding of their values."
    )
    logits: list[list[float]] | None = None
    confidences: list[float] | None = Field(None, description="Probability of class 1.")
    labels: list[Label] | None = Field(None, description="A list with one class per rater.")
    label_counts: list[list[int]] | None = Field(None, description="Ratings by class.")
    features: list[list[float]] | None = Field(
        None,
        description="One row per prediction with any number of columns. Default: log-probabilities.",
    )
    parts: list[Literal["fit", "score"]] | None = Field(
        None,
        description="Per row: `fit` or `score`. Default: two halves of the units, by hash.",
    )
    ids: list[TextName] | None = None
    units: list[TextName] | None = Field(
        None, description="Independent units; a unit is not split."
    )
    weights: list[float] | None = None


class DisagreementMethodsResponse(BaseModel):
    """Methods of predicting disagreement, fitted to one half of the units, evaluated on the other."""

    model_config = ConfigDict(extra="allow")

    model: str
    best: str | None
    reason: str | None
    features: Literal["posted", "log_probabilities"]
    methods: dict[str, Any] | None = Field(
        None,
        description="raw, alpha, temperature, temperature_alpha, joint, head: losses on the validation part.",
    )
    instances: dict[str, list[float]] | None = Field(None, description="`concentration` by row.")


@operation(
    router,
    "POST /v1/models/{model}/disagreement",
    "compareCalibrations",
    MapReader,
    {
        200: success(DisagreementMethodsResponse, "The methods compared"),
        **problems(408, 413, 415, 422),
    },
    query=DisagreementMethodsQuery,
    takes_=takes("Predictions with ratings, and features", json=DisagreementMethodsBody),
)
async def compare_calibrations(access: Access) -> Response:
    """Fit concentrations, temperature and a head on features to posted ratings and compare them; nothing is stored."""
    config = await access.usable_config()
    result = await access.computed(_compared, access.query, config, access.settings)
    return Response(result, media_type=JSON)


def _compared(body: Body, query: Declared, config: ModelConfig, settings: Settings) -> bytes:
    """Return the comparison as JSON."""
    document = object_of(read_json(body.data, settings.max_rows * 3 + 100))
    fields = tuple(DisagreementMethodsBody.model_fields)
    reject_unknown(document, fields)
    given = {name: document[name] for name in fields if document.get(name) is not None}
    columns = {name: column for name, column in given.items() if name not in ("features", "parts")}
    batch = checked_batch(ParsedBatch(posted_columns(columns, settings)), config, False).batch
    features = None
    if document.get("features") is not None:
        features = _table(document["features"], batch.n)
    width = batch.n_classes + (0 if features is None else features.shape[1])
    if batch.n * width > MAX_NUMBERS:
        detail = f"Received {batch.n} predictions of {width} numbers; expected at most {MAX_NUMBERS:,} numbers in all. Send fewer rows."
        raise CalibrationInputError.at("", "size", detail)
    parts = _parts(document.get("parts"))
    found = compared_ways(batch, features=features, parts=parts, **query.model_dump())
    source = "log_probabilities" if features is None else "posted"
    return orjson.dumps(
        {"model": config.model, "features": source, **found}, option=orjson.OPT_SERIALIZE_NUMPY
    )


def _parts(value: Any) -> list[str] | None:
    """Return the parts, whose names the library checks."""
    if value is not None and not isinstance(value, list):
        raise CalibrationInputError.at(
            "/parts",
            "list",
            "Received another type for parts; expected a list with fit or score for each row.",
        )
    return value


def _table(value: Any, n: int) -> Numbers:
    """Return features as float64 (n, n_features); reject the first row of another length or without numbers."""
    if not isinstance(value, list) or len(value) != n:
        raise CalibrationInputError.at(
            "/features",
            "length",
            f"Received another number of feature rows; expected {n}: one row per prediction.",
        )
    width = len(value[0]) if isinstance(value[0], list) else 0
    for place, row in enumerate(value):
        if not isinstance(row, list) or not width or len(row) != width:
            detail = f"Received a row of another length; expected {width or 'at least one'} numbers, as in the first row."
            raise CalibrationInputError.at(f"/features/{place}", "length", detail)
        if not all(type(each) in (int, float) and abs(each) <= MAX_FEATURE for each in row):
            detail = f"Received another value; expected numbers from -{MAX_FEATURE:g} to {MAX_FEATURE:g}."
            raise CalibrationInputError.at(f"/features/{place}", "number", detail)
    return np.array(value, np.float64)
