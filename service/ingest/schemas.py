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
    probabilities: list[list[float]] | None = Field(
        None, description="A row a prediction, one value a class; rows sum to 1 within 1e-3."
    )
    logits: list[list[float]] | None = Field(None, description="Finite; their softmax is scored.")
    confidences: list[float] | None = Field(None, description="Probability of class 1.")
    labels: list[Label] | None = Field(
        None, description="A class index, or a list with one class index a rater."
    )
    label_counts: list[list[int]] | None = Field(None, description="Votes by class.")
    ids: list[Name] | None = None
    units: list[Name] | None = Field(None, description="What is independent: patient, item.")
    cases: list[Name] | None = Field(None, description="The image or study of a pixel.")
    event_times: list[str] | None = Field(None, description="RFC 3339.")
    slices: dict[str, list[str]] | None = Field(None, description="One list a slice name.")
    weights: list[float] | None = None


class PredictionRecord(BaseModel):
    """One line of NDJSON: one prediction. `batch_id` may stand alone in the first line."""

    model_config = ConfigDict(extra="forbid")

    probability: list[float] | None = None
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
