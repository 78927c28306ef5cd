"""Checks of a posted batch against its model, in addition to the checks of any batch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch, BatchResult
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.routing import MICROSECONDS, pane_start
from calibrant.input.timestamps import in_unit
from calibrant.input.value_checks import MAX_STORED, MAX_VIOLATIONS
from calibrant_server.service.http.problems import BodyTooLarge
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, some_of
from calibrant_server.workers.store.model_config import LABEL_SLICE, ModelConfig

SEGMENTATION = "segmentation"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PIXELS = (
    "Received no units or cases. Pixels of one image are not independent: without units, intervals would be far too "
    "narrow and the alarm would raise false alarms."
)
# Rows of a partial batch that may be rejected: their errors are listed in the response, and stay readable.
MAX_ROW_ERRORS = 1000
# Rows with ids of one batch: the partition joins them with what it retains, some 20 µs each, while its other batches wait.
MAX_ROWS_BY_ID = 50_000
MAX_COUNTED = 100  # multiple of the limit of panes at which counting them stops


def checked_batch(posted: ParsedBatch, config: ModelConfig | None, partial: bool) -> BatchResult:
    """Return the checked batch of posted columns; a model declares its task and classes."""
    reading = posted.reading
    expected: dict[str, Any] = {
        "ignored": reading.ignored,
        "normalize": reading.normalize,
        "has_named_raters": posted.has_named_raters,
    }
    columns = posted.columns
    if "event_times" in columns:
        times = in_unit(columns["event_times"], reading.time_unit)
        columns = columns | {"event_times": times}
    if config is None:
        expected["class_names"] = reading.class_names
    else:
        expected |= {
            "task": config.task,
            "n_classes": config.n_classes,
            "class_names": config.classes,
        }
    try:
        return Batch.from_columns(columns, partial=partial, **expected)
    except CalibrationInputError as error:
        raise error.each(posted.place) from error


def reject_many_ids(posted: ParsedBatch) -> None:
    """Reject a batch with more rows by id than are joined at once."""
    ids = posted.columns.get("ids")
    n = 0 if ids is None or not hasattr(ids, "__len__") else len(ids)
    if n > MAX_ROWS_BY_ID:
        raise BodyTooLarge(
            f"Received {n} rows with ids; expected at most {MAX_ROWS_BY_ID}. Send several batches."
        )


def reject_too_many(n_accepted: int, violations: list[Violation], n_rejected: int) -> None:
    """Reject a partial batch without a valid row, or with more errors than can be listed."""
    if violations and (n_accepted == 0 or n_rejected > MAX_ROW_ERRORS):
        raise CalibrationInputError(violations[:MAX_VIOLATIONS], n_rejected)


def rows_of_model(
    checked: BatchResult, posted: ParsedBatch, config: ModelConfig, partial: bool
) -> BatchResult:
    """Return the rows that the model accepts; a model that a first batch makes has no rules yet."""
    try:
        reject_unitless(checked, config)
        return without_undeclared(checked, config, partial)
    except CalibrationInputError as error:
        raise error.each(posted.place) from error


def reject_unitless(checked: BatchResult, config: ModelConfig) -> None:
    """Reject a segmentation batch that does not name the unit or case of its pixels."""
    if config.task == SEGMENTATION and not checked.batch.has_units:
        raise CalibrationInputError.at(
            "/units", "units_required", f"{PIXELS} Send units or cases, one per row."
        )


def reject_unitless_update(fields: Mapping[str, Any], config: ModelConfig, pointer: str) -> None:
    """Reject a histogram without its number of independent units, if the model requires it."""
    named = (fields.get("n_units"), fields.get("unit"), fields.get("case"))
    if (config.task == SEGMENTATION or config.unit) and all(each is None for each in named):
        why = (
            PIXELS
            if not config.unit
            else f"Received no number of units. The unit of the model is {config.unit}, and a histogram has no rows to count."
        )
        detail = f"{why} Send n_units, or the unit or case of the histogram."
        raise CalibrationInputError.at(f"{pointer}/n_units", "units_required", detail)


def reject_undeclared(keys: Iterable[str], config: ModelConfig, pointer: str) -> None:
    """Reject slice keys that the model does not declare; a model without declared slices accepts all."""
    if not config.slices:
        return
    unknown = [key for key in keys if key not in config.slices]
    if not unknown:
        return
    known = some_of(sorted(config.slices))
    violations = [
        Violation(
            f"{pointer}/{key}",
            "undeclared_slice",
            f"Received slice key {key[:50]!r}; expected one of {known}. Declare the key in the model, or leave it out.",
        )
        for key in unknown[:MAX_VIOLATIONS]
    ]
    raise CalibrationInputError(violations, len(unknown))


def undeclared_value(key: str, value: str, config: ModelConfig, pointer: str) -> Violation | None:
    """Return the violation of a value that is not among the declared values of its slice."""
    declared = config.slices.get(key)
    if declared is None or value in declared:
        return None
    detail = f"Received value {value[:50]!r} of {key}; expected one of {some_of(declared)}. Declare the value in the model first."
    return Violation(pointer, "undeclared_slice", detail)


def without_undeclared(checked: BatchResult, config: ModelConfig, partial: bool) -> BatchResult:
    """Return the rows whose slices the model has declared; another row is a violation."""
    slices = checked.batch.slices or {}
    reject_undeclared(slices, config, "/slices")
    violations: list[Violation] = []
    good = np.ones(checked.batch.n, bool)
    for key, column in sorted(slices.items()):
        declared = config.slices.get(key)
        if declared is None:
            continue
        valid = frozenset(declared)
        bad = [row for row, value in enumerate(column) if good[row] and str(value) not in valid]
        good[bad] = False
        for row in bad[:MAX_STORED]:
            pointer = f"/slices/{key}/{checked.accepted_rows[row]}"
            violation = undeclared_value(key, str(column[row]), config, pointer)
            violations += [violation] if violation else []
    if not violations:
        return checked
    if not partial:
        raise CalibrationInputError(violations[:MAX_VIOLATIONS], int((~good).sum()))
    return checked.keeping(good, violations)


def reject_undeclared_update(
    slices: Mapping[str, str] | None, config: ModelConfig, pointer: str
) -> None:
    """Reject an update of a slice that the model does not declare, and one of no label of a multi-label model."""
    if config.label_names is not None and LABEL_SLICE not in (slices or {}):
        detail = f"Received an update of no label; expected the label that it counts, as slice {LABEL_SLICE}."
        raise CalibrationInputError.at(f"{pointer}/{LABEL_SLICE}", "label_required", detail)
    reject_undeclared(slices or {}, config, pointer)
    found = (
        undeclared_value(key, value, config, f"{pointer}/{key}")
        for key, value in sorted((slices or {}).items())
    )
    violations = [each for each in found if each is not None]
    if violations:
        raise CalibrationInputError(violations)


@dataclass(frozen=True)
class Limits:
    """Limits of one batch; the engine fills every batch that was accepted."""

    max_panes: int
    future_skew_s: int

    def panes_of(self, config: ModelConfig) -> int:
        """Return the limit of one model: two time slices of a multi-label one, if that is more."""
        return max(self.max_panes, 2 * (1 + len(config.label_names or ())))


class TooManyPanes(CalibrationInputError):
    """A batch touches more panes than one commit may hold; the detail says how to split it."""

    def __init__(self, detail: str, n_panes: int, limit: int):
        super().__init__([Violation("/event_times", "too_many_panes", detail)])
        self.n_panes = n_panes
        self.limit = limit


def rows_in_time(
    checked: BatchResult,
    config: ModelConfig,
    received_at: datetime,
    limits: Limits,
    partial: bool,
) -> BatchResult:
    """Return the rows whose event time is neither in the future nor before the retention; another row is a violation."""
    times = checked.batch.event_times
    if times is None:
        return checked
    received_us = microseconds(received_at)
    bad = times > received_us + limits.future_skew_s * MICROSECONDS
    detail = f"Received an event time more than {limits.future_skew_s} s in the future; expected a past one. Check the sender's clock."
    violations = _at(bad, checked, "future", detail)
    if config.retention_s is not None:
        # Complete panes: the pane of a retained timestamp is stored, and so may be filled.
        oldest = pane_start(received_us - config.retention_s * MICROSECONDS, config.pane_s)
        expired = times < oldest * MICROSECONDS
        detail = f"Received an event time before the model's retention of {config.retention_s} s; expected a later one."
        violations += _at(expired, checked, "retention", detail)
        bad = bad | expired
    if not violations:
        return checked
    if not partial:
        raise CalibrationInputError(violations[:MAX_VIOLATIONS], int(bad.sum()))
    return checked.keeping(~bad, violations)


def _at(bad: NDArray[np.bool_], checked: BatchResult, rule: str, detail: str) -> list[Violation]:
    """Return the violations of the event times of these rows, under the numbers that they had when they were sent."""
    rows = checked.accepted_rows[bad][:MAX_STORED]
    return [Violation(f"/event_times/{row}", rule, detail) for row in rows]


def check_panes(batch: Batch, config: ModelConfig, received_at: datetime, limits: Limits) -> None:
    """Check the number of the panes that a batch would fill.

    Raises
    ------
    TooManyPanes
        More than `limits.max_panes` panes.
    """
    if batch.event_times is None and not batch.slices:
        return  # One pane, at the time of receipt.
    _bound_panes(batch, config, microseconds(received_at), limits.panes_of(config))


def microseconds(at: datetime) -> int:
    """Return the microseconds since 1970 UTC."""
    return (at - EPOCH) // timedelta(microseconds=1)


def _bound_panes(batch: Batch, config: ModelConfig, received_us: int, limit: int) -> None:
    """Count the panes of a batch before its rows are divided among them."""
    times = np.full(batch.n, received_us) if batch.event_times is None else batch.event_times
    starts, start = np.unique(times // (config.pane_s * MICROSECONDS), return_inverse=True)
    n_panes, n_slices = len(starts), 1
    for column in (batch.slices or {}).values():
        values, value = np.unique(np.asarray(column).astype(str), return_inverse=True)
        n_panes += len(np.unique(value * len(starts) + start))
        n_slices += len(values)
        if n_panes > MAX_COUNTED * limit:
            break  # many slice keys: the message need not be exact
    if n_panes > limit:
        raise _too_many(n_panes, len(starts), n_slices, limit)


def _too_many(n_panes: int, n_starts: int, n_slices: int, limit: int) -> TooManyPanes:
    detail = (
        f"Received rows of {n_panes} panes or more ({n_starts} intervals of time, {n_slices} slices, "
        f"all rows counted as one); expected at most {limit}. Split the batch by event time"
        + (", or by slice value." if n_slices > 1 else ".")
    )
    return TooManyPanes(detail, n_panes, limit)
