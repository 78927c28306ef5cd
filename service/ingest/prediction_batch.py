"""A batch of predictions: checked columns to the entry of the stream."""

from calibrant.core.batch import Batch, BatchResult
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.input.value_checks import MAX_STORED, MAX_VIOLATIONS
from calibrant_server.service.ingest.model_rules import (
    check_panes,
    checked_batch,
    reject_many_ids,
    reject_too_many,
    rows_of_model,
)
from calibrant_server.service.ingest.parsed_batch import ParsedBatch
from calibrant_server.service.ingest.service import IngestContext, digest_of_all
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestBatch, Origin
from calibrant_server.workers.store.model_config import ModelConfig


def prediction_batch(
    posted: ParsedBatch, context: IngestContext, origin: Origin | None = None
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
    violations = [posted.place(violation) for violation in checked.violations]
    reject_too_many(checked.batch.n, violations, checked.n_rejected)
    batch = checked.batch
    rows = checked.accepted_rows.tolist() if checked.n_rejected or batch.ids is not None else []
    config = context.config or config_for(batch, context)
    _check_panes(checked, config, posted, context)
    return context.batch(
        config,
        PREDICTIONS,
        batch.pack(),
        digest_of_all(batch.digest(), posted.rows_but(rows) if checked.n_rejected else []),
        batch.n,
        batch_id=posted.batch_id,
        violations=violations,
        retains=batch.ids is not None,
        places=None if batch.ids is None else posted.places(rows),
        origin=origin,
        # The share of a named unit depends on its batch, and a record on the ones before: these stay in order.
        may_spread=origin is None and batch.unit_source == "row",
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


def _check_panes(
    checked: BatchResult, config: ModelConfig, posted: ParsedBatch, context: IngestContext
) -> None:
    try:
        check_panes(checked.batch, config, context.received_at, context.limits)
    except CalibrationInputError as error:
        raise error.each(lambda found: posted.place(_as_sent(found, checked))) from error


def _as_sent(violation: Violation, checked: BatchResult) -> Violation:
    """Return a violation of an accepted row under the number that the row had when it was sent."""
    head, _, row = violation.pointer.rpartition("/")
    if not row.isdigit():
        return violation
    return Violation(f"{head}/{checked.accepted_rows[int(row)]}", violation.rule, violation.detail)
