"""One fill of a batch: its arrays to the kernel, and the touched cells to the blocks of a pane."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.block import SPARSE_SHARE, Block
from calibrant.core.batch import Batch
from calibrant.core.content_digest import SOURCES, case_hashes
from calibrant.core.spec import PaneSpec
from calibrant.kernel.declarations import KernelBlock
from calibrant.kernel.workspace import MAX_IDLE, Arrays, Workspace, idle_workspaces


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
) -> Filled:
    """Add a batch of at least one prediction to the accumulators that the kernel knows.

    Parameters
    ----------
    only : names of the accumulators of the pane; None for all
    accumulator : returns the pane's accumulator of a name
    with_cases : whether a row's case is part of the content digest
    """
    idle = idle_workspaces(spec, only)
    try:
        workspace = idle.pop()
    except IndexError:
        workspace = Workspace(spec, only)
    hashes = np.empty(batch.n, np.uint64) if _hashes_rows(batch) else None
    rows, arrays = workspace.rows, _arrays(batch, hashes, with_cases)
    _describe(batch, rows)
    # A pane of some accumulators has no digest.
    rows.hashes_rows, rows.needs_digest = hashes is not None, only is None
    workspace.pointers[:] = [None if array is None else array.ctypes.data for array in arrays]
    if workspace.library.calibrant_kernel_fill(
        workspace.handle, ctypes.byref(rows), workspace.n_touched
    ):
        raise MemoryError(f"the kernel has no memory for a batch of {batch.n} rows")
    if hashes is not None:
        batch.__dict__["prediction_hash"] = hashes
    _flush(workspace, accumulator)
    if len(idle) < MAX_IDLE:
        idle.append(workspace)
    return Filled(workspace.names, rows.digest[0] << 64 | rows.digest[1])


def _arrays(batch: Batch, hashes: NDArray[np.uint64] | None, with_cases: bool) -> Arrays:
    """Return the arrays that a `Batch` of the kernel points to, in its order.

    Parameters
    ----------
    hashes : memory for the predictions' hashes if the kernel computes them, else None
    """
    has_units = batch.has_units
    counted = batch.ratings.row, batch.ratings.class_index, batch.ratings.count
    return (
        *(np.ascontiguousarray(each, np.float64) for each in (batch.scores, batch.probabilities)),
        *(np.ascontiguousarray(each, np.int64) for each in counted),
        None if batch.weights is None else np.ascontiguousarray(batch.weights, np.float64),
        batch.prediction_hash if hashes is None else hashes,
        batch.unit_hash if hashes is None or has_units else hashes,
        batch.unit_key if has_units else None,
        case_hashes(batch) if with_cases and batch.cases is not None else None,
        None if batch.edge_rules is None else batch.edge_rules.astype(np.int64),
    )


def _describe(batch: Batch, rows: Any) -> None:
    """Write to the structure of a batch what is not in its arrays."""
    source = batch.unit_source
    rows.n, rows.n_entries = batch.n, len(batch.ratings.row)
    rows.is_logits, rows.has_units = batch.is_logits, batch.has_units
    rows.unit_from_row, rows.digest_source = source == "row", SOURCES[source]


def _hashes_rows(batch: Batch) -> bool:
    """Whether predictions are identified by their content and this hash is not known yet, so that the kernel computes it."""
    is_own = type(batch).prediction_hash is Batch.prediction_hash
    return is_own and batch.ids is None and "prediction_hash" not in batch.__dict__


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
    given = (ctypes.c_int64 * len(destinations))(*destinations)
    workspace.library.calibrant_kernel_flush(workspace.handle, given)
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
