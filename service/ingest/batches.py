"""Batches of predictions and of labels: checked columns to the entry of the stream."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch, BatchResult
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.label_shares import reject_without_number
from calibrant.input.labels import read_labels
from calibrant.input.notes import InputNotes
from calibrant.input.rating_columns import LABELS as LABEL_COLUMNS
from calibrant.input.value_checks import MAX_STORED, MAX_VIOLATIONS
from calibrant_server.service.http.bodies import ARROW, NDJSON, Body, decoded_limit
from calibrant_server.service.http.json_bodies import read_json, read_ndjson
from calibrant_server.service.http.problems import BodyTooLarge, ModelUnknown
from calibrant_server.service.ingest.arrow_stream import read_arrow
from calibrant_server.service.ingest.body_reading import PLAIN, reading_of
from calibrant_server.service.ingest.model_rules import (
    MAX_ROWS_BY_ID,
    check_panes,
    checked_batch,
    reject_many_ids,
    reject_too_many,
    rows_in_time,
    rows_of_model,
)
from calibrant_server.service.ingest.multilabel import (
    label_cells,
    label_names,
    multilabel_config,
    prediction_cells,
)
from calibrant_server.service.ingest.parsed_batch import (
    ParsedBatch,
    batch_id_of,
    indexed,
    object_of,
    reject_unknown,
)
from calibrant_server.service.ingest.service import (
    IngestContext,
    digest_of,
    digest_of_all,
)
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.entries import LABELS, PREDICTIONS, IngestBatch, SourceOffsets
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.store.model_config import ModelConfig


def prediction_batch(
    posted: ParsedBatch, context: IngestContext, origin: SourceOffsets | None = None
) -> IngestBatch:
    """Return the batch of some columns, or raise every violation.

    Raises
    ------
    BodyTooLarge
        More rows with ids than one batch may have.
    """
    names = None if context.config is None else context.config.label_names
    if posted.reading.task is not None:
        names = label_names(posted, context.config)
    if names is not None:
        posted = prediction_cells(posted, names, context.settings.max_rows)
    reject_many_ids(posted)
    checked = checked_batch(posted, context.config, context.partial)
    reject_without_number(checked.batch.notes.per_rating)
    checked = reject_unlabelled(checked, posted, context.partial)
    if context.config is not None:
        checked = rows_of_model(checked, posted, context.config, context.partial)
    _reject_too_many(checked, posted)
    config = context.config or config_for(checked.batch, context, names)
    # A repeated request may arrive when other rows are in time: it is recognised by all rows that are valid at any time.
    others = posted.rows_but(checked.accepted_rows.tolist()) if checked.n_rejected else []
    digest = digest_of_all(checked.batch.digest(), others)
    timely = _rows_in_time(checked, config, posted, context)
    violations = _reject_too_many(timely, posted)
    batch = timely.batch
    check_panes(batch, config, context.received_at, context.limits)
    if posted.reading.model_version is not None and batch.n:
        context.version = posted.reading.model_version, _first(batch, context)
    return context.batch(
        config,
        PREDICTIONS,
        batch.pack(),
        digest,
        batch.n,
        batch_id=posted.batch_id,
        violations=violations,
        retains=batch.ids is not None,
        places=None if batch.ids is None else posted.places(timely.accepted_rows.tolist()),
        origin=origin,
        notes=batch.notes,
    )


def reject_unlabelled(checked: BatchResult, posted: ParsedBatch, partial: bool) -> BatchResult:
    """Return the rows with labels, or with ids by which labels can come; another row is a violation."""
    missing = unlabelled(checked, posted)
    if checked.batch.ids is not None or not missing.any():
        return checked
    column = next((name for name in LABEL_COLUMNS if name in posted.columns), "labels")
    detail = "Received no label for this row; expected one. Send it, or send ids, by which labels can be sent later."
    violations = [
        Violation(f"/{column}/{row}", "labels_required", detail)
        for row in checked.accepted_rows[missing][:MAX_STORED]
    ]
    if not partial:
        listed = [posted.place(violation) for violation in violations[:MAX_VIOLATIONS]]
        raise CalibrationInputError(listed, int(missing.sum()))
    return checked.keeping(~missing, violations)


def unlabelled(checked: BatchResult, posted: ParsedBatch) -> NDArray[np.bool_]:
    """Return which rows have no label; a multi-label row has one if any of its labels is known."""
    missing: NDArray[np.bool_] = checked.batch.row_total == 0
    if posted.cells is None:
        return missing
    rows = posted.cells.rows[checked.accepted_rows]
    return ~np.isin(rows, rows[~missing])


def config_for(
    batch: Batch, context: IngestContext, label_names: Sequence[str] | None = None
) -> ModelConfig:
    """Return the model that a first batch makes: its task and classes, defaults for the rest."""
    if label_names is not None:
        return multilabel_config(context.tenant, context.model, label_names)
    config = ModelConfig(context.tenant, context.model, batch.task, batch.n_classes)
    try:
        config.spec()
    except CalibrationInputError as error:
        column = "logits" if batch.is_logits else "probabilities"
        raise CalibrationInputError.at(
            f"/{column}", "n_classes", error.violations[0].detail
        ) from error
    return config


def _first(batch: Batch, context: IngestContext) -> datetime:
    """Return the time of the first prediction of a batch."""
    if batch.event_times is None:
        return context.received_at
    return datetime.fromtimestamp(int(batch.event_times.min()) / 1e6, UTC)


def _rows_in_time(
    checked: BatchResult, config: ModelConfig, posted: ParsedBatch, context: IngestContext
) -> BatchResult:
    try:
        return rows_in_time(checked, config, context.received_at, context.limits, context.partial)
    except CalibrationInputError as error:
        raise error.each(posted.place) from error


def _reject_too_many(checked: BatchResult, posted: ParsedBatch) -> list[Violation]:
    """Return the violations at their places in what was posted, or reject the batch."""
    violations = [posted.place(violation) for violation in checked.violations]
    reject_too_many(checked.batch.n, violations, checked.n_rejected)
    return violations


SINGULAR = {"ids": "id", "labels": "label", "raters": "rater", "revision": "revision"}
# Fields of the batch, next to the columns or alone in the first line.
HEAD = ("batch_id", "ignore_label")
PLURAL = {singular: plural for plural, singular in SINGULAR.items()} | {
    "labels": "labels",
    "raters": "raters",
}


def load_labels(body: Body, context: IngestContext, ignored: tuple[Any, ...] = ()) -> IngestBatch:
    """Return the labels that a body holds, or raise every rule that they break. The query may state `ignored` instead."""
    config = _known(context)
    max_rows = min(context.settings.max_rows, MAX_ROWS_BY_ID)
    posted = read_label_columns(body, context.settings)
    if config.label_names is not None:
        posted = label_cells(posted, config.label_names, max_rows)
    try:
        checked = read_labels(
            posted.columns,
            config.n_classes,
            config.classes,
            context.partial,
            posted.reading.ignored or ignored,
        )
    except CalibrationInputError as error:
        raise error.each(lambda found: _placed(posted, found)) from error
    violations = [_placed(posted, violation) for violation in checked.violations]
    reject_too_many(len(checked.rows), violations, checked.n_violations)
    payload = pack_labels(checked.rows)
    bad = {int(each.pointer.split("/")[2]) for each in checked.violations} | {*checked.unrated}
    accepted = [row for row in range(len(posted.columns["ids"])) if row not in bad]
    rejected = posted.rows_but(accepted)
    digest = digest_of_all(digest_of(payload), rejected)
    return context.batch(
        config,
        LABELS,
        payload,
        digest,
        len(checked.rows),
        batch_id=posted.batch_id,
        violations=violations,
        retains=True,
        places=posted.places(accepted),
        ids=tuple(row.id for row in checked.rows),
        notes=InputNotes(warnings=checked.warnings),
    )


def read_label_columns(body: Body, settings: Settings) -> ParsedBatch:
    """Return the columns of a labels body."""
    max_rows = min(settings.max_rows, MAX_ROWS_BY_ID)
    if body.media_type == ARROW:
        columns, batch_id = read_arrow(body.data, decoded_limit(len(body.data), settings))
        reject_unknown(columns, SINGULAR)
        posted = ParsedBatch({name: indexed(each) for name, each in columns.items()}, batch_id)
    elif body.media_type == NDJSON:
        posted = _from_records(*read_ndjson(body.data, 3 * max_rows + 100))
    else:
        document = object_of(read_json(body.data, 3 * max_rows + 100))
        reject_unknown(document, (*SINGULAR, *HEAD))
        columns = {name: value for name, value in document.items() if name in SINGULAR}
        posted = ParsedBatch(columns, batch_id_of(document), reading=reading_of(document))
    longest = max(
        (len(each) for each in posted.columns.values() if isinstance(each, list)), default=0
    )
    if longest > max_rows:
        raise BodyTooLarge(
            f"Received {longest} rows; expected at most {max_rows}. Send several batches."
        )
    return posted


def _from_records(records: list[dict[str, Any]], lines: list[int]) -> ParsedBatch:
    batch_id, reading = None, PLAIN
    if records and records[0] and records[0].keys() <= set(HEAD):
        batch_id, reading = batch_id_of(records[0]), reading_of(records[0])
        records, lines = records[1:], lines[1:]
    for record, line in zip(records, lines, strict=True):
        if not record.keys() <= PLURAL.keys():
            reject_unknown(record, PLURAL, f"/{line}")
    spelled = [{PLURAL[name]: value for name, value in record.items()} for record in records]
    present = sorted({name for record in spelled for name in record} | {"ids", "labels"})
    return ParsedBatch(
        {name: [record.get(name) for record in spelled] for name in present},
        batch_id,
        lines,
        reading=reading,
    )


def _placed(posted: ParsedBatch, violation: Violation) -> Violation:
    """Return a violation by line number when lines were sent."""
    if posted.cells is not None:
        violation = posted.cells.place(violation)
    _, name, *rest = violation.pointer.split("/")
    if not posted.lines or name not in SINGULAR or not rest or not rest[0].isdigit():
        return violation
    return Violation(
        f"/{posted.lines[int(rest[0])]}/{SINGULAR[name]}", violation.rule, violation.detail
    )


def _known(context: IngestContext) -> ModelConfig:
    """Return the model; labels alone do not determine what model to make."""
    if context.config is None:
        raise ModelUnknown(
            "Labels alone cannot create a model. Send predictions first, or create it with PUT."
        )
    return context.config
