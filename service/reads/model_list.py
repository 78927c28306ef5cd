"""Request and response of the list of models."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from calibrant.results.estimate_values import EstimateValues
from calibrant_server.service.http.lists import ListPage, PageQuery
from calibrant_server.service.ingest.cloudevents import CloudEventSettings
from calibrant_server.service.reads.representations import part_of
from calibrant_server.workers.store.model_config import SERVE, Mode, ModelConfig

DETAILED = "With `include=details`."


def has_tag(config: ModelConfig, tag: str | None) -> bool:
    """Return whether a model has a tag, as `name:text`; None: any."""
    name, _, text = (tag or "").partition(":")
    return tag is None or config.tags.get(name) == text


class ModelListQuery(PageQuery):
    """The requested page, and what it has of each model."""

    view: Literal["settings", "status"] = Field(
        "settings",
        description="status: adds the status of each model; error, temperature and labelled share are of the last 7 days.",
    )
    include: Literal["details"] | None = Field(
        None,
        description="details: of each status, the first settings and the sentence about the scores.",
    )
    tag: str | None = Field(
        None,
        pattern=r"^[^:]{1,60}:.",
        max_length=320,
        description="Only models that have this tag, such as `owner:ann`.",
    )
    false_flags: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Maximum expected share of false flags in `flagged` (with view=status).",
    )


class NamedModel(BaseModel):
    """What every list has of a model."""

    model: str
    tags: dict[str, str] | None = Field(None, description="Free texts by name; absent without any.")


class ModelOverview(NamedModel):
    """The first settings of a model."""

    task: str
    n_classes: int
    pane: str
    label_horizon: str | None
    mode: Mode = SERVE
    revision: int


class ModelResponse(ModelOverview):
    """A model with its settings."""

    classes: list[str] | None
    grid: int
    retention: str | None
    slices: dict[str, list[str] | None]
    unit: str | None
    listed_classes: list[int] | None
    composites: dict[str, list[int]] | None = None
    alarm: dict[str, Any] = Field(
        description="Alarm settings; secrets are hidden. Keys without the scope `admin` receive scheme and host of receivers' URLs only."
    )
    cloudevents: CloudEventSettings | None = None
    created_at: str | None
    records: dict[str, int] | None = Field(
        None,
        description="Counts of records retained by id: pending, waiting, joined, expired, conflicts and others.",
    )


class ModelQuery(BaseModel):
    """The settings of a model, without parameters."""

    model_config = ConfigDict(extra="forbid")


class FlaggedDetector(BaseModel):
    """A detector that is flagged in the complete fleet."""

    scope: str | None = Field(description="Class of the detector; null: the score.")
    slice: str | None = Field(description="Slice of the detector; null: all rows.")
    p: float = Field(description="P-value of a change for the worse.")


class ModelStatus(NamedModel):
    """A model with its status, for `view=status`; all settings are in `GET /v1/models/{model}`."""

    task: str | None = Field(None, description=DETAILED)
    n_classes: int | None = Field(None, description=DETAILED)
    pane: str | None = Field(None, description=DETAILED)
    label_horizon: str | None = Field(None, description=DETAILED)
    mode: Mode | None = Field(None, description=DETAILED)
    revision: int | None = Field(None, description=DETAILED)

    status: str | None = Field(
        None,
        description="Derived from the words: insufficient_data, ok, watch or alarm; null if it is not computed yet (`reason`). "
        "It is the last computed one until a newer one is ready, but an open alarm is always `alarm`.",
    )
    calibration: dict[str, Any] | None = Field(
        None,
        description="`word` (good, off, unknown) with its sentence, its number and `n`, the labelled units; "
        "`bounds` if they are a selection: the error with all missing labels at their least and most favourable value.",
    )
    change: dict[str, Any] | None = Field(
        None,
        description="`word` (none_seen, changed, not_armed, no_recent_predictions, no_recent_labels) with its sentence, `start`, "
        "`smallest_change` and `n`.",
    )
    scores: dict[str, Any] | None = Field(
        None,
        description="`word` (shifted, none_seen, unknown) with its number; its sentence if `shifted`, or with `include=details`.",
    )
    error: part_of(EstimateValues, "Estimate") | None = Field(  # type: ignore[valid-type]
        None,
        description="Expected calibration error of the last 7 days, with its interval and null reference.",
    )
    temperature: float | None = Field(
        None, description="Temperature that fits the labels of the last 7 days."
    )
    map_version: int | None = Field(
        None, description="Version of the current map; null if none was promoted."
    )
    label_coverage: float | None = Field(
        None, description="Share of the predictions of the last 7 days that have a label."
    )
    last_seen: str | None = Field(
        None, description="Start of the newest pane that has data; null if none has."
    )
    turned_at: str | None = Field(
        None,
        description="When the status was first found to be another than before, or its alarm was raised if none was known before; else null.",
    )
    as_of: str | None = Field(
        None,
        description="When the status was computed. A page computes at most 50 statuses that are missing or older than the data.",
    )
    flagged: list[FlaggedDetector] | None = Field(
        None,
        description="Detectors that changed, among all detectors of all models of the tenant (Benjamini–Yekutieli), smallest p-value first.",
    )
    reason: str | None = Field(
        None,
        description="Why a result is missing: `not_ready` within 5 s (repeat the request), or `not_computed`.",
    )


class ModelsResponse(ListPage):
    """Models, sorted by id."""

    models: list[ModelStatus] | list[ModelResponse]


def row_of(model: dict[str, Any], status: dict[str, Any], details: bool) -> dict[str, Any]:
    """Return a model's settings and status as a row: without details, at most 1.2 kB at usual lengths of names."""
    shown = ModelOverview if details else NamedModel
    row = {name: model[name] for name in shown.model_fields if name in model} | status
    if details:
        return row
    return row | {"scores": _short(row["scores"])}


def _short(scores: dict[str, Any] | None) -> dict[str, Any] | None:
    names = ["word", "value", "start"]
    if scores and scores.get("word") == "shifted":  # a reason to watch
        names.append("sentence")
    return scores and {name: scores[name] for name in names if scores.get(name) is not None}
