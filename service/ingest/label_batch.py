"""A body of labels as the batch to append."""

from typing import Any

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.labels import read_labels
from calibrant.input.notes import InputNotes
from calibrant_server.service.http.bodies import ARROW, NDJSON, Body
from calibrant_server.service.http.errors import BodyTooLarge, ModelUnknown
from calibrant_server.service.http.json_bodies import read_json, read_ndjson
from calibrant_server.service.ingest.arrow_stream import read_arrow_lists
from calibrant_server.service.ingest.body_reading import PLAIN, reading_of
from calibrant_server.service.ingest.model_rules import MAX_ROWS_BY_ID, reject_too_many
from calibrant_server.service.ingest.parsed_batch import (
    ParsedBatch,
    batch_id_of,
    object_of,
    reject_unknown,
)
from calibrant_server.service.ingest.service import (
    IngestContext,
    digest_of,
    digest_of_all,
)
from calibrant_server.workers.ingest.entries import LABELS, IngestBatch
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.store.model_config import ModelConfig

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
    posted = read_label_columns(body, min(context.settings.max_rows, MAX_ROWS_BY_ID))
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


def read_label_columns(body: Body, max_rows: int) -> ParsedBatch:
    """Return the columns of a labels body."""
    if body.media_type == ARROW:
        posted = ParsedBatch(*read_arrow_lists(body.data))
        reject_unknown(posted.columns, SINGULAR)
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
            "There is no such model, and labels alone cannot create one. Send predictions first, or create it with PUT."
        )
    return context.config
