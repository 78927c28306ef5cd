"""Histogram updates: what a client has already reduced, as sums by bin or as packed panes."""

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibrant.errors import CalibrationInputError, Offence
from calibrant.histogram import Histogram
from calibrant.packing import PackingError
from calibrant.pane import Pane
from service.bodies import NDJSON, Body
from service.columns import batch_id_of, object_of, refuse_unknown
from service.dependencies import IdempotencyKey, Ingester, Prefer, TheReception
from service.document import answers, problems, takes
from service.documents import read_json, read_ndjson
from service.errors import BodyTooLarge, ModelUnknown
from service.names import ModelId
from service.posted import Name, refuse_too_many
from service.problem_responses import offence_of
from service.queries import Instant
from service.reception import (
    Circumstances,
    IngestAnswer,
    IngestQuery,
    Load,
    Sender,
    digest_of,
    digest_of_all,
)
from service.rules import (
    SEGMENTATION,
    UNITS_REQUIRED,
    refuse_undeclared_update,
    refuse_unitless_update,
)
from workers.entries import HISTOGRAMS, PANE, Update, pack_updates
from workers.state.registry import ModelConfig
from workers.windows import pane_start

router = APIRouter(tags=["ingest"], default_response_class=Response)

MAX_UPDATES = 10_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Sums = list[float]


class UpdateHead(BaseModel):
    """When and of what an update is: the same for histograms and panes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    event_time: Instant | None = Field(
        None, description="RFC 3339; the time of receipt without it."
    )
    slice: dict[Name, Name] | None = Field(None, description="Slice name to value.")
    mode: Literal["delta", "cumulative"] = "delta"
    source: Name | None = Field(None, description="Who counts; with `cumulative`.")
    epoch: int | None = Field(None, ge=0, lt=2**53, description="Raised by a restart.")
    sequence: int | None = Field(None, ge=0, lt=2**53, description="A larger one replaces.")


class HistogramUpdate(UpdateHead):
    """Sums by bin of one kind of score under one label policy."""

    kind: Literal["top_label", "class", "positive"]
    class_: int | str | None = Field(None, alias="class", description="With kind `class`.")
    raters: Literal["pooled", "mean", "majority", "single"] = "pooled"
    bins: int
    edges: Literal["right", "left"] = "right"
    count: Sums
    sum_confidence: Sums
    sum_correct: Sums
    n_predictions: list[int] | None = None
    n_units: int | None = None
    unit: Name | None = None
    case: Name | None = None


class PaneUpdate(UpdateHead):
    """A pane that `calibrant.Pane` filled at the edge: it carries every accumulator."""

    kind: Literal["pane"]
    packed: str = Field(description="`Pane.pack()` in base64.")


class SingleHistogramBody(HistogramUpdate):
    """One histogram."""

    batch_id: Name | None = None


class SinglePaneBody(PaneUpdate):
    """One pane."""

    batch_id: Name | None = None


class HistogramsBody(BaseModel):
    """Several updates, taken together."""

    model_config = ConfigDict(extra="forbid")

    batch_id: Name | None = None
    histograms: list[HistogramUpdate | PaneUpdate]


HEAD_NAMES = ("event_time", "slice", "mode", "source", "epoch", "sequence")
HISTOGRAM_NAMES = tuple(
    field.alias or name
    for name, field in HistogramUpdate.model_fields.items()
    if name not in HEAD_NAMES
)
PANE_NAMES = ("kind", "packed")
KINDS = ("top_label", "class", "positive", "pane")


@router.post(
    "/v1/models/{model}/histograms",
    operation_id="ingestHistograms",
    status_code=202,
    responses={
        200: answers(IngestAnswer, "The updates are merged", Preference_Applied="wait=S"),
        202: answers(IngestAnswer, "The updates are accepted", Location="The batch."),
        **problems(408, 409, 413, 415, 422, 429),
    },
    openapi_extra=takes(
        "Updates",
        json=(HistogramsBody, SingleHistogramBody, SinglePaneBody),
        ndjson=HistogramUpdate,
    ),
)
async def ingest_histograms(
    model: ModelId,
    request: Request,
    caller: Ingester,
    query: Annotated[IngestQuery, Query()],
    reception: TheReception,
    prefer: Prefer = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Take increments or running totals of histograms, or panes filled at the edge."""
    return await reception.take(request, Sender(caller, model), query.partial, load_histograms)


