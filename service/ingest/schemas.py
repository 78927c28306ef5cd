"""Request and response models of posted predictions, as the OpenAPI document shows them.

Bodies are not read through these models, which would cost more than the rest of a request. They describe what
`service/ingest/columns.py` reads.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from calibrant_server.service.http.parameters import Name, TextName
from calibrant_server.service.http.problems import ProblemError

Label = int | float | bool | str | list[int | float | bool | str | None] | None
Source = Annotated[
    Name | None,
    Field(
        description="Where the batch comes from, such as a partition of a topic; needs `offsets`."
    ),
]
Offsets = Annotated[
    list[Annotated[int, Field(ge=0)]] | None,
    Field(
        min_length=2,
        max_length=2,
        description="`[from, to)` of the messages in `source`. A batch is accepted if it begins where the previous one ended. Messages "
        "that were accepted before count as a duplicate, without a limit of time.",
    ),
]


MAX_VERSION = 100
ModelVersion = Annotated[
    TextName | None,
    Field(
        description="Version of the model that made the predictions, at most 100 characters. A new one is a dated event of the model.",
        json_schema_extra={
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": MAX_VERSION},
                {"type": "integer"},
                {"type": "null"},
            ]
        },
    ),
]
IgnoreLabel = Annotated[
    int | str | list[int | str] | None,
    Field(description="Labels that are no rating, such as 255 or [255, -100]."),
]
Normalize = Annotated[
    bool,
    Field(
        description="Divide each row of probabilities by its sum, whatever it is. The response states how many rows were divided "
        "and the largest deviation. Default: rows whose sum is off by more than rounding are rejected.",
    ),
]
TimeUnit = Annotated[
    Literal["s", "ms"] | None,
    Field(description="Unit of event times that are numbers, which count from 1970 UTC."),
]

Task = Annotated[
    Literal["multilabel"] | None,
    Field(
        description="`multilabel`: rows of independent events, with one probability and one label, 0, 1 or null, per event. Makes such a "
        "model if there is none; default: as the model declares."
    ),
]


Classes = Annotated[
    list[StrictStr | StrictInt | StrictBool] | None,
    Field(
        description="Name of each class, in the order of the probabilities; labels are then these names."
    ),
]


class BatchFields(BaseModel):
    """Fields of a batch of predictions, next to its rows."""

    model_config = ConfigDict(extra="forbid")

    batch_id: Name | None = None
    task: Task = None
    source: Source = None
    offsets: Offsets = None
    ignore_label: IgnoreLabel = None
    normalize: Normalize = False
    time_unit: TimeUnit = None
    model_version: ModelVersion = None


class PredictionsBody(BatchFields):
    """A batch as columns of one length; one of probabilities, logits, confidences is required."""

    probabilities: list[list[float]] | list[float] | None = Field(
        None,
        description="One row per prediction with one value per class; rows must sum to 1 within the rounding of their "
        "values and are then normalised. For a binary model also a flat list of the probabilities of class 1, the same as `confidences`.",
    )
    logits: list[list[float]] | None = Field(
        None, description="Finite, one row per prediction; their softmax is scored."
    )
    confidences: list[float] | None = Field(None, description="Probability of class 1.")
    labels: list[Label] | None = Field(
        None,
        description="Per prediction a class (index or declared name; 1.0 is 1, and true is 1 of two classes), a list with one class "
        "per rater, null for a missing rating, or null if not yet known. One-hot rows are rejected.",
    )
    label_counts: list[list[int]] | None = Field(
        None, description="Ratings by class, one row per prediction; instead of `labels`."
    )
    label_shares: list[list[float]] | None = Field(
        None,
        description="Shares of the classes, which sum to 1, instead of `labels`. A model stores the ratings that they are with `n_ratings`; "
        "scored, `raters` is `pooled` or `mean`.",
    )
    n_ratings: list[int] | None = Field(
        None,
        description="Ratings of each row of `label_shares`. Only of scored rows there is a default: one that is divided; null references "
        "and what else depends on the number are then absent (reason `label_shares`).",
    )
    ids: list[TextName] | None = None
    units: list[TextName] | None = Field(
        None, description="What is independent of the rest: a patient, an item."
    )
    cases: list[TextName] | None = Field(None, description="The image or study of each pixel.")
    event_times: list[str | float] | None = Field(
        None, description="RFC 3339 with an offset, or numbers in `time_unit`."
    )
    slices: dict[str, list[str | int]] | None = Field(None, description="One list per slice name.")
    weights: list[float] | None = None


class RowFields(BaseModel):
    """Fields of one prediction, whatever the name of its scores."""

    model_config = ConfigDict(extra="forbid")

    id: TextName | None = None
    confidence: float | None = Field(None, description="Probability of class 1.")
    label: Label = Field(None, description="A class (index or declared name).")
    unit: TextName | None = None
    case: TextName | None = None
    event_time: str | float | None = Field(
        None, description="RFC 3339 with an offset, or a number in `time_unit`."
    )
    slice: dict[str, str | int] | None = None
    weight: float | None = None
    label_shares: list[float] | None = None
    n_ratings: int | None = None


Scores = Annotated[
    list[float] | float | None,
    Field(description="One value per class; for a binary model also the probability of class 1."),
]


class ListedPrediction(RowFields):
    """One prediction of a list; one of probabilities, logits and confidence is required."""

    probabilities: Scores = None
    logits: list[float] | None = None
    labels: list[int | float | bool | str | None] | None = Field(
        None, description="One class per rater, null for a missing rating."
    )
    label_counts: list[int] | None = Field(None, description="Ratings by class.")


class RecordsBody(BatchFields):
    """A batch as records, one per prediction."""

    predictions: list[ListedPrediction]


class PredictionRecord(RowFields):
    """One line of NDJSON: one prediction. Fields of the batch, such as `batch_id`, `source` and `offsets`, may be alone in the first line."""

    probability: Scores = None
    logit: list[float] | None = None
    label_count: list[int] | None = None


class IngestQuery(BaseModel):
    """Query of an operation that takes a batch."""

    model_config = ConfigDict(extra="forbid")

    partial: bool = Field(
        False, description="Accept the valid rows and return the errors of the others."
    )


class IgnoringQuery(IngestQuery):
    """Query of an operation that takes labels."""

    ignore_label: str | None = Field(
        None,
        max_length=400,
        description="The same as `ignore_label` of a body; several with commas.",
        examples=["255,-100"],
    )


class ValuesQuery(IgnoringQuery):
    """Query of an operation that takes scores or labels whose values may be read in another way."""

    normalize: bool = Field(False, description="The same as `normalize` of a body.")


class ReadingQuery(ValuesQuery):
    """Query of an operation that takes a batch with event times."""

    time_unit: TimeUnit = None


class SourceQuery(IngestQuery):
    """Query of an operation that takes numbered messages of a source."""

    source: str | None = Field(
        None, description="The same as `source` of a body, for bodies without fields."
    )
    offsets: str | None = Field(
        None, description="The same as `offsets` of a body.", examples=["100,250"]
    )


class PredictionsQuery(SourceQuery, ReadingQuery):
    """Query of an operation that takes predictions."""

    model_version: str | None = Field(None, description="The same as `model_version` of a body.")
    task: Task = None


class PackedPaneQuery(SourceQuery):
    """Query of an operation that also takes one packed pane as its body."""

    event_time: str | None = Field(
        None, description="RFC 3339; of a packed pane. Default: the time of receipt."
    )
    slice: str | None = Field(
        None, description="`key:value`, of a packed pane; several with commas.", examples=["site:A"]
    )


class ValueNotes(BaseModel):
    """How values of a batch were read."""

    n_adjusted: int = Field(
        0, description="Values outside [0, 1] by rounding, which were set to the bound."
    )
    n_normalised: int = Field(0, description="Rows that were divided by their sum.")
    largest_deviation: float = Field(0, description="Of a divided row's sum from 1.")
    warnings: list[str] = Field(
        [],
        description="`possibly_one_hot`: the rows look one-hot, and count as ratings of several raters who disagree.",
    )


class IngestResponse(ValueNotes):
    """Status of a batch."""

    model: str
    batch_id: str
    status: str = Field(
        description="accepted, parked, merged, rejected or dead_lettered. Parked: stored, and merged once an operator replays it"
    )
    accepted: int
    rejected: int
    duplicate: bool = Field(
        description="The same id and content had arrived before; nothing was counted."
    )
    durability: str = Field(
        description="`everysec`, `replicated` or `fsync`: what a crash can lose."
    )
    duplicate_reason: Literal["offsets_accepted"] | None = Field(
        None, description="The batch id is new, and its messages were accepted before."
    )
    stale: bool | None = Field(
        None, description="Only for running totals: a later total had arrived before."
    )
    duplicate_rows: int = Field(0, description="Rows whose id and content had arrived before.")
    stale_rows: int = Field(0, description="Ratings older than the stored ones of the same raters.")
    conflicts: int = Field(0, description="Rows whose id had arrived before with other content.")
    joined: int | None = Field(
        None,
        description='Only of labels that are merged: rows whose prediction was stored. Ids are compared as texts: 1 and "1" are one '
        'id, "1.0" is another.',
    )
    waiting: int | None = Field(
        None, description="Only of labels that are merged: rows whose prediction had not arrived."
    )
    notice: str | None = Field(None, description="Only if rows wait: what that means.")
    slices_other: dict[str, int] = Field(
        {}, description="By slice key, rows whose value is beyond the limit: they fill key:other."
    )
    errors: list[ProblemError]
