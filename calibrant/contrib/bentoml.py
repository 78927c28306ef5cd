"""BentoML: a monitor that logs predictions, and a reader of the files that BentoML's own monitor writes.

    # bentofile or configuration: monitoring: {type: calibrant.contrib.bentoml.CalibrantMonitor, options: {url: ..., model: triage}}
    with bentoml.monitor("triage") as monitor:
        monitor.log([0.7, 0.2, 0.1], name="probabilities", role="prediction", data_type="numerical_sequence")

Sources: `bentoml/BentoML`, `_internal/monitoring/base.py` and `default.py`. A request may log several rows under one request id, so
row r of request q has the id `q:r`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

import numpy as np

from calibrant.client import Client
from calibrant.contrib.extras import missing
from calibrant.contrib.ids import content_id
from calibrant.input.names import fitted

try:
    from bentoml._internal.context import trace_context
    from bentoml._internal.monitoring.base import MonitorBase
except ModuleNotFoundError as error:
    raise missing(error, "bentoml") from error

TIME, REQUEST = "timestamp", "request_id"
MAX_BATCH = 1000  # rows


@dataclass(frozen=True)
class Columns:
    """Which columns of a monitor hold what.

    Parameters
    ----------
    scores : column with a probability per class, or P(class 1). Default: the only one with the role `prediction`
    is_logits : whether these are logits
    labels, units : columns, None if there are none
    slices : columns that are slice keys
    """

    scores: str | None = None
    is_logits: bool = False
    labels: str | None = None
    units: str | None = None
    slices: Sequence[str] = ()

    def read(
        self, rows: Sequence[Mapping[str, Any]], predictions: Collection[str]
    ) -> dict[str, Any]:
        """Return the columns of rows, as `Model.log` and `Model.send` take them.

        Parameters
        ----------
        rows : by column
        predictions : names of the columns with the role `prediction`

        Raises
        ------
        ValueError
            There is no column of that name, or no single one with predictions.
        """
        name = self.scores
        if name is None:
            if len(predictions) != 1:
                listed = ", ".join(sorted(predictions)) or "none"
                raise ValueError(
                    f"Received prediction columns {listed}; expected `scores` to name one."
                )
            (name,) = predictions
        scores = [np.asarray(each, np.float64) for each in _column(rows, name)]
        found: dict[str, Any] = {"logits" if self.is_logits else "probabilities": np.stack(scores)}
        if self.labels is not None:
            found["labels"] = _column(rows, self.labels)
        if self.units is not None:
            found["units"] = [fitted(str(each)) for each in _column(rows, self.units)]
        if self.slices:
            found["slices"] = {
                key: [fitted(str(each)) for each in _column(rows, key)] for key in self.slices
            }
        return found


class CalibrantMonitor(MonitorBase[Any]):
    """A monitor that logs each request's rows in the background: it never waits for the service.

    Parameters
    ----------
    name : of the monitor
    url : of the service
    model : of the service. Default: `name`
    key_variable : environment variable with the key
    columns : as the parameters of `Columns`
    client : another client, instead of one for `url`
    options : of `Client.model`, such as `max_bytes`
    """

    PRESERVED_COLUMNS = (TIME, REQUEST)

    def __init__(
        self,
        name: str,
        url: str = "http://127.0.0.1:8000",
        model: str | None = None,
        key_variable: str = "CALIBRANT_KEY",
        columns: Mapping[str, Any] | None = None,
        client: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(name)
        self.columns = Columns(**(columns or {}))
        self.client = client or Client(url, os.environ.get(key_variable))
        self.model = self.client.model(model or name, **options)
        self._predictions: set[str] = set()

    def export_schema(self, columns_schema: dict[str, dict[str, str]]) -> None:
        """Note which columns are predictions."""
        self._predictions = _predictions(columns_schema.values())

    def export_data(self, datas: dict[str, Any]) -> None:
        """Log the rows of a request."""
        names = list(datas)
        n_rows = {len(each) for each in datas.values()}
        if len(n_rows) != 1:
            raise ValueError(f"Received columns of {sorted(n_rows)} rows; expected one length.")
        rows = [dict(zip(names, row, strict=True)) for row in zip(*datas.values(), strict=True)]
        for each in datas.values():
            each.clear()
        found = self.columns.read(rows, self._predictions)
        request = trace_context.request_id
        if request is not None:
            found["ids"] = [fitted(f"{request}:{row}") for row in range(len(rows))]
        self.model.log(**found)


def read_files(
    data: Iterable[str], schema: Iterable[str], columns: Columns, zone: tzinfo
) -> Iterator[dict[str, Any]]:
    """Yield batches of columns from the files of BentoML's default monitor.

    Parameters
    ----------
    data, schema : lines of `data.N.log` and `schema.N.log`
    columns : which columns hold what
    zone : time zone of the server: its timestamps have none

    Returns
    -------
    Keyword arguments of `Model.send`, with a batch id that equal rows always get: a file that is sent again counts once.
    """
    lines = [json.loads(line) for line in schema if line.strip()]
    predictions = {name for line in lines for name in _predictions(line["columns"])}
    rows: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    for line in data:
        if line.strip():
            row = json.loads(line)
            number = counts[row[REQUEST]] = counts.get(row[REQUEST], -1) + 1
            rows.append(row | {"id": fitted(f"{row[REQUEST]}:{number}")})
            if len(rows) == MAX_BATCH:
                yield _batch(rows, columns, predictions, zone)
                rows = []
    if rows:
        yield _batch(rows, columns, predictions, zone)


def _batch(
    rows: list[dict[str, Any]], columns: Columns, predictions: set[str], zone: tzinfo
) -> dict[str, Any]:
    times = [datetime.fromisoformat(row[TIME]) for row in rows]
    return columns.read(rows, predictions) | {
        "ids": [row["id"] for row in rows],
        "event_times": [at if at.tzinfo else at.replace(tzinfo=zone) for at in times],
        "batch_id": content_id("bento", rows),
    }


def _predictions(schema: Iterable[Mapping[str, str]]) -> set[str]:
    return {each["name"] for each in schema if each["role"] == "prediction"}


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    try:
        return [row[name] for row in rows]
    except KeyError:
        listed = ", ".join(rows[0])
        raise ValueError(f"Received columns {listed}; expected {name} in each row.") from None
