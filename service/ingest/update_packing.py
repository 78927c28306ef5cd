"""Posted updates: the shapes that the document shows, and one update as packed bytes: histograms of each kind, and panes that were filled
at the edge; specification and size are compared with bounds before anything is unpacked."""

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.histogram import Histogram
from calibrant.core.packing import PackingError
from calibrant.core.pane import Pane
from calibrant.core.pane_envelope import PaneEnvelope
from calibrant.core.pane_validation import check_pane
from calibrant.segmentation.class_histograms import ConfidenceHistogram
from calibrant.segmentation.histogram_updates import FIELDS, read_arrays, updates_of
from calibrant_server.service.http.parameters import Name, SliceKey, TextName
from calibrant_server.service.http.problems import BodyTooLarge
from calibrant_server.service.ingest.model_rules import (
    PIXELS,
    SEGMENTATION,
    reject_unitless_update,
)
from calibrant_server.service.ingest.schemas import Offsets, Source
from calibrant_server.service.reads.queries import Timestamp
from calibrant_server.workers.store.model_config import ModelConfig

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


T = TypeVar("T")
# A pane of a batch takes 4 to 15 times its packed bytes in memory.
MAX_EXPANSION = 32
FREE_CONTENT = 24 * 1024 * 1024  # every fine bin of 64 classes: 17 MiB
MAX_PACKED = 100  # each costs milliseconds


class UnpackingBudget:
    """Packed contents of one request, and the bytes that they may take in memory, together."""

    def __init__(self) -> None:
        self.n = self.n_sent = self.n_content = 0

    def take(self, sent: bytes, content_bytes: int) -> None:
        """Count a packed content, or reject the request."""
        self.n += 1
        self.n_sent += len(sent)
        self.n_content += content_bytes
        if self.n > MAX_PACKED:
            raise BodyTooLarge(
                f"Received more than {MAX_PACKED} packed panes or histograms. Send them in several requests."
            )
        limit = max(FREE_CONTENT, MAX_EXPANSION * self.n_sent)
        if self.n_content > limit:
            raise BodyTooLarge(
                f"Received packed content of {self.n_content} bytes when unpacked; expected at most {limit} in this "
                "request. Send it in several requests."
            )


def decoded(packed: Any, pointer: str) -> bytes:
    """Return the bytes of base64; bytes, which no JSON has, are returned as they are."""
    if isinstance(packed, bytes):
        return packed
    if not isinstance(packed, str):
        raise CalibrationInputError(
            [
                Violation(
                    pointer,
                    "base64",
                    "Received another type for packed; expected a string of base64.",
                )
            ]
        )
    try:
        return base64.b64decode(packed, validate=True)
    except ValueError as error:
        raise CalibrationInputError.at(pointer, "base64", str(error)) from error


def unpacked(unpack: Callable[..., T], packed: Any, pointer: str) -> T:
    """Unpack packed content, or raise its error at `pointer`."""
    try:
        return unpack(packed)
    except PackingError as error:
        raise CalibrationInputError.at(pointer, "packed", str(error)) from error


def read_confidence(
    fields: dict[str, Any],
    n_classes: int | None = None,
    pointer: str = "",
    budget: UnpackingBudget | None = None,
) -> ConfidenceHistogram:
    """Return the confidence histogram of `fields`: their arrays, or what `packed` holds.

    Raises
    ------
    CalibrationInputError
        Both or neither is there, or as `read_arrays`, or the packed one is damaged or of other classes.
    BodyTooLarge
        What is packed is larger than `budget` allows. Default: a budget of its own.
    """
    written = [name for name in (*FIELDS, "exact") if fields.get(name) is not None]
    if fields.get("packed") is None:
        return read_arrays(fields, n_classes, pointer)
    if written:
        detail = f"Received packed and {', '.join(written)}; expected packed alone, which contains them. Leave the others out."
        raise CalibrationInputError.at(f"{pointer}/packed", "one_of", detail)
    place = f"{pointer}/packed"
    data = decoded(fields["packed"], place)
    found, content_bytes = unpacked(ConfidenceHistogram.packed_size, data, place)
    if n_classes is not None and found != n_classes:
        detail = f"Received a histogram of {found} classes; expected {n_classes}, as the model has."
        raise CalibrationInputError.at(place, "shape", detail)
    (budget or UnpackingBudget()).take(data, content_bytes)
    return unpacked(ConfidenceHistogram.unpack, data, place)


