"""Units, cases and slices of predictions as columns: places in tables of different ones, since many rows share them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant_server.workers.join.record_format import CASE, SLICED, UNIT, RecordError
from calibrant_server.workers.segments.ragged import Ints

Slices = tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class RowNames:
    """Names of rows.

    Attributes
    ----------
    unit, case : int64 (n,), places in `texts`; -1 without one
    slices : int64 (n,), places in `slice_sets`
    texts : different units and cases
    slice_sets : different slices of a row, each pairs of key and value
    """

    unit: Ints
    case: Ints
    slices: Ints
    texts: list[str]
    slice_sets: list[Slices]

    @classmethod
    def none(cls, n: int) -> RowNames:
        """Return the names of rows without any."""
        return cls(np.full(n, -1), np.full(n, -1), np.zeros(n, np.int64), [], [()])

    @classmethod
    def read(
        cls, data: bytes, starts: Ints, ends: Ints, flags: Ints, n_slices: Ints, widths: Ints
    ) -> RowNames:
        """Read the names of rows.

        Parameters
        ----------
        starts, ends : where the names of each row are
        flags : of the record of each row, which state the names that it has
        n_slices : number of slices of each row
        widths : bytes of each length

        Raises
        ------
        RecordError
            A name is longer than its row.
        """
        unit, at, texts = _texts(data, starts, ends, flags & UNIT, widths, {})
        case, at, texts = _texts(data, at, ends, flags & CASE, widths, texts)
        slices, sets = _slice_sets(data, at, ends, n_slices * (flags & SLICED > 0), widths)
        return cls(unit, case, slices, [text.decode() for text in texts], sets)

    def take(self, index: Ints) -> RowNames:
        """Return the names of some rows."""
        return RowNames(
            self.unit[index], self.case[index], self.slices[index], self.texts, self.slice_sets
        )

    @property
    def group(self) -> Ints:
        """Place in `texts` of the unit that rows share: of this unit, or else of this case; -1 of rows that are units of their own."""
        return np.where(self.unit >= 0, self.unit, self.case)

    def groups(self) -> list[str | None]:
        """Return the name of the unit that each row shares; None of rows that are units of their own."""
        kinds = np.where(self.unit >= 0, "u", "c").tolist()
        return [
            None if place < 0 else f"{kind}{self.texts[place]}"
            for kind, place in zip(kinds, self.group.tolist(), strict=True)
        ]

    def cases(self) -> list[str | None]:
        """Return the case of each row."""
        texts = [*self.texts, None]
        return [texts[place] for place in self.case.tolist()]

    def slices_of_rows(self) -> list[Slices]:
        """Return the slices of each row."""
        return [self.slice_sets[place] for place in self.slices.tolist()]


def _texts(
    data: bytes, starts: Ints, ends: Ints, has_text: Ints, widths: Ints, known: dict[bytes, int]
) -> tuple[Ints, Ints, dict[bytes, int]]:
    """Return the place of each row's next text, -1 without one, where it ends, and all different texts with their places."""
    places, at = np.full(len(starts), -1), starts.copy()
    own = np.flatnonzero(has_text)
    if not len(own):
        return places, at, known
    begins = starts[own] + widths[own]
    lengths = [
        int.from_bytes(data[start:begin], "little")
        for start, begin in zip(starts[own].tolist(), begins.tolist(), strict=True)
    ]
    at[own] = stops = begins + np.array(lengths)
    if (stops > ends[own]).any():
        raise RecordError("received a name that is longer than its record")
    texts = [data[a:b] for a, b in zip(begins.tolist(), stops.tolist(), strict=True)]
    places[own] = [known.setdefault(text, len(known)) for text in texts]
    return places, at, known


def _slice_sets(
    data: bytes, starts: Ints, ends: Ints, n_slices: Ints, widths: Ints
) -> tuple[Ints, list[Slices]]:
    """Return the place of each row's slices, and the different ones."""
    places, known = np.zeros(len(starts), np.int64), {(b"", 0, 1): 0}
    own = np.flatnonzero(n_slices)
    columns = (starts[own], ends[own], n_slices[own], widths[own])
    places[own] = [
        known.setdefault((data[a:b], n, width), len(known))
        for a, b, n, width in zip(*(each.tolist() for each in columns), strict=True)
    ]
    return places, [_slices_of(*key) for key in known]


def _slices_of(data: bytes, n: int, width: int) -> Slices:
    texts, at = [], 0
    for _ in range(2 * n):
        start = at + width
        at = start + int.from_bytes(data[at:start], "little")
        if start > len(data) or at > len(data):
            raise RecordError("received slices that are longer than their record")
        texts.append(data[start:at].decode())
    return tuple(zip(texts[::2], texts[1::2], strict=True))
