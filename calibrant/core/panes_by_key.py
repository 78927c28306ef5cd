"""Tables to panes by time and slice: what the engine does with batches, for data in files and databases."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from calibrant.core.batch import Batch
from calibrant.core.durations import parse_duration
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.routing import MICROSECONDS, Rows, rows_by_pane, split_batch
from calibrant.core.spec import PaneSpec
from calibrant.core.table_columns import (
    SCORES,
    in_table,
    is_flat,
    named_columns,
    one_column,
    table_columns,
)
from calibrant.input.names import combination
from calibrant.input.table_names import reject_numbers, reject_other_names
from calibrant.input.timestamps import TIME_UNITS, in_unit

_MAX_S = 366 * 86_400


class Key(NamedTuple):
    """Start of a pane in UTC, None without times; and its slice: `""` for all rows, `key:value`, or `key:value,key:value`."""

    start: datetime | None
    slice: str


class SplitUnitsWarning(UserWarning):
    """Units have rows in several panes, each of which counts the unit as one."""


class PanesByKey(dict[Key, Pane]):
    """Panes by `Key`.

    Attributes
    ----------
    n_units_split : number of named units with rows in panes of different times. Each of these panes counts the unit as
        one, and so does their sum; `Pane.units_split` of the sum reports it, too.
    """

    n_units_split: int = 0

    def merge(self, other: PanesByKey) -> PanesByKey:
        """Add the panes of other rows to these, which are returned. Each unit must be complete in one of the two.

        >>> table = {"p": [0.9, 0.2], "label": [1, 0]}
        >>> some = fill_by(table, PaneSpec("binary", 2), confidences="p", labels="label")
        >>> some.merge(fill_by(table, PaneSpec("binary", 2), confidences="p", labels="label"))
        {Key(start=None, slice=''): Pane(binary: 4 predictions, 4 labelled, 4 ratings, 4 units)}
        """
        for key, pane in other.items():
            self[key] = self[key].merge(pane) if key in self else pane.copy()
        self.n_units_split += other.n_units_split
        return self


def fill_by(
    table: Any,
    spec: PaneSpec,
    *,
    time: str | None = None,
    time_unit: str | None = None,
    every: str | timedelta = "1h",
    slices: Sequence[str] = (),
    combine_slices: bool = False,
    unit: str | None = None,
    probabilities: str | Sequence[str] | None = None,
    logits: str | Sequence[str] | None = None,
    confidences: str | None = None,
    labels: str | Sequence[str] | None = None,
    label_counts: str | Sequence[str] | None = None,
    id: str | None = None,
    case: str | None = None,
    weight: str | None = None,
    class_names: Sequence[str] | None = None,
    sample_bytes: int | None = None,
) -> PanesByKey:
    """Fill a table's rows into panes by time and slice.

    The panes equal those that the service fills from the same rows. The table is read into memory; fill larger data in
    pieces that keep each unit complete, and add the panes.

    Parameters
    ----------
    table : mapping of names to numpy arrays or lists, or an Arrow table or stream (pyarrow, polars, pandas, DuckDB)
        All of its rows are predictions. Columns that no parameter names are not read.
    spec : PaneSpec
    time : column of event times: timestamps with a time zone, datetime64 (UTC), or RFC 3339 texts. Default: one pane of
        all times.
    time_unit : "s" or "ms", if the column of event times has numbers that count from 1970 UTC
    every : length of a pane: "15m", "1h", "1d", ISO 8601 ("PT1H") or a timedelta. Panes are aligned to 1970 UTC.
    slices : columns; each of their values gets separate panes, in addition to those of all rows
    combine_slices : fill one pane per combination of the values of all slice columns, such as `reader:b,site:A`, instead
        of one per value and one of all rows. `Model.send_panes` sends such panes.
    unit : column that names what is independent, such as the patient. Default: the case, the id, or the row.
    probabilities, logits : column of lists with a number per class, or one column per class. Probabilities of binary
        models may also be a column of numbers, those of class 1.
    confidences : column of the probability of class 1 of binary models
    labels : column of a class or a list of ratings per row, null without a label yet; or one column per rater
    label_counts : column of lists with a count per class, or one column per class
    id, case, weight : columns
        Scores, labels and these default to the columns `probabilities`, `logits`, `confidences`, `labels`, `label_counts`, `ids`,
        `cases` and `weights`, if the table has them.
    class_names : labels may then be names as well as indices
    sample_bytes : bound of each pane's stored sample, 0 to 1 MiB. Default: 32 KiB.

    Returns
    -------
    PanesByKey: `Key(start, slice)` to `Pane`; empty for a table without rows.

    Raises
    ------
    CalibrationInputError
        A column is missing, or rows break a rule; each violation names column, row and rule (`/column/row`).
    ImportError
        The table is an Arrow table, and the extra `arrow` is not installed.

    Warns
    -----
    SplitUnitsWarning
        Units have rows in panes of different times.

    Examples
    --------
    >>> table = {
    ...     "ts": ["2026-11-20T09:10:00Z", "2026-11-20T09:50:00Z", "2026-11-20T10:05:00Z"],
    ...     "site": ["A", "B", "A"],
    ...     "p": [0.9, 0.2, 0.7],
    ...     "reader_1": [1, 0, 1],
    ...     "reader_2": [1, None, 0],
    ... }
    >>> panes = fill_by(
    ...     table, PaneSpec("binary", 2), time="ts", slices=["site"], confidences="p", labels=["reader_1", "reader_2"]
    ... )
    >>> for key, pane in sorted(panes.items()):
    ...     print(f"{key.start:%H:%M} {key.slice or '-':6} {pane.counts['n_ratings']}")
    09:00 -      3
    09:00 site:A 2
    09:00 site:B 1
    10:00 -      2
    10:00 site:A 2
    """
    pane_s = duration_seconds(every)
    named = {
        "probabilities": probabilities, "logits": logits, "confidences": confidences, "labels": labels,
        "label_counts": label_counts, "ids": id, "cases": case, "weights": weight, "units": unit, "event_times": time,
    }  # fmt: skip
    columns = table_columns(table)
    wanted = named_columns(named, columns)
    for kind in ("probabilities", "logits"):
        reject_other_names(kind, wanted.get(kind, ()), class_names)
        if class_names is None and "labels" in wanted:
            reject_numbers(kind, wanted.get(kind, ()), "name the classes: class_names=[…]")
    given = {name: one_column(name, column, columns) for name, column in wanted.items()}
    if spec.task == "binary" and "probabilities" in given and is_flat(given["probabilities"]):
        given["confidences"], wanted["confidences"] = (
            given.pop("probabilities"),
            wanted["probabilities"],
        )
    if time_unit not in (None, *TIME_UNITS):
        detail = f"Received {time_unit!r}; expected {' or '.join(TIME_UNITS)}."
        raise CalibrationInputError.at("/time_unit", "time_unit", detail)
    if "event_times" in given:
        given["event_times"] = in_unit(given["event_times"], time_unit)
    keys = [slices] if isinstance(slices, str) else list(slices)
    given["slices"] = (
        {key: one_column(f"slices/{key}", key, columns) for key in keys} if keys else None
    )
    scores = next((given[name] for name in SCORES if name in given), None)
    if scores is not None and len(scores) == 0:
        return PanesByKey()
    try:
        checked = Batch.from_columns(
            given, task=spec.task, n_classes=spec.n_classes, class_names=class_names
        )
    except CalibrationInputError as error:
        raise CalibrationInputError(in_table(error.violations, wanted)) from None
    of_pane_s = pane_s if time is not None else None
    panes = panes_of_batch(checked.batch, spec, of_pane_s, sample_bytes, combine_slices)
    if panes.n_units_split:
        text = f"{panes.n_units_split} units have rows in panes of different times; each of these panes counts them as one"
        warnings.warn(text, SplitUnitsWarning, stacklevel=2)
    return panes


def panes_of_batch(
    batch: Batch,
    spec: PaneSpec,
    pane_s: int | None,
    sample_bytes: int | None = None,
    combine: bool = False,
) -> PanesByKey:
    """Fill the rows of a checked batch into panes.

    Parameters
    ----------
    pane_s : length of a pane in seconds; None for one pane of all times
    sample_bytes, combine : as `sample_bytes` and `combine_slices` of `fill_by`
    """
    panes = PanesByKey()
    combinations = list(_combinations(batch)) if combine else [("", None)]
    batch = replace(batch, slices=None) if combine else batch
    # Hashes are made once for all panes: `take` hands them on.
    _ = batch.prediction_hash, batch.unit_hash
    for values, its_rows in combinations:
        its_batch = batch if its_rows is None else batch.take(its_rows)
        for place, rows in rows_by_pane(its_batch, pane_s or 1, 0):
            part = its_batch if rows is None else its_batch.take(rows)
            pane = Pane(spec, sample_bytes=sample_bytes)
            for some in split_batch(part):
                pane.fill_batch(some)
            start = None if pane_s is None else _timestamp(place.start_s)
            panes[Key(start, values or place.slice)] = pane
    panes.n_units_split = _n_units_split(batch, pane_s)
    return panes


def _combinations(batch: Batch) -> Iterator[tuple[str, Rows | None]]:
    """Yield each combination of slice values with its row numbers; `None` means all rows."""
    if batch.slices is None:
        yield "", None
        return
    names: list[str] = [""]
    which = np.zeros(batch.n, np.int64)
    for key, column in sorted(batch.slices.items()):
        values, of_row = np.unique(np.asarray(column).astype(str), return_inverse=True)
        found, which = np.unique(which * len(values) + of_row.reshape(-1), return_inverse=True)
        pairs = [divmod(int(each), len(values)) for each in found]
        own = [combination([(key, str(value))]) for value in values]
        names = [f"{names[a]},{own[b]}".lstrip(",") for a, b in pairs]
    for number, name in enumerate(names):
        yield name, np.flatnonzero(which == number)


def _n_units_split(batch: Batch, pane_s: int | None) -> int:
    if pane_s is None or batch.event_times is None or not batch.has_units:
        return 0
    unit = np.unique(batch.unit_hash, return_inverse=True)[1].reshape(-1)
    pane = np.unique(batch.event_times // (pane_s * MICROSECONDS), return_inverse=True)[1].reshape(
        -1
    )
    n_panes = int(pane.max()) + 1
    in_panes = np.bincount(np.unique(unit * n_panes + pane) // n_panes)
    return int((in_panes > 1).sum())


def _timestamp(start_s: int) -> datetime:
    return datetime.fromtimestamp(start_s, UTC)


def duration_seconds(every: str | timedelta) -> int:
    """Return the length of a pane in seconds.

    >>> duration_seconds("15m"), duration_seconds("1d"), duration_seconds("PT1H")
    (900, 86400, 3600)
    """
    total: Fraction | float = 0
    if isinstance(every, timedelta):
        total = every.total_seconds()
    elif isinstance(every, str):
        with suppress(ValueError):
            total = parse_duration(every)
    if not 1 <= total <= _MAX_S or total != int(total):
        detail = f"Received {every!r}; expected whole seconds up to 366 days, for example '15m', '1h', '1d' or 'PT1H'."
        raise CalibrationInputError.at("/every", "duration", detail)
    return int(total)
