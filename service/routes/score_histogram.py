"""One posted confidence histogram scored at once: everything that the paper reads from one; nothing is stored."""

from typing import Any, Literal

import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.calibrators.temperature.losses import EceOptions, HistogramLosses
from calibrant.calibrators.temperature.surface import loss_surface
from calibrant.core.errors import CalibrationInputError
from calibrant.results.queries import Binning
from calibrant.results.temperature import TemperatureQuery
from calibrant.segmentation.histogram_report import histogram_report
from calibrant_server.service.http.bodies import JSON, Body
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.ingest.parsed_batch import object_of, reject_unknown
from calibrant_server.service.ingest.update_packing import read_confidence
from calibrant_server.service.openapi.schema import success, takes
from calibrant_server.service.reads.operations import Access, Operations, Scorer
from calibrant_server.service.reads.queries import invalid_query, unanswerable
from calibrant_server.service.settings import Settings
from calibrant_server.workers.queries.query import BINNING, same_field

router = Operations("score")


class ScoreHistogramQuery(BaseModel):
    """How the histogram is scored."""

    model_config = ConfigDict(extra="forbid")

    bins: int = Field(
        20,
        ge=1,
        le=1 << 14,
        description="Coarse bins, at most as many as fine ones, which are assigned by their centres.",
    )
    binning: Binning = BINNING
    min_count: float = Field(
        50,
        ge=0,
        le=1e15,
        allow_inf_nan=False,
        description="Coarse bins with less mass are left out.",
    )
    denominator: Literal["kept", "full"] = Field(
        "kept", description="The mass in the denominator: of the counted bins, or all."
    )
    objective: Literal["nll", "brier", "ece"] = same_field(TemperatureQuery, "objective")
    surface: bool = Field(
        False,
        description="Whether to return the losses over one temperature for each of two classes.",
    )


# A surface computes the losses of every bin at many temperatures: these take most of a second.
MAX_BINS_OF_SURFACE = 16_000


class ConfidenceBody(BaseModel):
    """A confidence histogram: `label` with the optional other tables, or `packed`."""

    model_config = ConfigDict(extra="forbid")

    label: list[list[list[float]]] | None = Field(
        None,
        description="Mass by class, then incorrect and correct (the class is the reference), then fine bin.",
    )
    prediction: list[list[float]] | None = Field(
        None, description="Mass of incorrect and of correct predictions, by bin of the top class."
    )
    uncertainty: list[list[float]] | None = Field(
        None, description="Mass of incorrect and of correct predictions, by bin of entropy / log K."
    )
    exact: dict[str, float] | None = Field(
        None,
        description="Unrounded sums, as `GET confidence-histogram` returns them: nll, nll_weight, brier, "
        "zero_probability_weight.",
    )
    packed: str | None = Field(None, description="`ConfidenceHistogram.pack()` in base64.")


class HistogramScores(BaseModel):
    """Losses, errors, uncertainty and ROC; for two classes also the temperature."""

    model_config = ConfigDict(extra="allow")

    n_classes: int
    n_bins: int
    mass: float
    nll: dict[str, Any] = Field(
        description="Negative log-likelihood from bin centres: sum and mean; `exact_mean` if it is known."
    )
    brier: dict[str, Any]
    errors: dict[str, Any] = Field(
        description="Errors of the prediction, by class, and of all labels together (`full`)."
    )
    uncertainty: dict[str, Any] | None = Field(
        description="UCE; for two classes also its distance to the ideal curve."
    )
    roc: list[dict[str, Any]] = Field(
        description="By class: the area, and how far ties may shift it."
    )
    temperature: dict[str, Any] | None
    curve: dict[str, Any] | None = Field(description="Losses at temperatures from 0.5 to 10.")
    surface: dict[str, Any] | None = None


@router.operation(
    "POST /v1/score/confidence-histogram",
    Scorer,
    success(HistogramScores, "The scores"),
    query=ScoreHistogramQuery,
    takes_=takes("A confidence histogram", {JSON: ConfidenceBody}),
)
async def score_confidence_histogram(access: Access) -> Response:
    """Score one posted confidence histogram; nothing is stored."""
    result = await access.computed(_scored, access.query, access.settings)
    return Response(result, media_type=JSON)


def _scored(body: Body, query: ScoreHistogramQuery, settings: Settings) -> bytes:
    document = object_of(read_json(body.data, settings.max_objects))
    reject_unknown(document, tuple(ConfidenceBody.model_fields))
    histogram = read_confidence(document)
    # A result that is not requested is no reason to reject the request.
    bins = query.bins if "bins" in query.model_fields_set else min(query.bins, histogram.n_bins)
    if query.surface and histogram.n_bins > MAX_BINS_OF_SURFACE:
        detail = (
            f"Received {histogram.n_bins} bins; expected at most {MAX_BINS_OF_SURFACE} with surface. "
            "Send wider bins, or leave surface out."
        )
        raise unanswerable("/surface", "too_many_bins", detail)
    try:
        result = histogram_report(
            histogram,
            bins=bins,
            binning=query.binning,
            least=query.min_count,
            denominator=query.denominator,
            objective=query.objective,
        )
        if query.surface:
            options = EceOptions(bins, query.min_count, query.denominator)
            result["surface"] = loss_surface(HistogramLosses(histogram, options))
    except CalibrationInputError as error:
        raise invalid_query(error) from error
    return orjson.dumps(result, option=orjson.OPT_SERIALIZE_NUMPY)
