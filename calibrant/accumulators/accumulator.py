"""Interface of an accumulator: zero, fill, merge, subtract, and bytes with a format number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import BlockColumns
from calibrant.core.arrays import stored_bytes
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.documents import Header
from calibrant.core.packing import PackingError, pack, unpack
from calibrant.core.spec import PaneSpec

# Python objects around the arrays: an accumulator with its dictionaries, and a block with its name.
_OBJECT_BYTES, _BLOCK_OBJECT_BYTES = 700, 200
# Of zstandard. Sums are packed at every commit: level 3 takes twice the time of level 1 for 2 to 3 % less.
_LEVEL = 1


class Accumulator:
    """Named blocks of counts and sums. A subclass declares and fills them.

    Attributes
    ----------
    format : number of the newest format, which has every block
    optional : whether posted panes may lack it, because clients of an older version do not fill it
    later_blocks : blocks that came after format 1, with the format that brought them. State of an older format has no such block,
        nor has any sum with it: a block is of all predictions or is not present.
    """

    name: ClassVar[str]
    format: ClassVar[int] = 1
    optional: ClassVar[bool] = False
    later_blocks: ClassVar[Mapping[str, int]] = {}

    def __init__(self, spec: PaneSpec) -> None:
        self.spec = spec
        self.blocks = self.zero()

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        """Return whether panes of this specification store it."""
        return True

    @classmethod
    def concerns(cls, batch: Batch) -> bool:
        """Return whether a batch can add anything to it, judged by its optional columns."""
        return True

    @classmethod
    def columns(cls, spec: PaneSpec) -> dict[str, BlockColumns]:
        """Return the columns of each block of the newest format, by the block's name; none for what is no cells."""
        return {}

    def zero(self) -> dict[str, Block]:
        """Return its blocks, empty."""
        columns = _columns_of(self.columns, self.spec)
        return {name: each.block() for name, each in columns.items()}

    def ranges(self) -> dict[str, BlockColumns]:
        """Return the columns of each block that is present, by the block's name."""
        columns = _columns_of(self.columns, self.spec)
        return {name: each for name, each in columns.items() if name in self.blocks}

    def fill(self, batch_sums: BatchSums) -> None:
        """Add a batch, where the compiled kernel does not.

        `batch_sums.batch` has at least one labelled prediction, or `batch_sums.n` is 0.
        """
        raise NotImplementedError(f"{type(self).__name__} must fill its blocks")

    def shares(self) -> dict[str, tuple[float, str]]:
        """Return, by name, a number of this accumulator and the count of the pane (or "weight") that is at least as large."""
        return {}

    @property
    def is_empty(self) -> bool:
        return all(block.is_empty for block in self.blocks.values())

    @property
    def memory_bytes(self) -> int:
        """Bytes that it keeps allocated, empty cells of dense blocks included.

        Memory shared with a copy counts in both. Sizes of Python objects around the arrays are estimates.
        """
        return stored_bytes(self.stored_arrays()) + self.object_bytes

    @property
    def object_bytes(self) -> int:
        """Estimate of the bytes of its Python objects other than the arrays."""
        return _OBJECT_BYTES + _BLOCK_OBJECT_BYTES * len(self.blocks)

    def stored_arrays(self) -> Iterator[NDArray[Any]]:
        """Return every array that it refers to."""
        for block in self.blocks.values():
            yield from block.stored_arrays()

    @property
    def stored_format(self) -> int:
        """Format that has exactly the blocks that are present."""
        absent = [number for name, number in self.later_blocks.items() if self._lacks(name)]
        return min(absent) - 1 if absent else self.format

    def merge(self, other: Accumulator) -> None:
        """Add the other's sums to these. Blocks that one of them lacks are dropped."""
        if not other.is_empty:
            self._lower_format(other)
        for name, block in self.blocks.items():
            if name in other.blocks:
                block.merge(other.blocks[name])

    def merge_all(self, others: Sequence[Accumulator]) -> None:
        """Add several others. The result equals adding them one after the other."""
        for other in others:
            self.merge(other)

    def subtract(self, other: Accumulator) -> None:
        """Subtract the other's sums."""
        if not other.is_empty:
            self._lower_format(other)
        for name, block in self.blocks.items():
            if name in other.blocks:
                block.subtract(other.blocks[name])
        if self.stored_format < self.format and self.is_empty:
            self.blocks = self.zero()

    def tighten(self) -> None:
        """Use less memory where few cells are filled. No number changes."""
        for block in self.blocks.values():
            block.tighten()

    def compact(self) -> None:
        """Store each block sparsely where that takes less memory. No number changes."""
        for block in self.blocks.values():
            block.compact()

    def copy(self) -> Accumulator:
        twin = type(self)(self.spec)
        twin.blocks = {name: block.copy() for name, block in self.blocks.items()}
        return twin

    def pack(self) -> bytes:
        """Return the accumulator as bytes."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, block in self.blocks.items():
            arrays |= block.arrays(name)
        return pack(arrays, self._described(), level=_LEVEL)

    @classmethod
    def unpack(cls, spec: PaneSpec, data: bytes) -> Self:
        """Read the accumulator that `pack` wrote.

        Raises
        ------
        PackingError
            The bytes are damaged, or of another accumulator, another specification or an unknown format.
        """
        unpacked = cls(spec)
        largest = sum(block.max_bytes_stored for block in unpacked.blocks.values())
        arrays, about = cls._own_arrays(spec, data, largest)
        unpacked._drop_blocks_after(about["format"])
        for name, block in unpacked.blocks.items():
            block.read(name, arrays)
        return unpacked

    @classmethod
    def _read_formats(cls) -> range:
        return range(1, cls.format + 1)

    def _described(self) -> Header:
        return {"accumulator": self.name, "format": self.stored_format, "spec": self.spec.digest}

    def _lacks(self, name: str) -> bool:
        """Return whether a block of the newest format is not present although this specification has it."""
        return name not in self.blocks and name in self.zero()

    def _lower_format(self, other: Accumulator) -> None:
        """Drop the blocks that the other lacks."""
        if self.later_blocks and other.stored_format < self.stored_format:
            self._drop_blocks_after(other.stored_format)

    def _drop_blocks_after(self, number: int) -> None:
        for name, came_with in self.later_blocks.items():
            if came_with > number:
                self.blocks.pop(name, None)

    @classmethod
    def _own_arrays(
        cls, spec: PaneSpec, data: bytes, largest: int
    ) -> tuple[dict[str, NDArray[Any]], Header]:
        """Return the arrays and description in `data`, after checking that they are of this accumulator, format and specification."""
        arrays, about = unpack(data, largest=largest)
        number = about.get("format")
        if about.get("accumulator") != cls.name or number not in cls._read_formats():
            detail = (
                f"Received other bytes; expected {cls.name} in a format from 1 to {cls.format}."
            )
            raise PackingError(detail)
        if about.get("spec") != spec.digest:
            detail = (
                f"Received {cls.name} of another specification; fill the pane with the model's."
            )
            raise PackingError(detail)
        return arrays, about


@lru_cache(maxsize=1024)
def _columns_of(
    columns: Callable[[PaneSpec], dict[str, BlockColumns]], spec: PaneSpec
) -> dict[str, BlockColumns]:
    """Return the columns of an accumulator, once per specification: every pane that is read makes its blocks from them."""
    return columns(spec)


def fill_all(parts: Sequence[Accumulator], batch: Batch) -> None:
    """Add a batch to accumulators, which share what several of them need."""
    if parts:
        batch_sums = BatchSums(batch)
        for part in parts:
            part.fill(batch_sums)
