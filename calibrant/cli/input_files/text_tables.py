"""CSV and TSV files, read once for each group of columns, so that texts of numbers are never all in memory."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from calibrant.cli.input_files.compressed import ending_of, opened_text
from calibrant.cli.input_files.file_errors import NUMBER_ADVICE, InputFileError
from calibrant.cli.input_files.tables import Floats
from calibrant.cli.input_files.text_format import DEFAULT_FORMAT, TextFormat
from calibrant.input.cell_texts import value_of

DELIMITERS = {".csv": ",", ".tsv": "\t"}
SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas"}
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
# Rows that are converted at once.
ROWS = 4096


class TextTable:
    """A CSV or TSV file; its first line has the names of the columns unless all of its cells are numbers.

    Parameters
    ----------
    path : of the file
    form : of its cells

    Raises
    ------
    InputFileError
        The file is empty, not UTF-8, separated by another character, or repeats a name.
    """

    def __init__(self, path: Path, form: TextFormat = DEFAULT_FORMAT) -> None:
        self.path, self.missing, self._form = path, form.missing_texts, form
        self._delimiter = form.delimiter or DELIMITERS[ending_of(path)]
        first = next(self._lines(), None)
        if first is None:
            detail = "Received an empty file; expected rows. Check the path."
            raise InputFileError(path, detail, "empty")
        cells = [cell.strip() for cell in first[1]]
        self._reject_delimiter(cells)
        self.is_named = not all(map(self._is_number, cells))
        self.names = cells if self.is_named else [str(place) for place in range(len(cells))]
        repeated = next((name for name, n in Counter(self.names).items() if n > 1), None)
        if repeated is not None:
            detail = f"Received the column name {repeated!r:.60} more than once; expected it once."
            raise InputFileError(path, detail, "repeated_column")

    def _reject_delimiter(self, cells: list[str]) -> None:
        """Reject a first line whose cells are separated by another character, as spreadsheets of some languages write them."""
        if len(cells) > 1:
            return
        for separator, name in SEPARATORS.items():
            if separator in cells[0] and separator != self._delimiter:
                expected = SEPARATORS.get(self._delimiter, repr(self._delimiter))
                written = "tab" if separator == "\t" else f"'{separator}'"
                detail = (
                    f"Received {name} between the columns of the first line; expected {expected}. "
                    f"Pass --delimiter {written}, and --decimal , if numbers have a decimal comma."
                )
                raise InputFileError(self.path, detail, "delimiter", None, None, 1)

    def numbers(self, names: Sequence[str]) -> Floats:
        """Return columns as numbers; see `FileTable`."""
        places = [self.names.index(name) for name in names]
        parts: list[Floats] = []
        chunk: list[tuple[int, list[str]]] = []
        for each in self._rows():
            chunk.append(each)
            if len(chunk) == ROWS:
                parts.append(self._converted(chunk, places, sum(map(len, parts))))
                chunk = []
        parts.append(self._converted(chunk, places, sum(map(len, parts))))
        return np.concatenate(parts)

    def _converted(self, chunk: list[tuple[int, list[str]]], places: list[int], row: int) -> Floats:
        try:
            found = [[self._form.number(cells[place]) for place in places] for _, cells in chunk]
        except ValueError:
            raise self._first_error(chunk, places, row) from None
        return np.array(found, np.float64).reshape(len(chunk), len(places))

    def _first_error(
        self, chunk: list[tuple[int, list[str]]], places: list[int], row: int
    ) -> InputFileError:
        for later, (line, cells) in enumerate(chunk):
            for place in places:
                if not self._is_number(cells[place]):
                    detail = f"Received {cells[place][:60]!r}; expected a number. {self._advice(cells[place])}"
                    name = self.names[place]
                    return InputFileError(self.path, detail, "number", name, row + later, line)
        raise AssertionError("every cell is a number")

    def _is_number(self, cell: str) -> bool:
        try:
            self._form.number(cell)
        except ValueError:
            return False
        return True

    def _advice(self, cell: str) -> str:
        """Return what to do about a cell that is no number."""
        if self._form.has_decimal_comma and "." in cell:
            return "With --decimal , a number has no point."
        if DECIMAL_COMMA.fullmatch(cell.strip()):
            return "For decimal commas, pass --decimal , and --delimiter."
        return NUMBER_ADVICE

    def texts(self, name: str, declared: Collection[str] = ()) -> list[str | None]:
        """Return a column as texts; see `FileTable`. Numbers with a decimal comma are written with a point."""
        place = self.names.index(name)
        cells = (self._pointed(row[place]) for _, row in self._rows())
        return [value_of(cell, self.missing, declared) for cell in cells]

    def _pointed(self, cell: str) -> str:
        if self._form.has_decimal_comma and DECIMAL_COMMA.fullmatch(cell.strip()):
            return cell.replace(",", ".")
        return cell

    def line(self, row: int) -> int | None:
        """Return the line of a row, from 1."""
        for each, (line, _) in enumerate(self._rows()):
            if each == row:
                return line
        return None

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each row with its line; a row of other length is an error."""
        lines = self._lines()
        if self.is_named:
            next(lines)
        for row, (line, cells) in enumerate(lines):
            if len(cells) != len(self.names):
                detail = f"Received {len(cells)} cells; expected {len(self.names)}, one per column."
                raise InputFileError(self.path, detail, "length", None, row, line)
            yield line, cells

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        try:
            with opened_text(self.path, "utf-8-sig") as file:
                reader = csv.reader(file, delimiter=self._delimiter)
                for cells in reader:
                    if cells:
                        yield reader.line_num, cells
        except UnicodeDecodeError as error:
            detail = f"Received bytes that are not UTF-8 ({error.reason}). Save the file as UTF-8."
            raise InputFileError(self.path, detail, "utf8") from error
        except csv.Error as error:
            raise InputFileError(self.path, f"The file is no table: {error}.", "csv") from error
