"""A stored pane: its sums, and the rows of its time slice that are not sums yet.

Sums and rows are read at one moment. Afterwards it makes no difference whether the rows have become sums since. If the day of the pane is
in files, the file is read afterwards: files do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibrant_server.workers.segments.pieces import sorted_pieces
from calibrant_server.workers.store.cold_days import ColdDay, of_file
from calibrant_server.workers.store.day_file import pane_item
from calibrant_server.workers.store.key_names import SOURCE_FIELD, PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.slice_names import is_baseline, is_live
from calibrant_server.workers.store.watermarks import day_of

if TYPE_CHECKING:
    from calibrant_server.workers.ingest.reduce import Numerics

Wanted = tuple[str, ...] | None


def read_pane(
    node: Any, keys: PartitionKeys, numerics: Numerics, config: ModelConfig, key: PaneKey
) -> tuple[Any, dict[str, bytes]]:
    """Return a pane of the store, and its running totals as stored.

    Raises
    ------
    PackingError
        The sums or the rows are damaged.
    """
    reads = pane_reads(keys, key)
    fields, tail = fields_and_tail(keys, key, reads.run(node))
    parts, sources = divided(fields)
    return complete_pane(numerics, config, key.slice, parts, tail), sources


def pane_reads(keys: PartitionKeys, key: PaneKey) -> ReadTogether:
    """Return the reads of a pane, for `fields_and_tail`."""
    reads = ReadTogether()
    reads.hget(keys.cold_days(key.model, key.generation), day_of(key.start_s))
    reads.hgetall(keys.pane(key))
    reads.hgetall(keys.tail(key))
    return reads


def fields_and_tail(
    keys: PartitionKeys, key: PaneKey, replies: Sequence[Any]
) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return the fields of a pane, of the store or of a file, and its tail.

    Raises
    ------
    PackingError
        The file is damaged.
    FilesUnavailable
        The store of files does not respond.
    """
    text, fields, tail = replies
    found = of_file(keys.files, ColdDay.read(text), pane_item(key))
    return fields if found is None else found, tail


def divided(fields: Mapping[bytes, bytes]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the accumulators of a stored pane, and its running totals."""
    named = {name.decode(): value for name, value in fields.items()}
    sources = {name: value for name, value in named.items() if name.startswith(SOURCE_FIELD)}
    return {name: value for name, value in named.items() if name not in sources}, sources


def complete_pane(
    numerics: Numerics,
    config: ModelConfig,
    slice_: str,
    parts: Mapping[str, bytes],
    tail: dict[bytes, bytes],
    only: Wanted = None,
) -> Any:
    """Return the sums of a pane together with the rows that feed it, or the accumulators of both that are named in `only`.

    The sample is stored elsewhere, by model and day (`sample_reading.py`); that of a baseline is in its pane.

    Raises
    ------
    PackingError
        The sums or the rows are damaged.
    """
    pane, rows = sums_and_rows(numerics, config, slice_, parts, tail, only)
    if rows is not None:
        spec = numerics.spec(config)
        rows.fill_into(pane, slice_, lambda: numerics.of_parts(spec, {}, only))
    return pane


def sums_and_rows(
    numerics: Numerics,
    config: ModelConfig,
    slice_: str,
    parts: Mapping[str, bytes],
    tail: dict[bytes, bytes],
    only: Wanted = None,
) -> tuple[Any, Any]:
    """Return the sums of a pane, and the rows of its time slice that are to be filled into them, or None.

    Raises
    ------
    PackingError
        The sums or the rows are damaged.
    """
    spec = numerics.spec(config)
    if is_baseline(slice_) and parts:
        return numerics.pane.from_parts(spec, parts, only=only), None
    pane = numerics.of_parts(spec, parts, only)
    if not is_live(slice_):
        return pane, None
    return pane, read_rows(numerics, tail)


def read_rows(numerics: Numerics, tail: dict[bytes, bytes]) -> Any:
    """Return the rows of a stored tail; None if there are none.

    Raises
    ------
    PackingError
        The rows are damaged.
    """
    pieces = [data for _, data in sorted_pieces(tail)]
    return numerics.rows.unpack_pieces(pieces) if pieces else None


@dataclass(frozen=True)
class PaneRows:
    """Rows of several panes, concatenated once, where they are filled.

    Attributes
    ----------
    pieces : the rows of each pane; their batches stay apart, as a unit's rows share its weight within a batch
    """

    numerics: Numerics
    pieces: tuple[Any, ...]

    @classmethod
    def of(cls, numerics: Numerics, several: Sequence[Any]) -> PaneRows:
        """Return rows of panes, or of several panes each, in their order."""
        pieces: list[Any] = []
        for rows in several:
            pieces += rows.pieces if isinstance(rows, cls) else (rows,)
        return cls(numerics, tuple(pieces))

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    @property
    def least_bytes(self) -> int:
        """Lower estimate of the packed size, without packing."""
        return sum(rows.least_bytes for rows in self.pieces)

    def fill_into(self, pane: Any, slice_: str, make: Callable[[], Any]) -> None:
        """Add the rows of a slice to a pane, and take away those of negative sign."""
        self.numerics.rows.together_apart(self.pieces).fill_into(pane, slice_, make)
