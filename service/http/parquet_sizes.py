"""Size of a Parquet file once it is decoded, from its footer and the heads of its pages: nothing is decompressed or allocated.

A decoder allocates what the head of a page states. So the heads are read here first, and a file is rejected by what it states: its rows,
columns, pages, values, and the bytes of its pages once decompressed. Of encodings, those are accepted whose values cannot take
more than their page states. https://github.com/apache/parquet-format
"""

from __future__ import annotations

from typing import Any, NoReturn

from calibrant.core.errors import Violation
from calibrant_server.service.http.arrow_sizes import NUMBER_BYTES, TEXT_BYTES, ArrowSizes
from calibrant_server.service.http.errors import BodyTooLarge, MalformedBody
from calibrant_server.service.http.thrift import Struct, ThriftError, ThriftReader

MAGIC = b"PAR1"
MAX_COLUMNS = 1_100  # leaves; as many as a CSV file may have
MAX_PAGES = 20_000
MAX_FOOTER_BYTES = 2 * 1024 * 1024
_MAX_FOOTER_VALUES, _MAX_PAGE_VALUES = 200_000, 100
_BYTE_ARRAY = 6
# PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, RLE_DICTIONARY, BYTE_STREAM_SPLIT. A
# text of DELTA_BYTE_ARRAY repeats the beginning of the previous one: few bytes state any amount of text.
_ENCODINGS = {0, 2, 3, 4, 5, 6, 8, 9}


def parquet_sizes(data: bytes, max_rows: int, max_bytes: int) -> ArrowSizes:
    """Return the rows of a file and the bytes that its values take.

    Raises
    ------
    MalformedBody
        It is no Parquet file, or uses an encoding that is not accepted.
    BodyTooLarge
        It has more than `max_rows` rows, takes more than `max_bytes`, or has too many columns or pages.
    """
    try:
        return _sizes(memoryview(data), max_rows, max_bytes)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        _reject(str(error) if isinstance(error, ThriftError) else "its footer lacks a field")


def _sizes(data: memoryview, max_rows: int, max_bytes: int) -> ArrowSizes:
    footer = _footer(data)
    n_rows = int(footer[3])
    columns = [column for group in footer[4] for column in group[1]]
    if sum(5 not in each for each in footer[2]) > MAX_COLUMNS:
        raise BodyTooLarge(
            f"Received more than {MAX_COLUMNS} Parquet columns; expected at most {MAX_COLUMNS}. Leave out what is not scored."
        )
    if n_rows < 0 or sum(int(group[3]) for group in footer[4]) != n_rows:
        _reject("its row groups have other rows than the file")
    if n_rows > max_rows:
        raise BodyTooLarge(
            f"Received {n_rows} rows; expected at most {max_rows}. Send several batches."
        )
    sizes, n_pages = ArrowSizes(n_rows), 0
    for column in columns:
        for n_bytes in _pages(data, column[3]):
            n_pages += 1
            sizes.n_bytes += n_bytes
            if n_pages > MAX_PAGES:
                raise BodyTooLarge(
                    f"Received more than {MAX_PAGES} Parquet pages; expected at most {MAX_PAGES}. Write larger pages."
                )
            if sizes.n_bytes > max_bytes:
                raise BodyTooLarge(
                    f"Received a Parquet file that takes more than {max_bytes} bytes when decoded ({NUMBER_BYTES} per number, "
                    f"{TEXT_BYTES} per text, and its pages); expected at most {max_bytes}. Send several batches."
                )
    return sizes


def _footer(data: memoryview) -> Struct:
    if len(data) < 12 or data[:4] != MAGIC or data[-4:] != MAGIC:
        _reject("it does not begin and end with PAR1")
    size = int.from_bytes(data[-8:-4], "little")
    if size > min(len(data) - 12, MAX_FOOTER_BYTES):
        _reject(f"its footer is longer than the file or {MAX_FOOTER_BYTES} bytes")
    return ThriftReader(data[: len(data) - 8], len(data) - 8 - size, _MAX_FOOTER_VALUES).struct()


def _pages(data: memoryview, column: Struct) -> Any:
    """Yield the bytes that each page takes: decompressed, and its values."""
    start = min(each for each in (column.get(11), column[9]) if each)
    end = start + int(column[7])
    if not 4 <= start <= end <= len(data):
        _reject("a column is outside the file")
    width = TEXT_BYTES if column[1] == _BYTE_ARRAY else NUMBER_BYTES
    n_left = int(column[5])
    while start < end and n_left > 0:
        reader = ThriftReader(data[:end], start, _MAX_PAGE_VALUES)
        page = reader.struct()
        decoded, compressed = int(page[2]), int(page[3])
        head = page.get(5) or page.get(8)
        if decoded < 0 or not 0 <= compressed <= end - reader.at:
            _reject("a page is outside its column")
        n_values = 0
        if head is not None:
            n_values = int(head[1])
            encoding = head[2] if 5 in page else head[4]
            if n_values < 0 or encoding not in _ENCODINGS:
                _reject(
                    "a page has an encoding that is not accepted; write the file with the default ones"
                )
            n_left -= n_values
        elif 7 in page:
            n_values = int(page[7][1])
        yield decoded + max(n_values, 0) * width
        start = reader.at + compressed
    if n_left > 0:
        _reject("a column has fewer values than the footer states")


def _reject(reason: str) -> NoReturn:
    detail = f"Received a body that is not an accepted Parquet file: {reason}."
    raise MalformedBody(detail, errors=[Violation("", "parquet", detail)])