def load_histograms(body: Body, given: Circumstances) -> Load:
    """Return the updates that a body holds, or raise every rule that they break."""
    batch_id, placed = _updates_of(body, given)
    kind = _kind_of(placed)
    config = given.config or _config_for(placed, given.sender)
    updates: list[Update] = []
    pointers: list[str] = []
    rejected: list[dict] = []
    offences: list[Offence] = []
    for pointer, fields in placed:
        try:
            updates.append(_update(fields, config, pointer, given))
            pointers.append(pointer)
        except CalibrationInputError as error:
            rejected.append(fields)
            offences += error.offences[: 1 if given.partial else None]
    if offences and not given.partial:
        raise CalibrationInputError(offences)
    refuse_too_many(len(updates), offences, given.settings.max_row_errors)
    _check_panes(updates, config, given)
    placed_updates = [replace(update, at=pointer) for pointer, update in zip(pointers, updates, strict=True)]
    digest = digest_of_all(digest_of(pack_updates(updates)), rejected)
    return Load(config, kind, pack_updates(placed_updates), digest, len(updates), offences, batch_id)


def _kind_of(placed: list[tuple[str, dict]]) -> str:
    """Return the kind of all updates; panes and histograms are not taken together."""
    is_pane = [fields.get("kind") == "pane" for _, fields in placed]
    if all(is_pane):
        return PANE
    if any(is_pane):
        pointer = placed[is_pane.index(True)][0]
        detail = "Panes and histograms are sent in batches of their own."
        raise CalibrationInputError([Offence(f"{pointer}/kind", "mixed_kinds", detail)])
    return HISTOGRAMS


def _updates_of(body: Body, given: Circumstances) -> tuple[str | None, list[tuple[str, dict]]]:
    """Return the batch id and each update with the pointer to it."""
    max_objects = 3 * given.settings.max_rows + 100
    if body.media_type == NDJSON:
        batch_id, placed = _from_lines(*read_ndjson(body.data, max_objects))
    else:
        batch_id, placed = _from_document(object_of(read_json(body.data, max_objects)))
    if len(placed) > MAX_UPDATES:
        raise BodyTooLarge(f"At most {MAX_UPDATES} updates are taken in one request.")
    if not placed:
        raise CalibrationInputError(
            [Offence("/histograms", "empty", "There is no update to take.")]
        )
    return batch_id, placed


def _from_lines(records: list[dict], lines: list[int]) -> tuple[str | None, list[tuple[str, dict]]]:
    placed = [(f"/{line}", record) for line, record in zip(lines, records, strict=True)]
    if placed and set(records[0]) == {"batch_id"}:
        return batch_id_of(records[0]), placed[1:]
    return None, placed


def _from_document(document: dict) -> tuple[str | None, list[tuple[str, dict]]]:
    batch_id = batch_id_of(document)
    if "histograms" not in document:
        return batch_id, [("", {k: v for k, v in document.items() if k != "batch_id"})]
    refuse_unknown(document, ("batch_id", "histograms"))
    histograms = document["histograms"]
    if not isinstance(histograms, list) or not all(isinstance(each, dict) for each in histograms):
        detail = "histograms must be a list of objects."
        raise CalibrationInputError([Offence("/histograms", "list", detail)])
    return batch_id, [(f"/histograms/{i}", each) for i, each in enumerate(histograms)]


def _update(
    fields: dict[str, Any], config: ModelConfig, pointer: str, given: Circumstances
) -> Update:
    """Return one update as the store takes it."""
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        detail = f"kind must be one of {', '.join(KINDS)}."
        raise CalibrationInputError([Offence(f"{pointer}/kind", "unknown_value", detail)])
    names = PANE_NAMES if kind == "pane" else HISTOGRAM_NAMES
    refuse_unknown(fields, (*names, *HEAD_NAMES), pointer)
    head = _head({k: v for k, v in fields.items() if k in HEAD_NAMES}, pointer)
    _check_head(head, kind, pointer)
    refuse_undeclared_update(head.slice, config, f"{pointer}/slice")
    rest = {k: v for k, v in fields.items() if k not in HEAD_NAMES}
    packed = (_pane if kind == "pane" else _histogram)(rest, config, pointer)
    update = Update(
        packed=packed,
        event_time_us=None if head.event_time is None else _microseconds(head.event_time),
        slices=head.slice,
        source=head.source,
        epoch=head.epoch,
        sequence=head.sequence,
    )
    _check_time(update, config, pointer, given)
    return update


def _histogram(fields: dict[str, Any], config: ModelConfig, pointer: str) -> bytes:
    if isinstance(fields.get("class"), str) and config.classes:
        fields = {**fields, "class": _class_index(fields["class"], config.classes, pointer)}
    refuse_unitless_update(fields, config, pointer)
    return Histogram.from_fields(fields, config.spec(), pointer).pack()


def _class_index(name: str, classes: list[str], pointer: str) -> int:
    if name in classes:
        return classes.index(name)
    detail = f"{name[:40]!r} is not a class of this model."
    raise CalibrationInputError([Offence(f"{pointer}/class", "unknown_class", detail)])


