"""File of stored panes and samples of a model and day: Parquet, readable by any program.

One row is a pane of a slice, or a stored sample. Each accumulator is a column of packed bytes; `version` is the state version of
the pane. Running totals of sources, and the pieces of a sample, are in the map `fields`. Row groups are small: a query reads the
columns of the slices that it needs, and nothing else. The columns that the table of an export has too (`slice`, `from`, `to`) have the
same names and types.

A read is checked: the footer by the digest that the store has of it, the pages by the checksums in them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from calibrant.core.packing import PackingError
from calibrant_server.workers.store.keys import SOURCE_FIELD

PANE, EVENT, SEALED = "pane", "event", "sealed"
FORMAT = "1"
# Rows of a row group have at least these bytes together: slices with few rows share one.
GROUP_BYTES = 256 << 10
# Ranges of a file that are closer than this are read at once.
_GAP_BYTES = 64 << 10
_MAGIC = b"PAR1"
_PART = "part_"
_FIELDS = "fields"
_INDEX, _FORMAT = b"calibrant.rows", b"calibrant.format"


class DayItem(NamedTuple):
    """Something stored of a day: the pane of a slice, or the sample of predictions or of sealed cohorts."""

    kind: str
    slice: str
    start_s: int


class StoredItem(NamedTuple):
    """An item with its content, as the hash of the store has it."""

    item: DayItem
    to_s: int
    version: bytes
    fields: Mapping[bytes, bytes]

    @property
    def n_bytes(self) -> int:
        """Bytes of its content."""
        return sum(len(name) + len(value) for name, value in self.fields.items())


class DayFileDamaged(PackingError):
    """A file of a cold day is missing, or has other bytes than were written."""


@dataclass(frozen=True)
class DayFile:
    """A file as the store knows it."""

    name: str
    n_bytes: int
    digest: str
    footer_bytes: int
    footer_digest: str

    @classmethod
    def of(cls, name: str, data: bytes) -> DayFile:
        """Describe a file that was written."""
        n_footer = int.from_bytes(data[-8:-4], "little") + 8
        return cls(name, len(data), digest(data), n_footer, digest(data[-n_footer:]))

    @property
    def footer_range(self) -> tuple[int, int]:
        """Bytes of the footer in the file."""
        return self.n_bytes - self.footer_bytes, self.n_bytes


def digest(data: bytes) -> str:
    """Return the digest of a file, or of a part of one."""
    return blake2b(data, digest_size=16).hexdigest()


def write_day(items: Sequence[StoredItem], about: Mapping[str, str]) -> bytes:
    """Return the file of these items.

    Parameters
    ----------
    about : what the file belongs to, for its readers
    """
    import pyarrow.parquet as pq

    groups = list(_groups(items))
    names = sorted({_PART + name for each in items for name in _parts(each)})
    index = [
        [*each.item, number, row]
        for number, group in enumerate(groups)
        for row, each in enumerate(group)
    ]
    known = {_FORMAT.decode(): FORMAT, _INDEX.decode(): json.dumps(index), **about}
    schema = _schema(names)
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink, schema, compression="none", use_dictionary=False, write_statistics=["slice"],
        write_page_checksum=True, store_schema=False,
    ) as writer:  # fmt: skip
        for group in groups:
            writer.write_table(_table(group, schema), row_group_size=len(group))
        writer.add_key_value_metadata(known)
    return sink.getvalue()


def _groups(items: Iterable[StoredItem]) -> Iterable[list[StoredItem]]:
    group: list[StoredItem] = []
    n_bytes = 0
    for each in items:
        group.append(each)
        n_bytes += each.n_bytes
        if n_bytes >= GROUP_BYTES:
            yield group
            group, n_bytes = [], 0
    if group:
        yield group


def _is_part(item: DayItem, name: str) -> bool:
    return item.kind == PANE and not name.startswith(SOURCE_FIELD)


def _parts(stored: StoredItem) -> dict[str, bytes]:
    named = {name.decode(): value for name, value in stored.fields.items()}
    return {name: value for name, value in named.items() if _is_part(stored.item, name)}


def _schema(parts: Sequence[str]) -> Any:
    import pyarrow as pa

    time = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            ("kind", pa.string()),
            ("slice", pa.string()),
            ("from", time),
            ("to", time),
            ("version", pa.binary()),
            (_FIELDS, pa.map_(pa.string(), pa.binary())),
            *((name, pa.binary()) for name in parts),
        ]
    )


def _table(group: Sequence[StoredItem], schema: Any) -> Any:
    import pyarrow as pa

    rows = []
    for each in group:
        parts = _parts(each)
        others = [(n.decode(), v) for n, v in each.fields.items() if n.decode() not in parts]
        rows.append(
            {
                "kind": each.item.kind,
                "slice": each.item.slice,
                "from": each.item.start_s * 1_000_000,
                "to": each.to_s * 1_000_000,
                "version": each.version,
                _FIELDS: others,
                **{_PART + name: value for name, value in parts.items()},
            }
        )
    return pa.Table.from_pylist(rows, schema=schema)


class DayFooter:
    """What a file has, and where."""

    def __init__(self, file: DayFile, data: bytes):
        """Read a footer.

        Raises
        ------
        DayFileDamaged
            It has other bytes than were written.
        """
        if digest(data) != file.footer_digest:
            raise DayFileDamaged(f"the footer of the file {file.name} is damaged")
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.file = file
        self._metadata = pq.read_metadata(pa.BufferReader(_MAGIC + data))
        known = self._metadata.metadata
        if known[_FORMAT].decode() != FORMAT:
            raise DayFileDamaged(f"the file {file.name} has a format of another version")
        self.rows: dict[DayItem, tuple[int, int]] = {
            DayItem(kind, slice_, start_s): (group, row)
            for kind, slice_, start_s, group, row in json.loads(known[_INDEX])
        }
        columns = [
            self._metadata.schema.column(at).path for at in range(self._metadata.num_columns)
        ]
        self._columns: dict[str, list[int]] = {}
        for at, path in enumerate(columns):
            self._columns.setdefault(path.partition(".")[0], []).append(at)
        self.size = 20 * len(data) + 1000

    def wanted(self, item: DayItem, parts: Sequence[str] | None) -> list[str]:
        """Return the columns that have parts of an item; None for everything that is stored of it."""
        if parts is not None:
            return [_PART + name for name in parts if _PART + name in self._columns]
        return [name for name in self._columns if name.startswith(_PART) or name == _FIELDS]

    def ranges(self, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
        """Return the ranges of the file that have these columns of a row group."""
        found: list[tuple[int, int]] = []
        described = self._metadata.row_group(group)
        for at in sorted(at for name in columns for at in self._columns[name]):
            chunk = described.column(at)
            start = chunk.data_page_offset
            end = start + chunk.total_compressed_size
            if found and start - found[-1][1] < _GAP_BYTES:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return found

    def values(
        self, group: int, columns: Sequence[str], segments: Sequence[tuple[int, bytes]]
    ) -> dict[str, list[Any]]:
        """Return the values of columns of a row group.

        Parameters
        ----------
        segments : bytes of the file, each with their place

        Raises
        ------
        DayFileDamaged
            They are other bytes than were written.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            source = pq.ParquetFile(
                _Segments(segments, self.file.n_bytes),
                metadata=self._metadata,
                page_checksum_verification=True,
            )
            table = source.read_row_group(group, columns=list(columns), use_threads=False)
            return {name: table.column(name).to_pylist() for name in columns}
        except MemoryError:
            raise  # of Arrow too, whose own class of it is an ArrowException
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DayFileDamaged(f"the file {self.file.name} is damaged: {error}") from error


def fields_of(values: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return the fields of a hash of the store, from the columns of one row."""
    found = dict(values)
    fields = {name.encode(): value for name, value in found.pop(_FIELDS, None) or ()}
    return fields | {
        name.removeprefix(_PART).encode(): value
        for name, value in found.items()
        if value is not None
    }


class _Segments(io.RawIOBase):
    """A file of which some ranges were read."""

    def __init__(self, segments: Sequence[tuple[int, bytes]], n_bytes: int):
        super().__init__()
        self._segments, self._n_bytes, self._at = segments, n_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = (
            offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._n_bytes}[whence]
        )
        return self._at

    def read(self, size: int = -1) -> bytes:
        size = self._n_bytes - self._at if size < 0 else size
        for start, data in self._segments:
            if start <= self._at and self._at + size <= start + len(data):
                found = data[self._at - start : self._at - start + size]
                self._at += size
                return found
        raise OSError(f"bytes {self._at} to {self._at + size} are in no part that was read")
