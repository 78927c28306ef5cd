"""Posted predictions: the shapes that the document shows, and what a model makes of them.

Bodies are not read through the models here, which would cost more than the rest of a request; they say
in the document what `service/ingest/columns.py` reads.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.batch import Batch, Checked
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.http.identifiers import Name
from calibrant_server.service.ingest.columns import ParsedBatch
from calibrant_server.workers.store.registry import ModelConfig

Label = int | str | list[int | str] | None


class PredictionsBody(BaseModel):
    """A batch as columns of one length; one of probabilities, logits, confidences is required."""

    model_config = ConfigDict(extra="forbid")

    batch_id: Name | None = None
    probabilities: list[list[float]] | list[float] | None = Field(
        None,
        description="One row per prediction with one value per class; rows must sum to 1 within 1e-3 and are then "
        "normalised. For a binary model also a flat list of the probabilities of class 1, the same as `confidences`.",
    )
    logits: list[list[float]] | None = Field(
        None, description="Finite, one row per prediction; their softmax is scored."
    )
    confidences: list[float] | None = Field(None, description="Probability of class 1.")
    labels: list[Label] | None = Field(
        None,
        description="Per prediction a class (index or declared name), a list with one class per rater, or null if not yet known.",
    )
    label_counts: list[list[int]] | None = Field(
        None, description="Ratings by class, one row per prediction; instead of `labels`."
    )
    ids: list[Name] | None = None
    units: list[Name] | None = Field(
        None, description="What is independent of the rest: a patient, an item."
    )
    cases: list[Name] | None = Field(None, description="The image or study of each pixel.")
    event_times: list[str] | None = Field(None, description="RFC 3339.")
    slices: dict[str, list[str]] | None = Field(None, description="One list per slice name.")
    weights: list[float] | None = None


class ListedPrediction(BaseModel):
    """One prediction of a list; one of probabilities, logits and confidence is required."""

    model_config = ConfigDict(extra="forbid")

    id: Name | None = None
    probabilities: list[float] | float | None = Field(
        None, description="One value per class; for a binary model also the probability of class 1."
    )
    logits: list[float] | None = None
    confidence: float | None = Field(None, description="Probability of class 1.")
    label: Label = Field(None, description="A class (index or declared name).")
    labels: list[int | str] | None = Field(None, description="One class per rater.")
    label_counts: list[int] | None = Field(None, description="Ratings by class.")
    unit: Name | None = None
    case: Name | None = None
    event_time: str | None = Field(None, description="RFC 3339.")
    slice: dict[str, str] | None = None
    weight: float | None = None


class RecordsBody(BaseModel):
    """A batch as records, one per prediction."""

    model_config = ConfigDict(extra="forbid")

    batch_id: Name | None = None
    predictions: list[ListedPrediction]


class PredictionRecord(BaseModel):
    """One line of NDJSON: one prediction. `batch_id` may stand alone in the first line."""

    model_config = ConfigDict(extra="forbid")

    probability: list[float] | float | None = Field(
        None, description="One value per class; for a binary model also the probability of class 1."
    )
    logit: list[float] | None = None
    confidence: float | None = None
    label: Label = None
    label_count: list[int] | None = None
    id: Name | None = None
    unit: Name | None = None
    case: Name | None = None
    event_time: str | None = None
    slice: dict[str, str] | None = None
    weight: float | None = None


def checked_batch(posted: ParsedBatch, config: ModelConfig | None, partial: bool) -> Checked:
    """Return the meaning of posted columns, as the model understands them."""
    expected: dict[str, Any] = {}
    if config is not None:
        expected = {
            "task": config.task,
            "n_classes": config.n_classes,
            "class_names": config.classes,
        }
    try:
        return Batch.from_columns(posted.columns, partial=partial, **expected)
    except CalibrationInputError as error:
        raise CalibrationInputError([posted.place(each) for each in error.violations]) from error


# Rows of a partial batch that may be rejected: their errors are listed in the response, and stay readable.
MAX_ROW_ERRORS = 1000


def refuse_too_many(n_accepted: int, violations: list[Violation]) -> None:
    """Refuse a partial batch of which nothing is left, or too much is wrong to be listed."""
    if violations and (n_accepted == 0 or len(violations) > MAX_ROW_ERRORS):
        raise CalibrationInputError(violations)
