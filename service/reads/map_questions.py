"""The question for a calibration map, and the shape of its answer."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from calibrant import calibrators
from calibrant_server.service.reads.queries import (
    Binning,
    Raters,
    WindowQuery,
    class_index,
    unanswerable,
)
from calibrant_server.service.reads.recommendations import Recommendation
from calibrant_server.service.reads.service import ReadQuery
from calibrant_server.workers.store.registry import ModelConfig

# One source: the folder of maps.
if TYPE_CHECKING:
    Method = str
else:
    Method = Literal[tuple(calibrators.MAPS)]


class MapQuery(WindowQuery):
    """Which map, fitted to what."""

    method: Method = "temperature"
    raters: Raters = "pooled"
    bins: int | None = Field(
        None, ge=1, le=1200, description="Of the maps that bin; 15 or what is nearest without it."
    )
    binning: Binning = Field("equal_width", description="Of the maps that bin.")
    centred: bool = Field(False, description="Isotonic with one point a block.")
    regularisation: float = Field(
        1e-2, ge=1e-8, le=1e8, description="Of dirichlet: off the diagonal and of intercepts."
    )
    ci: float = Field(0.95, gt=0.5, lt=1, description="Level of the interval of the gain.")
    class_: str | None = Field(
        None,
        alias="class",
        max_length=200,
        description="One class against the rest, by name or index.",
    )


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
    standard_errors: dict[str, Any] | None = Field(None, description="Of the parameters.")
    sample: dict[str, Any] | None = Field(
        None, description="Of maps fitted to the kept sample: n, threshold, complete."
    )
    recommendation: Recommendation | None = None
    reason: str | None = None


def map_ask(query: MapQuery, config: ModelConfig) -> ReadQuery:
    """Return the question for a map; a class is named by its index from here on."""
    params = query.params()
    for name in ("partial", "format"):
        params.pop(name, None)
    name = params.pop("class_", None)
    if name is not None:
        params["class"] = class_index(name, config, "/class")
        _refuse_whole(query.method)
    return ReadQuery("calibration_map", config, params, query)


def _refuse_whole(method: str) -> None:
    """Refuse one class of a method that maps whole rows."""
    if "class" not in calibrators.MAPS[method].scopes:
        others = ", ".join(
            name for name, each in calibrators.MAPS.items() if "class" in each.scopes
        )
        detail = (
            f"{method} does not map one class by itself: leave class out, or choose one of {others}"
        )
        raise unanswerable("/class", "one_of", detail)
