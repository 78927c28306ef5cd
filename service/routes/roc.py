"""The receiver operating characteristic, as numbers or drawn."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.estimators.roc import MAX_POINTS, POINTS
from calibrant_server.service.figures.roc import draw_roc
from calibrant_server.service.openapi.schema import answers
from calibrant_server.service.reads.compare import AgainstQuery, compared
from calibrant_server.service.reads.dependencies import TheRead
from calibrant_server.service.reads.estimates import Estimate, WindowShown
from calibrant_server.service.reads.figures import Format, or_drawn
from calibrant_server.service.reads.queries import Edges, Raters, WindowQuery, scope_of
from calibrant_server.service.reads.service import ReadQuery

router = APIRouter(tags=["reliability"], default_response_class=Response)


class RocQuery(WindowQuery, AgainstQuery):
    """Which score is put in order against which labels."""

    scope: str | None = Field(
        None,
        max_length=200,
        description="positive, class:NAME (one against the rest), top_label (right against wrong).",
    )
    raters: Raters = "pooled"
    edges: Edges = Field("right", description="Of the plain histograms that a window may hold.")
    points: int = Field(POINTS, ge=2, le=MAX_POINTS, description="Of the curve, at most.")
    ci: float = Field(0.95, gt=0, lt=1, description="Level of the interval.")
    format: Format | None = Field(None, description="In place of the header Accept.")


class RocResponse(BaseModel):
    """The curve from the highest threshold down, and the area under it."""

    model_config = ConfigDict(extra="allow")

    model: str
    window: WindowShown
    state_version: str
    scope: str
    raters: str
    n: int | None
    n_ratings: int
    auc: float | None = Field(description="Ties count half.")
    error_bound: float | None = Field(
        None, description="How far cells of the grid may leave it off."
    )
    positives: float | None = Field(None, description="Weight.")
    negatives: float | None = None
    threshold: list[float | None] = Field(
        description="This score or a higher one counts as positive."
    )
    true_positive_rate: list[float]
    false_positive_rate: list[float]
    area: Estimate = Field(description="The metric `auc`, with its interval and null reference.")
    reason: str | None = None


CURVE: dict[str, Any] = answers(
    RocResponse, "The curve, or a drawing of it", ETag="State and query."
)


@router.get("/v1/models/{model}/roc", operation_id="getRoc", responses=or_drawn(CURVE))
async def get_roc(read: TheRead, query: Annotated[RocQuery, Query()]) -> Response:
    """Return the receiver operating characteristic of a score as JSON, SVG or PNG."""
    config = await read.config()
    params = query.params() | {"scope": scope_of(query.scope, config)}
    params.pop("format", None)
    ask = await compared(
        ReadQuery("roc", config, params, query), query, read.caller, read.connection, read.reading
    )
    return await read.answer(ask, query.format, draw_roc)
