"""A batch of predictions: checked columns to the entry of the stream."""

from datetime import UTC, datetime

from calibrant.core.batch import Batch, BatchResult
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.small_batches import small_batch
from calibrant.input.class_texts import has_numbers
from calibrant.input.value_checks import MAX_STORED, MAX_VIOLATIONS
from calibrant_server.service.http.bodies import JSON, Body
from calibrant_server.service.ingest.columns import MIN_KERNEL_BYTES
from calibrant_server.service.ingest.model_rules import (
    SEGMENTATION,
    check_panes,
    checked_batch,
    reject_many_ids,
    reject_too_many,
    rows_in_time,
    rows_of_model,
)
from calibrant_server.service.ingest.parsed_batch import ParsedBatch
from calibrant_server.service.ingest.service import IngestContext, digest_of_all
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestBatch, SourceOffsets
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
    reject_many_ids(posted)
    checked = checked_batch(posted, context.config, context.partial)
    checked = reject_unlabelled(checked, posted, context.partial)
    if context.config is not None:
        checked = rows_of_model(checked, posted, context.config, context.partial)
    _reject_too_many(checked, posted)
    config = context.config or config_for(checked.batch, context)
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


def small_predictions(body: Body, context: IngestContext) -> IngestBatch | None:
    """Return the batch of a small JSON body of scores and labels; None where it must be read and checked in full."""
    config = context.config
    if config is None or config.task == SEGMENTATION or body.media_type != JSON:
        return None
    if len(body.data) >= MIN_KERNEL_BYTES or has_numbers(config.classes or ()):
        return None
    found = small_batch(body.data, config.task, config.n_classes)
    if found is None or found.n > context.settings.max_rows:
        return None
    return context.batch(
        config,
        PREDICTIONS,
        found.payload,
        found.digest,
        found.n,
        batch_id=found.batch_id,
    )


def reject_unlabelled(checked: BatchResult, posted: ParsedBatch, partial: bool) -> BatchResult:
    """Return the rows with labels, or with ids by which labels can come; another row is a violation."""
    if checked.batch.ids is not None or checked.batch.row_total.all():
        return checked
    missing = checked.batch.row_total == 0
    column = "label_counts" if "label_counts" in posted.columns else "labels"
    detail = "Received no label for this row; expected one. Send it, or send ids, by which labels can be sent later."
    violations = [
        Violation(f"/{column}/{row}", "labels_required", detail)
        for row in checked.accepted_rows[missing][:MAX_STORED]
    ]
    if not partial:
        listed = [posted.place(violation) for violation in violations[:MAX_VIOLATIONS]]
        raise CalibrationInputError(listed, int(missing.sum()))
    return checked.keeping(~missing, violations)


def config_for(batch: Batch, context: IngestContext) -> ModelConfig:
    """Return the model that a first batch makes: its task and classes, defaults for the rest."""
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
