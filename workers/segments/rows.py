"""Rows of a time slice or of a sample, with everything that is done with them: stored, cancelled and filled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from calibrant.core.pane import Pane
from calibrant_server.workers.segments.cancelling import uncancelled
from calibrant_server.workers.segments.row_codec import pack_rows, unpack_rows
from calibrant_server.workers.segments.row_columns import RowColumns
from calibrant_server.workers.segments.row_fill import fill_rows


@dataclass(frozen=True, eq=False)
class Rows(RowColumns):
    """Rows of one model, in the order in which they were committed."""

    def pack(self) -> bytes:
        """Return the rows as bytes, exactly."""
        return pack_rows(self)

    @classmethod
    def unpack(cls, data: bytes) -> Rows:
        """Return the rows that `pack` wrote.

        Raises
        ------
        PackingError
            Damaged bytes, or bytes of another format.
        """
        return unpack_rows([data], cls)

    @classmethod
    def unpack_pieces(cls, pieces: Sequence[bytes]) -> Rows:
        """Return the rows of several pieces, at least one, in their order; errors are those of `unpack`."""
        return unpack_rows(pieces, cls)

    @cached_property
    def net(self) -> Rows:
        """The rows without those that equal rows of opposite sign."""
        return uncancelled(self)

    def fill_into(self, pane: Pane, slice_: str, make: Callable[[], Pane]) -> None:
        """Add the rows of a slice to a pane, and take away those of negative sign.

        Parameters
        ----------
        make : an empty pane of the same specification
        """
        fill_rows(self.net, pane, slice_, make)
