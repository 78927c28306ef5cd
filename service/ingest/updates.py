"""Posted updates of histograms: the shapes that the document shows."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.http.parameters import Name, SliceKey, TextName
from calibrant_server.service.ingest.schemas import Offsets, Source
from calibrant_server.service.reads.queries import Timestamp

Sums = list[float]


class UpdateHead(BaseModel):
    """When and of what an update is: the same for histograms and panes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    event_time: Timestamp | None = Field(
        None, description="RFC 3339. Default: the time of receipt."
    )
    slice: dict[SliceKey, TextName] | None = Field(None, description="Slice name to value.")
    mode: Literal["delta", "cumulative"] = "delta"
    source: Name | None = Field(
        None,
        description="With `cumulative`: sender of the total. With `offsets`: origin of the batch.",
    )
    epoch: int | None = Field(
        None, ge=0, lt=2**53, description="The sender increases it at each restart."
    )
    sequence: int | None = Field(
        None,
        ge=0,
        lt=2**53,
        description="Number of the total. A total with a larger number replaces the stored one.",
    )


class HistogramUpdate(UpdateHead):
    """Sums by bin of one kind of score under one label policy."""

    kind: Literal["top_label", "class", "positive", "uncertainty"] = Field(
        description="`uncertainty`: bins, and `sum_confidence`, are of entropy / log K; 240 bins or a multiple."
    )
    class_: int | str | None = Field(
        None, alias="class", description="Class that the sums describe; with kind `class` only."
    )
    raters: Literal["pooled", "mean", "majority", "single"] = "pooled"
    bins: int
    edges: Literal["right", "left"] = "right"
    count: Sums
    sum_confidence: Sums
    sum_correct: Sums
    n_predictions: list[int] | None = None
    n_units: int | None = Field(
        None,
        description="Independent units. If `count` adds up to no more, the drift alarm uses it as evidence.",
    )
    unit: TextName | None = None
    case: TextName | None = None


class PaneUpdate(UpdateHead):
    """A pane that `calibrant.Pane` filled at the edge: it carries every accumulator."""

    kind: Literal["pane"]
    packed: str = Field(description="`Pane.pack()` in base64.")


class ConfidenceUpdate(UpdateHead):
    """A confidence histogram: every class's probability by class, by whether it is the reference, and by fine bin.

    It counts as one histogram per class, one of the top label and one of the uncertainty, with edges `left`.
    """

    kind: Literal["confidence"]
    raters: Literal["pooled", "mean", "majority", "single"] = "pooled"
    label: list[list[Sums]] | None = Field(
        None,
        description="Mass by class, then incorrect and correct, then fine bin; at least as many fine bins as the grid has cells.",
    )
    prediction: list[Sums] | None = Field(
        None,
        description="Mass of incorrect and of correct predictions, by bin of the top class. For two classes it follows from `label`.",
    )
    uncertainty: list[Sums] | None = Field(
        None,
        description="Mass of incorrect and of correct predictions, by bin of entropy / log K; at least 240 bins.",
    )
    packed: str | None = Field(
        None,
        description="`ConfidenceHistogram.pack()` in base64, instead of the arrays.",
    )
    n_units: int | None = None
    unit: TextName | None = None
    case: TextName | None = None


class SingleHistogramBody(HistogramUpdate):
    """One histogram."""

    batch_id: Name | None = None
    offsets: Offsets = None


class SinglePaneBody(PaneUpdate):
    """One pane."""

    batch_id: Name | None = None
    offsets: Offsets = None


class SingleConfidenceBody(ConfidenceUpdate):
    """One confidence histogram."""

    batch_id: Name | None = None
    offsets: Offsets = None


class HistogramsBody(BaseModel):
    """Several updates, taken together."""

    model_config = ConfigDict(extra="forbid")

    batch_id: Name | None = None
    source: Source = None
    offsets: Offsets = None
    histograms: list[HistogramUpdate | ConfidenceUpdate | PaneUpdate]


HEAD_NAMES = ("event_time", "slice", "mode", "source", "epoch", "sequence")
KINDS = ("top_label", "class", "positive", "uncertainty", "confidence", "pane")


def names_of(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the fields of an update other than those of its head."""
    fields = model.model_fields.items()
    return tuple(field.alias or name for name, field in fields if name not in HEAD_NAMES)


NAMES = dict.fromkeys(
    ("top_label", "class", "positive", "uncertainty"), names_of(HistogramUpdate)
) | {
    "confidence": names_of(ConfidenceUpdate),
    "pane": names_of(PaneUpdate),
}
