"""Checks of a posted batch against its model, in addition to the checks of any batch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch, Checked
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.routing import MICROSECONDS, Place, pane_start, rows_by_pane
from calibrant_server.service.ingest.columns import ParsedBatch
from calibrant_server.workers.store.registry import ModelConfig

SEGMENTATION = "segmentation"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PIXELS = (
    "pixels of one image are not independent: without units, intervals would be far too narrow and the alarm would "
    "go off over nothing"
)
# Rows of a partial batch that may be rejected: their errors are listed in the response, and stay readable.
MAX_ROW_ERRORS = 1000


def checked_batch(posted: ParsedBatch, config: ModelConfig | None, partial: bool) -> Checked:
    """Return the checked batch of posted columns; a model declares its task and classes."""
    expected: dict[str, Any] = {}
    if config is not None:
        expected = {
            "task": config.task,
            "n_classes": config.n_classes,
            "class_names": config.classes,
        }
    try:
        return Batch.from_columns(posted.columns, partial=partial, **expected)
    except CalibrationInputError as error:
        raise CalibrationInputError([posted.place(each) for each in error.violations]) from error


def refuse_too_many(n_accepted: int, violations: list[Violation]) -> None:
    """Reject a partial batch without a valid row, or with more errors than can be listed."""
    if violations and (n_accepted == 0 or len(violations) > MAX_ROW_ERRORS):
        raise CalibrationInputError(violations)


def rows_of_model(
    checked: Checked, posted: ParsedBatch, config: ModelConfig, partial: bool
) -> Checked:
    """Return the rows that the model accepts; a model that a first batch makes has no rules yet."""
    try:
        refuse_unitless(checked, config)
        return without_undeclared(checked, config, partial)
    except CalibrationInputError as error:
        raise CalibrationInputError([posted.place(each) for each in error.violations]) from error


def refuse_unitless(checked: Checked, config: ModelConfig) -> None:
    """Reject a segmentation batch that does not name the unit or case of its pixels."""
    if config.task == SEGMENTATION and checked.batch.unit_source not in ("unit", "case"):
        raise CalibrationInputError(
            [Violation("/units", "units_required", f"{PIXELS}; name units or cases, one a row")]
        )


def refuse_unitless_update(fields: Mapping[str, Any], config: ModelConfig, pointer: str) -> None:
    """Reject a histogram without its number of independent units, if the model requires it."""
    named = (fields.get("n_units"), fields.get("unit"), fields.get("case"))
    if (config.task == SEGMENTATION or config.unit) and all(each is None for each in named):
        why = (
            PIXELS
            if not config.unit
            else f"the model's unit is {config.unit}, and a histogram has no rows to count them by"
        )
        detail = f"{why}; name n_units, or the unit or case that it is of"
        raise CalibrationInputError([Violation(f"{pointer}/n_units", "units_required", detail)])


def refuse_undeclared(keys: Iterable[str], config: ModelConfig, pointer: str) -> None:
    """Reject slice keys that the model does not declare; a model without declared slices accepts all."""
    if not config.slices:
        return
    known = ", ".join(sorted(config.slices))
    violations = [
        Violation(
            f"{pointer}/{key}",
            "undeclared_slice",
            f"the model declares the slices {known}; declare {key} as well, or leave it out",
        )
        for key in keys
        if key not in config.slices
    ]
    if violations:
        raise CalibrationInputError(violations)


def undeclared_value(key: str, value: str, config: ModelConfig, pointer: str) -> Violation | None:
    """Return the violation of a value that is not among the declared values of its slice."""
    declared = config.slices.get(key)
    if declared is None or value in declared:
        return None
    some = ", ".join(declared[:50])
    return Violation(
        pointer, "undeclared_slice", f"{value[:50]!r} is no value of {key}; declared: {some}"
    )


def without_undeclared(checked: Checked, config: ModelConfig, partial: bool) -> Checked:
    """Return the rows whose slices the model has declared; another row is a violation."""
    slices = checked.batch.slices or {}
    refuse_undeclared(slices, config, "/slices")
    violations: list[Violation] = []
    good = np.ones(checked.batch.n, bool)
    for key, column in sorted(slices.items()):
        if config.slices.get(key) is None:
            continue
        for row, value in enumerate(column):
            pointer = f"/slices/{key}/{checked.accepted_rows[row]}"
            violation = undeclared_value(key, str(value), config, pointer)
            if violation is not None:
                good[row] = False
                violations.append(violation)
    if not violations:
        return checked
    if not partial:
        raise CalibrationInputError(violations)
    stored = np.flatnonzero(good)
    return Checked(
        checked.batch.take(stored), checked.violations + violations, checked.accepted_rows[stored]
    )


def refuse_undeclared_update(
    slices: Mapping[str, str] | None, config: ModelConfig, pointer: str
) -> None:
    """Reject an update of a slice that the model does not declare."""
    refuse_undeclared(slices or {}, config, pointer)
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


class TooManyPanes(CalibrationInputError):
    """A batch touches more panes than one commit may hold; the detail says how to split it."""

    def __init__(self, detail: str, n_panes: int, limit: int):
        super().__init__([Violation("/event_times", "too_many_panes", detail)])
        self.n_panes = n_panes
        self.limit = limit


def check_panes(batch: Batch, config: ModelConfig, received_at: datetime, limits: Limits) -> None:
    """Check times and number of the panes that a batch would fill.

    Raises
    ------
    TooManyPanes
        More than `limits.max_panes` panes.
    CalibrationInputError
        An event time further in the future than the skew allowed, or before the retention of the model.
    """
    times = batch.event_times
    if times is None and not batch.slices:
        return  # One pane, at the time of receipt.
    received_us = (received_at - EPOCH) // timedelta(microseconds=1)
    if times is not None:
        _check_times(np.asarray(times, dtype=np.int64), received_us, config, limits)
    places = [place for place, _ in rows_by_pane(batch, config.pane_s, received_us)]
    if len(places) > limits.max_panes:
        raise _too_many(places, limits.max_panes)


def _check_times(
    times: NDArray[np.int64], received_us: int, config: ModelConfig, limits: Limits
) -> None:
    latest = received_us + limits.future_skew_s * MICROSECONDS
    violations = [
        Violation(
            f"/event_times/{row}",
            "future",
            f"event time lies more than {limits.future_skew_s} s in the future",
        )
        for row in np.flatnonzero(times > latest)[:100]
    ]
    if config.retention_s is not None:
        # Complete panes: the pane of a retained timestamp is stored, and so may be filled.
        oldest = pane_start(received_us - config.retention_s * MICROSECONDS, config.pane_s)
        violations += [
            Violation(
                f"/event_times/{row}",
                "retention",
                f"event time lies before the model's retention of {config.retention_s} s",
            )
            for row in np.flatnonzero(times < oldest * MICROSECONDS)[:100]
        ]
    if violations:
        raise CalibrationInputError(violations)


def _too_many(places: list[Place], limit: int) -> TooManyPanes:
    starts = {start_s for _, start_s in places}
    slices = {slice_ for slice_, _ in places}
    detail = (
        f"the batch touches {len(places)} panes ({len(starts)} intervals of time, {len(slices)} slices, "
        f"all rows counted as one); at most {limit} are allowed: split it by event time"
        + (", or by slice value" if len(slices) > 1 else "")
    )
    return TooManyPanes(detail, len(places), limit)
