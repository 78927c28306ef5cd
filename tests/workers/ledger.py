"""Numerics of integers: every batch carries whole numbers, a pane keeps count, sum and sum of squares of them and
fifty cells, so that a loss, a repetition or a mix-up of any batch shows to the bit. Some batches are poison.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from calibrant.core.packing import PackingError
from calibrant_server.workers.ingest.reduce import Numerics

N_CELLS = 50


@dataclass
class LedgerBatch:
    """Numbers, where they happened, and what filling them does to the process."""

    numbers: list[int]
    event_times: np.ndarray | None = None
    slices: dict[str, np.ndarray] | None = None
    trick: str = ""

    @property
    def n(self) -> int:
        return len(self.numbers)

    def take(self, rows) -> LedgerBatch:
        slices = None if self.slices is None else {k: v[rows] for k, v in self.slices.items()}
        return LedgerBatch([self.numbers[row] for row in rows], slices=slices, trick=self.trick)

    def pack(self) -> bytes:
        times = None if self.event_times is None else [int(t) for t in self.event_times]
        slices = (
            None if self.slices is None else {k: list(map(str, v)) for k, v in self.slices.items()}
        )
        return json.dumps([self.numbers, times, slices, self.trick]).encode()

    @classmethod
    def unpack(cls, data: bytes) -> LedgerBatch:
        numbers, times, slices, trick = json.loads(data)
        return cls(
            numbers,
            None if times is None else np.array(times, dtype=np.int64),
            None if slices is None else {k: np.array(v) for k, v in slices.items()},
            trick,
        )


def play(trick: str) -> None:
    """What a poisonous batch does."""
    if trick == "raise":
        raise RuntimeError("this batch cannot be filled")
    if trick == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if trick == "loop":
        while True:
            time.sleep(0.01)
    if trick == "hog":
        hoard = []
        while True:
            hoard.append(np.empty(1 << 24))


@dataclass
class LedgerPane:
    """Exact sums."""

    spec: object = None
    only: object = None
    count: int = 0
    total: int = 0
    squares: int = 0
    cells: dict[int, int] = field(default_factory=dict)

    def fill_batch(self, batch: LedgerBatch) -> None:
        play(batch.trick)
        for number in batch.numbers:
            self._add(1, number, number * number, {number % N_CELLS: number})

    def fill_histogram(self, histogram: LedgerHistogram) -> None:
        self._add(histogram.count, histogram.total, histogram.squares, {})

    def merge(self, other: LedgerPane) -> LedgerPane:
        return self.merge_all([other])

    def merge_all(self, others: list[LedgerPane]) -> LedgerPane:
        for other in others:
            self._add(other.count, other.total, other.squares, other.cells)
        return self

    def _add(self, count: int, total: int, squares: int, cells: dict[int, int]) -> None:
        if self.only is None or "sums" in self.only:
            self.count += count
            self.total += total
            self.squares += squares
        if self.only is None or "cells" in self.only:
            for cell, number in cells.items():
                self.cells[cell] = self.cells.get(cell, 0) + number

    @property
    def memory_bytes(self) -> int:
        return 1000 + 100 * len(self.cells)

    def compact(self) -> LedgerPane:
        return self

    def tighten(self) -> LedgerPane:
        return self

    def parts(self) -> dict[str, bytes]:
        sums = json.dumps([self.count, self.total, self.squares]).encode()
        return {"sums": sums, "cells": json.dumps(sorted(self.cells.items())).encode()}

    @classmethod
    def from_parts(cls, spec: object, parts: dict[str, bytes], only=None) -> LedgerPane:
        pane = cls(spec, only)
        try:
            if only is None or "sums" in only:
                pane.count, pane.total, pane.squares = json.loads(parts["sums"])
            if only is None or "cells" in only:
                pane.cells = {int(cell): number for cell, number in json.loads(parts["cells"])}
        except (ValueError, KeyError) as error:
            raise PackingError(f"damaged bytes: {error}") from error
        return pane

    def pack(self) -> bytes:
        return b"\n".join(self.parts().values())

    @classmethod
    def unpack(cls, data: bytes) -> LedgerPane:
        sums, cells = data.split(b"\n")
        return cls.from_parts(None, {"sums": sums, "cells": cells})

    @property
    def numbers(self) -> tuple[int, int, int, dict[int, int]]:
        """What two panes must agree in."""
        return self.count, self.total, self.squares, {c: n for c, n in self.cells.items() if n}


@dataclass
class LedgerRows:
    """Numbers with the batch and the slices of each, as a tail stores them."""

    numbers: list[int]
    part: np.ndarray
    slices: dict[str, list[str]]
    tricks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of_batch(cls, batch: LedgerBatch, part: int) -> LedgerRows:
        slices = {key: list(map(str, values)) for key, values in (batch.slices or {}).items()}
        return cls(batch.numbers, np.full(batch.n, part), slices, (batch.trick,))

    def numbered_from(self, part: int) -> LedgerRows:
        return replace(self, part=self.part + part)

    @classmethod
    def together(cls, parts: list[LedgerRows]) -> LedgerRows:
        keys = {key for part in parts for key in part.slices}
        slices = {
            key: [v for part in parts for v in part.slices.get(key, [""] * len(part))]
            for key in keys
        }
        numbers = [number for part in parts for number in part.numbers]
        tricks = tuple(trick for part in parts for trick in part.tricks)
        return cls(numbers, np.concatenate([part.part for part in parts]), slices, tricks)

    @classmethod
    def together_apart(cls, parts: Sequence[LedgerRows]) -> LedgerRows:
        return cls.together(list(parts))

    @property
    def net(self) -> LedgerRows:
        return self

    @property
    def only_adds(self) -> bool:
        return True

    @property
    def least_bytes(self) -> int:
        return len(self)

    @property
    def n_by_slice(self) -> dict[str, int]:
        names = Counter(f"{k}:{v}" for k, values in self.slices.items() for v in values if v)
        return {"": len(self), **names}

    def fill_into(self, pane: LedgerPane, slice_: str, make) -> None:
        for trick in self.tricks:
            play(trick)
        key, _, value = slice_.partition(":")
        chosen = self.slices.get(key, []) if slice_ else None
        for i, number in enumerate(self.numbers):
            if chosen is None or (i < len(chosen) and chosen[i] == value):
                pane.fill_batch(LedgerBatch([number]))

    def pack(self) -> bytes:
        return json.dumps([self.numbers, self.part.tolist(), self.slices]).encode()

    @classmethod
    def unpack(cls, data: bytes) -> LedgerRows:
        try:
            numbers, part, slices = json.loads(data)
        except ValueError as error:
            raise PackingError(f"damaged rows: {error}") from error
        return cls(numbers, np.array(part), slices)

    @classmethod
    def unpack_pieces(cls, pieces: Sequence[bytes]) -> LedgerRows:
        return cls.together([cls.unpack(data) for data in pieces])


def ledger_pane_bytes(spec: object, n_rows: int) -> int:
    """Small, so that rows of a few batches become sums."""
    return 120


@dataclass
class LedgerHistogram:
    """Sums alone."""

    count: int
    total: int
    squares: int = 0
    event_time: int | None = None
    slice: tuple[tuple[str, str], ...] = ()
    case: str | None = None
    key: str = "top_label"

    def negated(self) -> LedgerHistogram:
        return LedgerHistogram(-self.count, -self.total, -self.squares, self.event_time, self.slice)

    def pack(self) -> bytes:
        return json.dumps(
            [self.count, self.total, self.squares, self.event_time, self.slice, self.case]
        ).encode()

    @classmethod
    def unpack(cls, data: bytes) -> LedgerHistogram:
        count, total, squares, event_time, slice_, case = json.loads(data)
        return cls(count, total, squares, event_time, tuple(map(tuple, slice_)), case)


def ledger_ground() -> Numerics:
    """Numerics that tests count with."""
    return Numerics(
        LedgerBatch, LedgerPane, LedgerHistogram, lambda config: None, LedgerRows, ledger_pane_bytes, False
    )  # fmt: skip


def pane_of(numbers) -> LedgerPane:
    """The pane that some numbers make."""
    pane = LedgerPane()
    pane.fill_batch(LedgerBatch(list(numbers)))
    return pane
