"""A CSV body as columns of texts, with the line of each row. Columns and rows are counted while they are read."""

from __future__ import annotations

import csv
import io
from typing import NamedTuple

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.http.errors import BodyTooLarge, MalformedBody

MAX_COLUMNS = 1_100


class CsvTable(NamedTuple):
    """Columns of texts by name, and the line of each row in the body, from 1."""

    columns: dict[str, list[str]]
    lines: list[int]


def read_csv(data: bytes, max_rows: int) -> CsvTable:
    """Return the table in a body, whose first line names the columns.

    Raises
    ------
    MalformedBody
        It is not UTF-8, or not CSV.
    CalibrationInputError
        A row of another length, no row, or a name that is repeated.
    BodyTooLarge
        More than `max_rows` rows, or too many columns.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        detail = f"Received bytes that are not UTF-8 ({error.reason} at byte {error.start}). Encode the table as UTF-8."
        raise MalformedBody(detail, errors=[Violation("", "utf8", detail)]) from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] = []
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for cells in reader:
            if not cells:
                continue
            if not names:
                names = _names(cells)
                continue
            if len(cells) != len(names):
                detail = f"Received {len(cells)} cells; expected {len(names)}, one per column."
                raise CalibrationInputError.at(f"/{reader.line_num}", "length", detail)
            if len(rows) == max_rows:
                raise BodyTooLarge(
                    f"Received more than {max_rows} rows; expected at most {max_rows}. Send several batches."
                )
            rows.append(cells)
            lines.append(reader.line_num)
    except csv.Error as error:
        detail = f"Received a line {reader.line_num} that is not CSV ({error}). Quote cells as RFC 4180 describes."
        raise MalformedBody(detail, errors=[Violation("", "csv", detail)]) from error
    if not rows:
        raise CalibrationInputError.at(
            "", "empty", "Received no row; expected a line of names and at least one row."
        )
    return CsvTable(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)), lines)


def _names(cells: list[str]) -> list[str]:
    if len(cells) == 1 and not {";", "\t"}.isdisjoint(cells[0]):
        detail = "Received semicolons or tabs between the names of columns; expected commas, and a point in decimal numbers."
        raise CalibrationInputError.at("/1", "delimiter", detail)
    names = [cell.strip() for cell in cells]
    if len(names) > MAX_COLUMNS:
        raise BodyTooLarge(
            f"Received {len(names)} columns; expected at most {MAX_COLUMNS}. Leave out what is not scored."
        )
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        detail = f"Received column {repeated[:60]!r} twice; expected it once."
        raise CalibrationInputError.at(f"/1/{repeated[:60]}", "repeated_key", detail)
    return names
