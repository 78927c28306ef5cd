"""Options of rows at `POST /v1/score`: in its body, or in the query where the body has no fields."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from calibrant.core.query import Option
from calibrant.estimators.roc import MAX_POINTS
from calibrant.input.names import MAX_LENGTH
from calibrant.metrics import OPTIONS, requested
from calibrant.peers import PEERS
from calibrant_server.service.http.validation_errors import validated
from calibrant_server.service.ingest.parsed_batch import ParsedBatch

COMPOSITE = r"^[A-Za-z0-9._-]{1,60}$"


class LossFactors(BaseModel):
    """Factors of the terms of the weighted sum."""

    model_config = ConfigDict(extra="forbid")

    ace: float = Field(1, ge=0, le=1e6, description="Factor of the term that `membership` selects.")
    dice: float = Field(1, ge=0, le=1e6)
    cross_entropy: float = Field(1, ge=0, le=1e6)


class SectionOptions(BaseModel):
    """Options of the included results."""

    model_config = ConfigDict(extra="forbid", strict=True)

    metric: str | None = Field(
        None,
        max_length=400,
        description="For `stability`, `stability_by_case` and `by_case`: a metric as in `metrics`. Default: ece.",
    )
    subsets: Literal["nested", "independent"] | None = Field(
        None, description="For `stability` and `stability_by_case`: how subsets are drawn."
    )
    points: int | None = Field(
        None, ge=2, le=MAX_POINTS, description="For `roc`: maximum number of points."
    )
    frequency_bins: int | None = Field(
        None, ge=1, le=100, description="For `cases`: bins of the observed frequency."
    )
    case: str | None = Field(
        None, max_length=MAX_LENGTH, description="For `cases`: name of a case whose table is added."
    )
    packed: bool = Field(
        False,
        description="For `confidence_histogram`: return its 2^14 bins, packed as `POST /v1/models/{model}/histograms` takes them.",
    )
    sensitivity: bool = Field(
        False, description="For `cases`: also return the averages at 5, 10, 20, 50 and 100 bins."
    )
    composites: dict[Annotated[str, Field(pattern=COMPOSITE)], list[int]] | None = Field(
        None,
        description='Unions of classes instead of the classes of cases: {"whole": [1, 2], "core": [2]}.',
    )
    loss_weights: LossFactors | None = Field(
        None, description="For `losses`: factors of the terms. Default: 1 each."
    )
    gradients: Literal["probabilities", "logits"] | None = Field(
        None,
        description="For `losses`: return the derivatives by probabilities or by logits. Default: no derivatives.",
    )
    compat: Literal[tuple(PEERS)] | None = Field(  # type: ignore[valid-type]
        None,
        description="For `compat`: compute metrics as this library does. Default: all libraries.",
    )


def _option_field(option: Option) -> Any:
    kind: Any = Literal[option.allowed] if option.allowed else option.type
    limits: dict[str, Any] = (
        {"ge": option.low, "le": option.high} if option.type is not str else {"max_length": 200}
    )
    given = {
        name: limit for name, limit in limits.items() if limit is not None and not option.allowed
    }
    return (
        kind | None,
        Field(None, description=f"{option.description} Default: {option.default}.", **given),
    )


# One source: the options that the metrics declare are those that a body may set for all of them.
_OPTION_FIELDS: dict[str, Any] = {
    name: _option_field(option) for name, option in sorted(OPTIONS.items())
}
ScoreOptions = create_model(
    "ScoreOptions",
    __base__=SectionOptions,
    __doc__="Options of every metric that takes them (brackets of a metric have precedence), and of `include`.",
    **_OPTION_FIELDS,
)


def options_in(posted: ParsedBatch) -> dict[str, Any]:
    """Return the options of a batch, or raise every rule that they break."""
    if posted.options is None:
        return {}
    place = posted.options_at
    options = validated(ScoreOptions, posted.options, tuple(place)).model_dump(exclude_none=True)
    if "metric" in options:
        requested([options["metric"]], f"/{'/'.join(place)}/metric")
    return options
