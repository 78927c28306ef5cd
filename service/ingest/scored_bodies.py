"""A posted batch of `POST /v1/score` in any of its formats: JSON, NDJSON, CSV, `.npy`, Arrow.

The formats of tables have no field for options: these are in the query. An Arrow table has the columns of JSON, with scores and labels
as lists, or one number per cell, as in CSV.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.input.arrow_column import Column
from calibrant_server.service.http.bodies import ARROW, CSV, JSON, NPY, Body, decoded_limit
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.http.problem import Problem
from calibrant_server.service.ingest.arrow_stream import read_arrow
from calibrant_server.service.ingest.columns import COLUMNS, arrow_batch, read_columns
from calibrant_server.service.ingest.csv_table import read_csv
from calibrant_server.service.ingest.flat_table import from_flat
from calibrant_server.service.ingest.npy_arrays import read_npy
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, indexed
from calibrant_server.service.settings import Settings

TABLES = (ARROW, CSV, NPY)
_OF_LISTS = {"probabilities", "logits", "confidences"}


def read_scored_body(
    body: Body, settings: Settings, columns: str | None = None, options: str | None = None
) -> ParsedBatch:
    """Return the columns of a body, with named raters and options.

    Parameters
    ----------
    columns : roles of the columns of a table, or names of arrays, as in the query
    options : JSON, as in the query

    Raises
    ------
    Problem
        400 for a body that is not of its format, 413 for one of too many rows or columns.
    CalibrationInputError
        An unknown column, or a value that it cannot have; parameters that the format does not take.
    """
    if body.media_type not in TABLES:
        _reject_parameters(body.media_type, columns=columns, options=options)
        head = ("batch_id", "options", *(["annotations"] if body.media_type == JSON else []))
        return read_columns(body, settings, {"rater": "raters"}, head)
    found = _READERS[body.media_type](body, settings, columns)
    return found if options is None else replace(found, options=_options(options))


def _reject_parameters(media_type: str, **parameters: str | None) -> None:
    for name, value in parameters.items():
        if value is not None:
            where = (
                "options of the body"
                if name == "options"
                else "the names that the body's fields have"
            )
            detail = f"Received {name} with a body of {media_type}; expected {where}. The parameter is for tables."
            raise CalibrationInputError.at(f"/{name}", "media_type", detail)


def _options(text: str) -> Any:
    try:
        return read_json(text.encode(), 1000)
    except Problem as error:
        raise CalibrationInputError.at(
            "/options", "json", f"Received options that are not JSON: {error.detail}"
        ) from error


def _csv(body: Body, settings: Settings, columns: str | None) -> ParsedBatch:
    table = read_csv(body.data, settings.max_rows)
    return from_flat(table.columns, columns, table.lines)


def _npy(body: Body, settings: Settings, columns: str | None) -> ParsedBatch:
    return read_npy(body.data, columns, settings.max_rows)


def _arrow(body: Body, settings: Settings, columns: str | None) -> ParsedBatch:
    found, batch_id = read_arrow(body.data, decoded_limit(len(body.data), settings))
    if columns is None and not _OF_LISTS.isdisjoint(found):
        raters = found.pop("raters", None)
        batch = arrow_batch(found, batch_id, (*COLUMNS, "raters"))
        if raters is None:
            return batch
        named = {"raters": indexed(raters), "labels": indexed(batch.columns.get("labels"))}
        return replace(batch, columns=batch.columns | named)
    lists = [name for name, each in found.items() if not _is_flat(each)]
    if lists:
        detail = "Received a column of lists in a table of cells; expected one number or text per cell, or the columns of JSON"
        raise CalibrationInputError.at(f"/{lists[0]}", "arrow_type", detail)
    return from_flat({name: indexed(each) for name, each in found.items()}, columns, [])


def _is_flat(column: Any) -> bool:
    return isinstance(column, Column) and getattr(column.values, "ndim", 2) == 1


_READERS: dict[str, Callable[[Body, Settings, str | None], ParsedBatch]] = {
    CSV: _csv,
    NPY: _npy,
    ARROW: _arrow,
}
