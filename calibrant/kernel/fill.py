"""One fill of a batch: its arrays to the kernel, and the touched cells to the blocks of a pane."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import SPARSE_SHARE, Block
from calibrant.core.batch import Batch
from calibrant.core.content_digest import SOURCES, case_hashes
from calibrant.core.spec import PaneSpec
from calibrant.kernel.structures import KernelBlock, KernelRows
from calibrant.kernel.workspace import MAX_IDLE, Workspace, idle_workspaces

# Place of the predictions' hashes among the arrays of a batch.
PREDICTION_HASH = 6


class Filled(NamedTuple):
    """Accumulators that the kernel filled, and the content digest of the batch."""

    names: frozenset[str]
    digest: int


def fill(
    spec: PaneSpec,
    only: frozenset[str] | None,
    batch: Batch,
    accumulator: Callable[[str], Accumulator],
    *,
    with_cases: bool,
) -> Filled | None:
    """Add a batch to the accumulators that the kernel knows; None where numpy fills all of them.

    Parameters
    ----------
    only : names of the accumulators of the pane; None for all
    accumulator : returns the pane's accumulator of a name
    with_cases : whether a row's case is part of the content digest
    """
    idle = idle_workspaces(spec, only) if batch.n else None
    if idle is None:
        return None
    try:
        workspace = idle.pop()
    except IndexError:
        workspace = Workspace(spec, only)
    rows, arrays = _rows(batch, with_cases)
    if workspace.library.calibrant_kernel_fill(
        workspace.handle, ctypes.byref(rows), workspace.n_touched
    ):
        raise MemoryError(f"the kernel has no memory for a batch of {batch.n} rows")
    if rows.hashes_rows:
        batch.__dict__["prediction_hash"] = arrays[PREDICTION_HASH]
    _flush(workspace, accumulator)
    if len(idle) < MAX_IDLE:
        idle.append(workspace)
    return Filled(workspace.names, rows.digest[0] << 64 | rows.digest[1])


def _rows(batch: Batch, with_cases: bool) -> tuple[KernelRows, tuple[NDArray[Any] | None, ...]]:
    """Return the batch as a structure, and the arrays that it points to, in its order."""
    hashes_rows = _hashes_rows(batch)
    prediction_hash = (
        np.empty(batch.n, np.uint64) if hashes_rows else _hashes(batch.prediction_hash)
    )
    source = batch.unit_source
    has_units = source in ("unit", "case")
    unit_hash = prediction_hash if hashes_rows and not has_units else _hashes(batch.unit_hash)
    ratings = batch.ratings
    arrays = (
        _doubles(batch.scores),
        _doubles(batch.probabilities),
        _integers(ratings.row),
        _integers(ratings.class_index),
        _integers(ratings.count),
        None if batch.weights is None else _doubles(batch.weights),
        prediction_hash,
        unit_hash,
        _hashes(batch.unit_key) if has_units else None,
        case_hashes(batch) if with_cases and batch.cases is not None else None,
    )
    rows = KernelRows(
        batch.n, len(ratings.row), batch.is_logits, has_units, source == "row", SOURCES[source],
        *(None if array is None else array.ctypes.data for array in arrays),
        hashes_rows,
    )  # fmt: skip
    return rows, arrays


def _hashes_rows(batch: Batch) -> bool:
    """Whether predictions are identified by their content and this hash is not known yet, so that the kernel computes it."""
    is_own = type(batch).prediction_hash is Batch.prediction_hash
    return is_own and batch.ids is None and "prediction_hash" not in batch.__dict__


def _doubles(array: NDArray[Any]) -> NDArray[np.float64]:
    return np.ascontiguousarray(array, np.float64)


def _hashes(array: NDArray[Any]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(array, np.uint64)


def _integers(array: NDArray[Any]) -> NDArray[np.int64]:
    return np.ascontiguousarray(array, np.int64)


def _flush(workspace: Workspace, accumulator: Callable[[str], Accumulator]) -> None:
    """Add the touched cells to the pane's blocks: in place where these are dense, else as sparse cells that are merged."""
    sparse: list[tuple[Block, KernelBlock, int]] = []
    touched = list(workspace.n_touched)
    # Address of places, counts and sums, and cells of a column, per block.
    destinations = [0] * (4 * len(touched))
    for name, known in workspace.blocks:
        blocks = accumulator(name).blocks
        for place, block, size in known:
            n = touched[place]
            if not n:
                continue
            own = blocks.get(block.name)
            if own is None:  # state of an older format has no such block: the cells are dropped
                sparse.append((Block(block.n_counts, block.n_sums, size), block, place))
            elif own.is_dense or SPARSE_SHARE * n > size:
                if (own.n_counts, own.n_sums, own.size) != (block.n_counts, block.n_sums, size):
                    raise ValueError(f"{name} {block.name} has other columns than the kernel's")
                counts, sums = own.addresses
                destinations[4 * place : 4 * place + 4] = 0, counts, sums, size
            else:
                sparse.append((own, block, place))
    cells = _SparseCells(touched, sparse)
    for _, block, place in sparse:
        destinations[4 * place : 4 * place + 4] = cells.addresses(block, place)
    workspace.library.calibrant_kernel_flush(
        workspace.handle, (ctypes.c_int64 * len(destinations))(*destinations)
    )
    for own, block, place in sparse:
        own.merge(cells.block(own, block, place))


class _SparseCells:
    """Columns of all sparse cells of a fill in one array: places, counts and sums, block after block."""

    def __init__(self, touched: list[int], blocks: list[tuple[Block, KernelBlock, int]]) -> None:
        self._touched = touched
        self._start: dict[int, int] = {}
        end = 0
        for _, block, place in blocks:
            self._start[place] = end
            end += touched[place] * (1 + block.n_counts + block.n_sums)
        self._integers = np.zeros(end, np.int64)
        self._doubles = self._integers.view(np.float64)
        self._address = self._integers.ctypes.data if end else 0

    def addresses(self, block: KernelBlock, place: int) -> tuple[int, int, int, int]:
        """Return the addresses of a block's places, counts and sums, and the number of its cells."""
        n, first = self._touched[place], self._address + 8 * self._start[place]
        return first, first + 8 * n, first + 8 * n * (1 + block.n_counts), n

    def block(self, own: Block, block: KernelBlock, place: int) -> Block:
        """Return the cells of a block."""
        n, first = self._touched[place], self._start[place]
        sums = first + n * (1 + block.n_counts)
        return Block.of_cells(
            own.size,
            self._integers[first : first + n],
            self._integers[first + n : sums].reshape(block.n_counts, n),
            self._doubles[sums : sums + n * block.n_sums].reshape(block.n_sums, n),
            own.depends_on,
        )
