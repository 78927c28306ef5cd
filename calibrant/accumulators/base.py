"""The shape of an accumulator: zero, fill, merge, subtract, and bytes with a format number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from calibrant.accumulators.block import Block
from calibrant.accumulators.ranges import Ranges
from calibrant.core.array_memory import held_bytes
from calibrant.core.batch_sums import Filling
from calibrant.core.packing import PackingError, pack, unpack
from calibrant.core.spec import PaneSpec

# Python objects around the arrays: an accumulator with its dictionaries, and a block with its name.
_OBJECT_BYTES, _BLOCK_OBJECT_BYTES = 700, 200


class Accumulator:
    """Named blocks of counts and sums. A subclass says which, and fills them."""

    name: ClassVar[str]
    format: ClassVar[int] = 1

    def __init__(self, spec: PaneSpec) -> None:
        self.spec = spec
        self.blocks = self.zero()

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        """Whether panes of this spec keep it."""
        return True

    def zero(self) -> dict[str, Block]:
        """Its blocks, empty."""
        raise NotImplementedError(f"{type(self).__name__} names its blocks")

    def fill(self, filling: Filling) -> None:
        """Add a batch. `filling.batch` has at least one labelled prediction, or `filling.n` is 0."""
        raise NotImplementedError(f"{type(self).__name__} fills its blocks")

    def ranges(self) -> dict[str, Ranges]:
        """Ranges of each block's columns, by the block's name."""
        raise NotImplementedError(f"{type(self).__name__} declares no ranges")

    def shares(self) -> dict[str, tuple[float, str]]:
        """By name, a number of this accumulator and the count of the pane (or "weight") that is at least as large."""
        return {}

    @property
    def is_empty(self) -> bool:
        return all(block.is_empty for block in self.blocks.values())

    @property
    def memory_bytes(self) -> int:
        """Bytes that it keeps allocated, empty cells of dense blocks included.

        Memory shared with a copy counts in both. Sizes of Python objects around the arrays are estimates.
        """
        return held_bytes(self.held_arrays()) + self.object_bytes

    @property
    def object_bytes(self) -> int:
        """Estimate of what its Python objects take beside the arrays."""
        return _OBJECT_BYTES + _BLOCK_OBJECT_BYTES * len(self.blocks)

    def held_arrays(self) -> Iterator[NDArray[Any]]:
        """Every array that it refers to."""
        for block in self.blocks.values():
            yield from block.held_arrays()

    def merge(self, other: Accumulator) -> None:
        """Add the other's sums to these."""
        for name, block in self.blocks.items():
            block.merge(other.blocks[name])

    def merge_all(self, others: Sequence[Accumulator]) -> None:
        """Add several others; the same as one after the other."""
        for other in others:
            self.merge(other)

    def subtract(self, other: Accumulator) -> None:
        """Take the other's sums away."""
        for name, block in self.blocks.items():
            block.subtract(other.blocks[name])

    def tighten(self) -> None:
        """Take less memory where few cells are filled; no number changes."""
        for block in self.blocks.values():
            block.tighten()

    def copy(self) -> Accumulator:
        twin = type(self)(self.spec)
        twin.blocks = {name: block.copy() for name, block in self.blocks.items()}
        return twin

    def pack(self) -> bytes:
        """The accumulator as bytes."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, block in self.blocks.items():
            arrays |= block.arrays(name)
        return pack(arrays, self._described())

    @classmethod
    def unpack(cls, spec: PaneSpec, data: bytes) -> Self:
        """The accumulator that `pack` made.

        Raises
        ------
        PackingError
            Damaged, another accumulator's, of another spec or of an unknown format.
        """
        whole = cls(spec)
        largest = sum(block.largest_bytes for block in whole.blocks.values())
        arrays = cls._own_arrays(spec, data, largest)[0]
        for name, block in whole.blocks.items():
            block.read(name, arrays)
        return whole

    def _described(self) -> dict[str, Any]:
        return {"accumulator": self.name, "format": self.format, "spec": self.spec.digest}

    @classmethod
    def _own_arrays(
        cls, spec: PaneSpec, data: bytes, largest: int
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The arrays and description in `data`, once they are seen to be of this accumulator, format and spec."""
        arrays, about = unpack(data, largest=largest)
        if about.get("accumulator") != cls.name or about.get("format") != cls.format:
            raise PackingError(f"these are not the bytes of {cls.name} in format {cls.format}")
        if about.get("spec") != spec.digest:
            raise PackingError(f"{cls.name} was filled for another kind of model")
        return arrays, about
