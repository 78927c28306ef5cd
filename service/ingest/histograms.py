"""Updates of a histograms body: checked and packed, as the engine takes them; each with the pointer to it in the body."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.pane_envelope import PaneEnvelope
from calibrant.core.routing import pane_start
from calibrant.input.timestamps import OUT_OF_RANGE
from calibrant_server.service.http.bodies import NDJSON, Body
from calibrant_server.service.http.bodies import PANE as PACKED_PANE
from calibrant_server.service.http.json_bodies import read_json, read_ndjson
from calibrant_server.service.http.problem_responses import validated
from calibrant_server.service.http.problems import BodyTooLarge, InvalidQuery, ModelUnknown
from calibrant_server.service.ingest.body_reading import ORIGIN_FIELDS, origin_of, origin_of_query
from calibrant_server.service.ingest.model_rules import (
    microseconds,
    reject_too_many,
    reject_undeclared_update,
)
from calibrant_server.service.ingest.parsed_batch import (
    batch_id_of,
    object_of,
    quoted,
    reject_unknown,
)
from calibrant_server.service.ingest.schemas import PackedPaneQuery
from calibrant_server.service.ingest.service import (
    IngestContext,
    digest_of,
    digest_of_all,
)
from calibrant_server.service.ingest.update_packing import (
    HEAD_NAMES,
    KINDS,
    NAMES,
    PACKERS,
    UnpackingBudget,
    UpdateHead,
    decoded,
    pack_histogram,
    reject_sampled_total,
    unpacked,
)
from calibrant_server.workers.ingest.entries import HISTOGRAMS, PANE, IngestBatch, SourceOffsets
from calibrant_server.workers.ingest.payloads import PackedUpdate, pack_updates
from calibrant_server.workers.store.model_config import ModelConfig

MAX_UPDATES = 10_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class BatchHead:
    """What a body states of the batch as a whole."""

    batch_id: str | None = None
    origin: SourceOffsets | None = None

    @classmethod
    def of(cls, document: dict[str, Any]) -> "BatchHead":
        """Read the fields of the batch."""
        return cls(batch_id_of(document), origin_of(document))


class PlacedUpdate(NamedTuple):
    """An update of a body as sent, and the pointer to it."""

    pointer: str
    fields: dict[str, Any]


def load_histograms(body: Body, context: IngestContext, query: PackedPaneQuery) -> IngestBatch:
    """Return the updates that a body holds, or raise every rule that they break."""
    if body.media_type == PACKED_PANE:
        try:
            head = BatchHead(None, origin_of_query(query))
            return _prepared(head, [PlacedUpdate("", _pane_fields(body, query))], context)
        except CalibrationInputError as error:
            raise error.each(_in_the_body) from error
    for name in ("event_time", "slice", *ORIGIN_FIELDS):
        if getattr(query, name) not in (None, ""):
            detail = (
                f"Received {name} in the query; expected it in the body, except of {PACKED_PANE}."
            )
            raise InvalidQuery(detail, errors=[Violation(f"/{name}", "pane_only", detail)])
    return _prepared(*_updates_of(body, context), context)


def _pane_fields(body: Body, query: PackedPaneQuery) -> dict[str, Any]:
    """Return the pane that is a body as an update."""
    slices: dict[str, str] = {}
    for each in query.slice.split(",") if query.slice else ():
        key, _, value = each.partition(":")
        if key in slices:
            detail = f"Received slice {quoted(key)} twice; expected one value per key."
            raise InvalidQuery(detail, errors=[Violation("/slice", "repeated_slice", detail)])
        slices[key] = value
    head = {"event_time": query.event_time, "slice": slices or None}
    return {"kind": "pane", "packed": body.data} | {k: v for k, v in head.items() if v}


def _in_the_body(violation: Violation) -> Violation:
    """Return a violation of a pane that is the body itself."""
    pointer = "" if violation.pointer == "/packed" else violation.pointer
    return replace(violation, pointer=pointer)


def _prepared(batch: BatchHead, placed: list[PlacedUpdate], context: IngestContext) -> IngestBatch:
    """Return the batch of updates with the pointer to each."""
    kind = _kind_of(placed)
    config = context.config or _config_for(placed, context)
    updates: list[PackedUpdate] = []
    pointers: list[str] = []
    rejected: list[dict[str, Any]] = []
    violations: list[Violation] = []
    n_accepted = 0
    budget = UnpackingBudget()
    for pointer, fields in placed:
        try:
            made = _updates(fields, config, pointer, context, budget)
            updates += made
            pointers += [pointer] * len(made)
            n_accepted += 1
            if len(updates) > MAX_UPDATES:
                raise BodyTooLarge(
                    f"Received more than {MAX_UPDATES} updates, one per class; expected at most {MAX_UPDATES}. Split the request."
                )
        except CalibrationInputError as error:
            rejected.append(fields)
            violations += error.violations[: 1 if context.partial else None]
    if violations and not context.partial:
        raise CalibrationInputError(violations)
    reject_too_many(n_accepted, violations, len(rejected))
    _check_panes(updates, config, context)
    placed_updates = [
        replace(update, at=pointer) for pointer, update in zip(pointers, updates, strict=True)
    ]
    digest = digest_of_all(digest_of(pack_updates(updates)), rejected)
    return context.batch(
        config,
        kind,
        pack_updates(placed_updates),
        digest,
        n_accepted,
        batch_id=batch.batch_id,
        violations=violations,
        origin=batch.origin,
    )


def _kind_of(placed: list[PlacedUpdate]) -> str:
    """Return the kind of all updates; panes and histograms are not taken together."""
    is_pane = [fields.get("kind") == "pane" for _, fields in placed]
    if all(is_pane):
        return PANE
    if any(is_pane):
        pointer = placed[is_pane.index(True)].pointer
        detail = "Received panes and histograms in one batch; expected one kind. Send two batches."
        raise CalibrationInputError.at(f"{pointer}/kind", "mixed_kinds", detail)
    return HISTOGRAMS


def _updates_of(body: Body, context: IngestContext) -> tuple[BatchHead, list[PlacedUpdate]]:
    """Return what the body states of the batch, and each update with the pointer to it."""
    max_objects = context.settings.max_objects
    if body.media_type == NDJSON:
        head, placed = _from_lines(*read_ndjson(body.data, max_objects))
    else:
        head, placed = _from_document(object_of(read_json(body.data, max_objects)))
    if len(placed) > MAX_UPDATES:
        raise BodyTooLarge(
            f"Received {len(placed)} updates; expected at most {MAX_UPDATES}. Split the request."
        )
    if not placed:
        raise CalibrationInputError.at(
            "/histograms", "empty", "Received no updates; expected at least one."
        )
    return head, placed


def _from_lines(
    records: list[dict[str, Any]], lines: list[int]
) -> tuple[BatchHead, list[PlacedUpdate]]:
    placed = [PlacedUpdate(f"/{line}", record) for line, record in zip(lines, records, strict=True)]
    if placed and records[0] and records[0].keys() <= {"batch_id", *ORIGIN_FIELDS}:
        return BatchHead.of(records[0]), placed[1:]
    return BatchHead(), placed


def _from_document(document: dict[str, Any]) -> tuple[BatchHead, list[PlacedUpdate]]:
    if "histograms" not in document:
        if "kind" not in document:
            detail = f"Received no kind; expected one of {', '.join(KINDS)}. Send several updates as a list in histograms."
            raise CalibrationInputError.at("/kind", "required", detail)
        # Without offsets, the source is that of a running total.
        own = {"batch_id", *ORIGIN_FIELDS}
        if "offsets" not in document:
            own.remove("source")
        head = BatchHead.of({k: v for k, v in document.items() if k in own})
        return head, [PlacedUpdate("", {k: v for k, v in document.items() if k not in own})]
    reject_unknown(document, ("batch_id", *ORIGIN_FIELDS, "histograms"))
    histograms = document["histograms"]
    if not isinstance(histograms, list) or not all(isinstance(each, dict) for each in histograms):
        detail = "Received another type; expected a list of objects."
        raise CalibrationInputError.at("/histograms", "list", detail)
    return BatchHead.of(document), [
        PlacedUpdate(f"/histograms/{i}", each) for i, each in enumerate(histograms)
    ]


def _updates(
    fields: dict[str, Any],
    config: ModelConfig,
    pointer: str,
    context: IngestContext,
    budget: UnpackingBudget,
) -> list[PackedUpdate]:
    """Return one update as the store takes it; a confidence histogram is several."""
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        detail = f"Received another kind; expected one of {', '.join(KINDS)}."
        raise CalibrationInputError.at(f"{pointer}/kind", "unknown_value", detail)
    reject_unknown(fields, (*NAMES[kind], *HEAD_NAMES), pointer)
    head = _head({k: v for k, v in fields.items() if k in HEAD_NAMES}, pointer)
    _check_head(head, kind, pointer)
    reject_undeclared_update(head.slice, config, f"{pointer}/slice")
    rest = {k: v for k, v in fields.items() if k not in HEAD_NAMES}
    packings = PACKERS.get(kind, pack_histogram)(rest, config, pointer, budget)
    if kind == "pane" and head.mode == "cumulative":
        reject_sampled_total(packings[0], pointer)
    made = [
        PackedUpdate(
            packed=packed,
            event_time_us=None if head.event_time is None else microseconds(head.event_time),
            slices=head.slice,
            source=head.source,
            epoch=head.epoch,
            sequence=head.sequence,
        )
        for packed in packings
    ]
    _check_time(made[0], config, pointer, context)
    return made


def _head(fields: dict[str, Any], pointer: str) -> UpdateHead:
    """Return the time, the slices and the running total of an update."""
    try:
        return validated(UpdateHead, fields)
    except CalibrationInputError as error:
        raise error.each(lambda each: replace(each, pointer=pointer + each.pointer)) from error


def _check_head(head: UpdateHead, kind: str, pointer: str) -> None:
    """Running totals name source, epoch and sequence; increments name none."""
    cumulative = head.mode == "cumulative"
    violations = []
    if head.event_time is not None and head.event_time < EPOCH:
        violations.append(Violation(f"{pointer}/event_time", *OUT_OF_RANGE))
    for key in head.slice or {}:
        if ":" in key:
            detail = "Received a key with a colon; expected none: a colon separates key and value."
            violations.append(Violation(f"{pointer}/slice/{key}", "name", detail))
    for name in ("source", "epoch", "sequence"):
        if (getattr(head, name) is not None) != cumulative:
            detail = (
                f"Received mode 'cumulative' without {name}; expected it."
                if cumulative
                else f"Received {name} without mode 'cumulative'. Omit it, or send the mode."
            )
            violations.append(Violation(f"{pointer}/{name}", "cumulative", detail))
    if violations:
        raise CalibrationInputError(violations)


def _check_time(
    update: PackedUpdate, config: ModelConfig, pointer: str, context: IngestContext
) -> None:
    """Reject an update of the future, and one that retention would drop at once."""
    if update.event_time_us is None:
        return
    age_s = context.received_at.timestamp() - update.event_time_us / 1e6
    if age_s < -context.limits.future_skew_s:
        rule, detail = (
            "future",
            "Received an event_time in the future; expected a past one. Check the sender's clock.",
        )
    elif config.retention_s is not None and age_s > config.retention_s + config.pane_s:
        rule, detail = (
            "retention",
            "Received an event_time before the model's retention; expected a later one.",
        )
    else:
        return
    raise CalibrationInputError.at(f"{pointer}/event_time", rule, detail)


def _check_panes(updates: list[PackedUpdate], config: ModelConfig, context: IngestContext) -> None:
    """Reject updates of more panes than one commit may hold."""
    received_us = microseconds(context.received_at)
    refs = set()
    for update in updates:
        at_us = received_us if update.event_time_us is None else update.event_time_us
        start_s = pane_start(at_us, config.pane_s)
        refs |= {(pair, start_s) for pair in (None, *(update.slices or {}).items())}
    limit = context.limits.max_panes
    if len(refs) > limit:
        detail = f"Received updates of {len(refs)} panes, slices counted; expected at most {limit}. Split the request."
        raise CalibrationInputError.at("/histograms", "too_many_panes", detail)


def _config_for(placed: list[PlacedUpdate], context: IngestContext) -> ModelConfig:
    """Return the model that a first body of panes makes; plain histograms do not say enough."""
    pointer, fields = placed[0]
    if fields.get("kind") != "pane":
        raise ModelUnknown(
            "There is no model with this id, and a histogram does not state task, classes and grid: "
            "create the model first with PUT."
        )
    place = f"{pointer}/packed"
    spec = unpacked(PaneEnvelope.read, decoded(fields.get("packed"), place), place).spec
    listed = None if spec.listed_classes is None else list(spec.listed_classes)
    return ModelConfig(
        context.tenant,
        context.model,
        spec.task,
        spec.n_classes,
        grid=spec.grid,
        listed_classes=listed,
        composites={name: list(members) for name, members in spec.composites} or None,
    )