def _pane(fields: dict[str, Any], config: ModelConfig, pointer: str) -> bytes:
    pane = _read_pane(fields.get("packed"), f"{pointer}/packed")
    if pane.spec != config.spec():
        detail = (
            f"the pane was made for {pane.spec.to_dict()}, the model is {config.spec().to_dict()}"
        )
        raise CalibrationInputError([Offence(f"{pointer}/packed", "spec", detail)])
    if config.task == SEGMENTATION and pane.counts["n_unit_from_row"]:
        detail = f"{UNITS_REQUIRED} units or cases when filling the pane"
        raise CalibrationInputError([Offence(f"{pointer}/packed", "units_required", detail)])
    try:
        pane.check(config.spec())
    except CalibrationInputError as error:
        offences = [Offence(f"{pointer}{each.pointer}", each.rule, each.detail) for each in error.offences]
        raise CalibrationInputError(offences) from error
    return pane.pack()


def _read_pane(packed: Any, pointer: str) -> Pane:
    if not isinstance(packed, str):
        raise CalibrationInputError([Offence(pointer, "base64", "packed must be base64.")])
    try:
        return Pane.unpack(base64.b64decode(packed, validate=True))
    except PackingError as error:
        raise CalibrationInputError([Offence(pointer, "packed", str(error))]) from error
    except ValueError as error:
        raise CalibrationInputError([Offence(pointer, "base64", str(error))]) from error


def _head(fields: dict[str, Any], pointer: str) -> UpdateHead:
    """Return when, of which slices and under which running total an update counts."""
    try:
        return UpdateHead.model_validate(fields)
    except ValidationError as error:
        offences = [offence_of({**each, "loc": ("body", *each["loc"])}) for each in error.errors()]
        raise CalibrationInputError(
            [replace(each, pointer=pointer + each.pointer) for each in offences]
        ) from error


def _check_head(head: UpdateHead, kind: str, pointer: str) -> None:
    """Running totals name source, epoch and sequence; increments name none; panes only add."""
    cumulative = head.mode == "cumulative"
    offences = []
    if head.event_time is not None and head.event_time < EPOCH:
        offences.append(Offence(f"{pointer}/event_time", "rfc3339", "an event time lies after 1970"))
    for key in head.slice or {}:
        if ":" in key:
            detail = "a slice key has no colon, which parts it from its value"
            offences.append(Offence(f"{pointer}/slice/{key}", "name", detail))
    if cumulative and kind == "pane":
        detail = "a pane is an increment; running totals are plain histograms"
        offences.append(Offence(f"{pointer}/mode", "cumulative", detail))
    for name in ("source", "epoch", "sequence"):
        if (getattr(head, name) is not None) != cumulative:
            need = "is needed with" if cumulative else "belongs to"
            detail = f"{name} {need} mode 'cumulative'"
            offences.append(Offence(f"{pointer}/{name}", "cumulative", detail))
    if offences:
        raise CalibrationInputError(offences)


def _check_time(update: Update, config: ModelConfig, pointer: str, given: Circumstances) -> None:
    """Refuse an update of the future, and one that retention would drop at once."""
    if update.event_time_us is None:
        return
    age_s = given.received_at.timestamp() - update.event_time_us / 1e6
    if age_s < -given.limits.future_skew_s:
        rule, detail = "future", "event_time lies in the future"
    elif config.retention_s is not None and age_s > config.retention_s + config.pane_s:
        rule, detail = "retention", "event_time lies before the model's retention"
    else:
        return
    raise CalibrationInputError([Offence(f"{pointer}/event_time", rule, detail)])


def _check_panes(updates: list[Update], config: ModelConfig, given: Circumstances) -> None:
    """Refuse updates of more panes than one commit may hold."""
    received_us = _microseconds(given.received_at)
    refs = set()
    for update in updates:
        at_us = received_us if update.event_time_us is None else update.event_time_us
        start_s = pane_start(at_us, config.pane_s)
        refs |= {(pair, start_s) for pair in (None, *(update.slices or {}).items())}
    limit = given.limits.max_panes
    if len(refs) > limit:
        detail = f"the updates touch {len(refs)} panes, slices counted; at most {limit}: split them"
        raise CalibrationInputError([Offence("/histograms", "too_many_panes", detail)])


def _microseconds(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)


def _config_for(placed: list[tuple[str, dict]], sender: Sender) -> ModelConfig:
    """Return the model that a first body of panes makes; plain histograms do not say enough."""
    pointer, fields = placed[0]
    if fields.get("kind") != "pane":
        raise ModelUnknown(
            "There is no model with this id, and a histogram does not say its task, classes and grid: "
            "make the model first with PUT."
        )
    spec = _read_pane(fields.get("packed"), f"{pointer}/packed").spec
    listed = None if spec.listed_classes is None else list(spec.listed_classes)
    return ModelConfig(
        sender.caller.tenant,
        sender.model,
        spec.task,
        spec.n_classes,
        grid=spec.grid,
        listed_classes=listed,
    )
