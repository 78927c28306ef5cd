"""Reduction of logged predictions to packed panes before they are sent: no row leaves the process.

A pane that is sent belongs to one time slice of the model and to one combination of slice values, because the service adds it to
the pane of all rows and to that of each value. Its specification is the model's, which is read from the service.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.client.errors import ServiceError
from calibrant.client.operations import Operation, batch, new_batch_id, settings
from calibrant.client.rows import RowPiece, nested, stamp
from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.panes_by_key import duration_seconds
from calibrant.core.routing import MICROSECONDS, split_batch
from calibrant.core.spec import PaneSpec

if TYPE_CHECKING:
    from calibrant.client.sender import Fetch, Shipment

# Rows of an unknown model: a second divides every pane.
UNKNOWN_PANE_S = 1


class PanePacker:
    """Fills panes of the model's specification."""

    # Panes of different slices and times are separate requests already.
    splits = False

    def __init__(self, model: str) -> None:
        self._model = model

    def shipments(self, pieces: Sequence[RowPiece], fetch: Fetch) -> Iterator[Shipment]:
        """Yield a request per pane; rows without a label are rejected, as no label can join a pane."""
        waiting = list(pieces)
        while waiting:
            found = self._settings(fetch)
            # The first pane of an unknown model creates it, with the service's own defaults.
            some, waiting = (waiting, []) if found else (waiting[:1], waiting[1:])
            for _, alike in groupby(some, lambda each: each.form):
                yield from self._panes(list(alike), found)

    def _settings(self, fetch: Fetch) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = fetch(settings(self._model))
        except ServiceError as error:
            if error.status != 404:
                raise
            return None
        return found

    def _panes(self, pieces: list[RowPiece], model: dict[str, Any] | None) -> Iterator[Shipment]:
        from calibrant.client.sender import Shipment

        n = sum(each.n for each in pieces)
        try:
            labelled = _batch(pieces, model)
        except CalibrationInputError as error:
            if len(pieces) > 1:
                for each in pieces:
                    yield from self._panes([each], model)
            else:
                yield Shipment(n, None, str(error))
            return
        if labelled.n < n:
            yield Shipment(
                n - labelled.n,
                None,
                "Received rows that are invalid or have no label; expected valid rows with labels.",
            )
        if not labelled.n:
            return
        spec = spec_of(model) if model else PaneSpec(labelled.task, labelled.n_classes)
        pane_s = duration_seconds(model["pane"]) if model else UNKNOWN_PANE_S
        for rows, at_us, values in _groups(labelled, pane_s):
            pane = Pane(spec)
            for part in split_batch(labelled.take(rows)):
                pane.fill_batch(part)
            yield Shipment(len(rows), self._request(pane, at_us, values))

    def _request(self, pane: Pane, at_us: int, values: dict[str, str]) -> Operation[Any]:
        body: dict[str, Any] = {
            "batch_id": new_batch_id(),
            "kind": "pane",
            "packed": base64.b64encode(pane.to_bytes()).decode(),
            "event_time": stamp(at_us / MICROSECONDS),
        }
        if values:
            body["slice"] = values
        return batch(self._model, "histograms", json.dumps(body).encode())


def _batch(pieces: list[RowPiece], model: dict[str, Any] | None) -> Batch:
    """Return the valid rows with a label."""
    names = pieces[0].columns
    columns: dict[str, Any] = {
        name: _joined([each.columns[name] for each in pieces]) for name in names
    }
    if pieces[0].stamped_at is not None:
        times = [np.full(each.n, int((each.stamped_at or 0.0) * MICROSECONDS)) for each in pieces]
        columns["event_times"] = np.concatenate(times).astype("datetime64[us]")
    if "probabilities" in columns and columns["probabilities"].ndim == 1:
        columns["confidences"] = columns.pop("probabilities")
    known = {} if model is None else {"task": model["task"], "n_classes": model["n_classes"]}
    classes = model["classes"] if model and isinstance(model["classes"], list) else None
    found = Batch.from_columns(nested(columns), class_names=classes, partial=True, **known).batch
    return found.take(np.flatnonzero(found.row_total > 0))


def _joined(parts: list[Any]) -> Any:
    """Return parts of a column as one array, or one list."""
    if all(isinstance(each, np.ndarray) for each in parts):
        return np.concatenate(parts)
    lists = [each.tolist() if isinstance(each, np.ndarray) else json.loads(each) for each in parts]
    return [value for each in lists for value in each]


def spec_of(model: Mapping[str, Any]) -> PaneSpec:
    """Return the specification of a model's panes, from its definition as the service returns it."""
    return PaneSpec.from_dict(
        {name: model[name] for name in ("task", "n_classes", "grid", "listed_classes")}
        | {"composites": list((model.get("composites") or {}).items())}
    )


def _groups(rows: Batch, pane_s: int) -> Iterator[tuple[np.ndarray[Any, Any], int, dict[str, str]]]:
    """Yield the rows of each pane with a time in it and their slice values."""
    assert rows.event_times is not None
    slices = rows.slices or {}
    start = rows.event_times // (pane_s * MICROSECONDS)
    keys: dict[tuple[Any, ...], list[int]] = {}
    for row in range(rows.n):
        key = (int(start[row]), *(str(values[row]) for values in slices.values()))
        keys.setdefault(key, []).append(row)
    for (_, *values), members in keys.items():
        at_us = int(rows.event_times[members[0]])
        yield np.array(members), at_us, dict(zip(slices, values, strict=True))