def pack_histogram(
    fields: dict[str, Any], config: ModelConfig, pointer: str, budget: UnpackingBudget
) -> list[bytes]:
    if isinstance(fields.get("class"), str) and config.classes:
        fields = {**fields, "class": _class_index(fields["class"], config.classes, pointer)}
    reject_unitless_update(fields, config, pointer)
    return [Histogram.from_fields(fields, config.spec(), pointer).pack()]


def pack_confidence(
    fields: dict[str, Any], config: ModelConfig, pointer: str, budget: UnpackingBudget
) -> list[bytes]:
    reject_unitless_update(fields, config, pointer)
    histogram = read_confidence(fields, config.n_classes, pointer, budget)
    # One empty histogram of the same kind says whether raters, units and case are what they must be.
    plain = {name: fields[name] for name in ("raters", "n_units", "unit", "case") if name in fields}
    bins = config.spec().class_grid.cells
    nothing = dict.fromkeys(("count", "sum_confidence", "sum_correct"), [0.0] * bins)
    header = Histogram.from_fields(
        {"kind": "class", "class": 0, "bins": bins} | nothing | plain, config.spec(), pointer
    )
    of = {"n_units": header.n_units, "unit": header.unit, "case": header.case}
    try:
        return [each.pack() for each in updates_of(histogram, config.spec(), header.policy, **of)]
    except CalibrationInputError as error:
        violations = [replace(each, pointer=pointer + each.pointer) for each in error.violations]
        raise CalibrationInputError(violations) from error


def _class_index(name: str, classes: list[str], pointer: str) -> int:
    if name in classes:
        return classes.index(name)
    detail = f"Received class {name[:40]!r}; expected a class of this model."
    raise CalibrationInputError.at(f"{pointer}/class", "unknown_class", detail)


def pack_pane(
    fields: dict[str, Any], config: ModelConfig, pointer: str, budget: UnpackingBudget
) -> list[bytes]:
    place = f"{pointer}/packed"
    data = decoded(fields.get("packed"), place)
    envelope = unpacked(PaneEnvelope.read, data, place)
    if envelope.spec != config.spec():
        detail = f"Received a pane of {envelope.spec.to_dict()}; expected the model's {config.spec().to_dict()}."
        raise CalibrationInputError.at(place, "spec", detail)
    budget.take(data, unpacked(_content_bytes, envelope, place))
    pane = unpacked(_pane_in, envelope, place)
    if config.task == SEGMENTATION and pane.unit_source not in (None, "named"):
        detail = f"{PIXELS} Name units or cases when you fill the pane."
        raise CalibrationInputError.at(place, "units_required", detail)
    try:
        check_pane(pane, config.spec())
    except CalibrationInputError as error:
        violations = [
            Violation(f"{pointer}{each.pointer}", each.rule, each.detail)
            for each in error.violations
        ]
        raise CalibrationInputError(violations) from error
    return [pane.pack()]


def reject_sampled_total(packed: bytes, pointer: str) -> None:
    """Reject a running total with a sample of rows: the rows of the total that it replaces could not be removed."""
    if "sample" in PaneEnvelope.read(packed).parts:
        detail = "Received a running total with a stored sample; expected none. Fill the pane with sample_bytes=0."
        raise CalibrationInputError.at(f"{pointer}/packed", "total_with_sample", detail)


def _content_bytes(envelope: PaneEnvelope) -> int:
    return envelope.content_bytes


def _pane_in(envelope: PaneEnvelope) -> Pane:
    return Pane.from_parts(envelope.spec, envelope.parts)


PACKERS = {"confidence": pack_confidence, "pane": pack_pane}
