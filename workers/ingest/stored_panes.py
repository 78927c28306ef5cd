"""A stored pane: its sums, and the rows of its time slice that are not sums yet.

Sums and rows are read at one moment. Afterwards it makes no difference whether the rows have become sums since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calibrant_server.workers.ingest.tail_cache import sorted_pieces
from calibrant_server.workers.store.keys import SOURCE_FIELD, PaneKey, PartitionKeys
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.watermarks import is_live

if TYPE_CHECKING:
    from calibrant_server.workers.ingest.reduce import Numerics

Wanted = tuple[str, ...] | None


def read_pane(
    node: Any, keys: PartitionKeys, ground: Numerics, config: ModelConfig, key: PaneKey
) -> tuple[Any, dict[str, bytes]]:
    """Return a pane of the store, and its running totals as stored.

    Raises
    ------
    PackingError
        The sums or the rows are damaged.
    """
    reads = ReadTogether()
    reads.hgetall(keys.pane(key))
    reads.hgetall(keys.tail(key))
    fields, tail = reads.run(node)
    parts, sources = divided(fields)
    return whole_pane(ground, config, key.slice, parts, tail), sources


def divided(fields: Mapping[bytes, bytes]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the accumulators of a stored pane, and its running totals."""
    named = {name.decode(): value for name, value in fields.items()}
    sources = {name: value for name, value in named.items() if name.startswith(SOURCE_FIELD)}
    return {name: value for name, value in named.items() if name not in sources}, sources


def whole_pane(
    ground: Numerics,
    config: ModelConfig,
    slice_: str,
    parts: Mapping[str, bytes],
    tail: dict[bytes, bytes],
    only: Wanted = None,
) -> Any:
    """Return the sums of a pane together with the rows that feed it, or the accumulators of both that are named in `only`.

    Raises
    ------
    PackingError
        The sums or the rows are damaged.
    """
    spec = ground.spec(config)
    pane = ground.pane.from_parts(spec, parts, only=only) if parts else _empty(ground, spec, only)
    rows = read_rows(ground, tail) if is_live(slice_) else None
    if rows is not None:
        rows.fill_into(pane, slice_, lambda: _empty(ground, spec, only))
    return pane


def read_rows(ground: Numerics, tail: dict[bytes, bytes]) -> Any:
    """Return the rows of a stored tail; None if there are none.

    Raises
    ------
    PackingError
        The rows are damaged.
    """
    pieces = [ground.rows.unpack(data) for _, data in sorted_pieces(tail)]
    return ground.rows.together(pieces) if pieces else None


def _empty(ground: Numerics, spec: Any, only: Wanted) -> Any:
    return ground.pane(spec) if only is None else ground.pane(spec, only)
