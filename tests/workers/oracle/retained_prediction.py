"""A prediction as its record stores it: packed once, and decoded for many rows together.

A prediction never changes, but its record does with every label. The packed bytes therefore stay as they are, and scores are
decoded only where rows are filled.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.core.edge_rules import FLOAT32
from calibrant.core.float32 import narrow_scores
from calibrant_server.workers.join.record_format import MAX_SHORT, RULE_FLAG_BIT

# Flags of a record's head that describe its prediction.
LOGITS, NARROW, WEIGHTED, UNIT, CASE, SLICED = 2, 4, 16, 32, 64, 128
_TIME = struct.Struct("<q8s")
_NUMBER = struct.Struct("<d")
_TEXTS = UNIT | CASE | SLICED
Slices = tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Prediction:
    """One row as it is filled.

    Attributes
    ----------
    packed : time and digest of what was sent, scores, then what else there is (weight, unit, case, slices)
    flags : of the record's head, for this prediction, with the rule of edges above them
    is_divided : the scores are followed by the sum that they are divided by once they are read (`calibrant.core.float32`)
    is_long : the lengths of its names have two bytes
    """

    packed: bytes
    flags: int
    is_divided: bool
    n_scores: int
    event_us: int
    weight: float | None = None
    unit: str | None = None
    case: str | None = None
    slices: Slices = ()
    is_long: bool = False

    @classmethod
    def unpack(
        cls,
        data: bytes,
        start: int,
        flags: int,
        n_scores: int,
        is_divided: bool,
        n_slices: int,
        is_long: bool = False,
    ) -> Prediction:
        """Return the row whose packed bytes begin at `start`.

        Raises
        ------
        struct.error, IndexError, ValueError
            The bytes are too short, or not a prediction.
        """
        (event_us, _), at = _TIME.unpack_from(data, start), start + _TIME.size
        at += n_scores * (4 if flags & NARROW else 8)
        if is_divided:
            (total,) = _NUMBER.unpack_from(data, at)
            at += _NUMBER.size
            if not 0.5 < total < 2.0:
                raise ValueError(f"probabilities do not sum to {total}")
        weight, unit, case = None, None, None
        slices: Slices = ()
        if flags & WEIGHTED:
            (weight,) = _NUMBER.unpack_from(data, at)
            at += _NUMBER.size
        if flags & _TEXTS:
            unit, case, slices, at = texts_at(data, at, flags, n_slices, is_long)
        if at > len(data):
            raise ValueError(f"received {len(data)} bytes; expected at least {at}")
        return cls(
            data[start:at],
            flags,
            is_divided,
            n_scores,
            event_us,
            weight,
            unit,
            case,
            slices,
            is_long,
        )

    @property
    def is_logits(self) -> bool:
        return bool(self.flags & LOGITS)

    @property
    def sent(self) -> bytes:
        """Digest of what was sent."""
        return self.packed[8:16]

    @property
    def group(self) -> str | None:
        """Name of the unit that it shares, or None if it is a separate unit."""
        return group_name(self.unit, self.case)


@dataclass(frozen=True, eq=False)
class PredictionColumns:
    """Columns of rows to be packed: `scores` (n, n_classes) float64, `event_us` (n,) int64, and lists of n."""

    scores: NDArray[np.float64]
    is_logits: bool
    event_us: NDArray[np.int64]
    sent: Sequence[bytes]
    weights: Sequence[float | None]
    units: Sequence[str | None]
    cases: Sequence[str | None]
    slices: Sequence[Slices]
    edge_rule: int = FLOAT32

    def predictions(self) -> list[Prediction]:
        """Return the rows; scores take four bytes where these restore the same bits."""
        n, n_scores = self.scores.shape
        fits, narrow, totals = narrow_scores(self.scores, np.full(n, self.is_logits))
        width, wide_width = 4 * n_scores, 8 * n_scores
        narrow_bytes = narrow.astype("<f4").tobytes()
        wide_bytes = b"" if fits.all() else self.scores.astype("<f8").tobytes()
        times, sums = self.event_us.astype("<i8").tobytes(), totals.astype("<f8").tobytes()
        is_narrow, divided = fits.tolist(), (totals != 1.0).tolist()
        event_us = self.event_us.tolist()
        found = []
        for i in range(n):
            packed = times[8 * i : 8 * i + 8] + self.sent[i]
            flags = (LOGITS if self.is_logits else 0) | self.edge_rule << RULE_FLAG_BIT
            if is_narrow[i]:
                flags |= NARROW
                packed += narrow_bytes[width * i : width * (i + 1)]
                if divided[i]:
                    packed += sums[8 * i : 8 * i + 8]
            else:
                packed += wide_bytes[wide_width * i : wide_width * (i + 1)]
            weight, unit, case, slices = (
                self.weights[i],
                self.units[i],
                self.cases[i],
                self.slices[i],
            )
            if weight is not None:
                flags |= WEIGHTED
                packed += _NUMBER.pack(weight)
            is_long = False
            if unit is not None or case is not None or slices:
                named, texts, is_long = _named(unit, case, slices)
                flags |= named
                packed += texts
            found.append(
                Prediction(
                    packed, flags, is_narrow[i] and divided[i], n_scores, event_us[i],
                    weight, unit, case, slices, is_long,
                )
            )  # fmt: skip
        return found


def group_name(unit: str | None, case: str | None) -> str | None:
    """Return the name of the unit that rows of this unit, or else of this case, share; None if a row is a separate unit."""
    if unit is not None:
        return f"u{unit}"
    return None if case is None else f"c{case}"


def scores_of(predictions: Sequence[Prediction]) -> NDArray[np.float64]:
    """Return the scores of rows, as they were filled: float64 (n, n_classes).

    Parameters
    ----------
    predictions : at least one, all of one number of classes
    """
    n_scores = predictions[0].n_scores
    forms: dict[tuple[bool, bool], list[int]] = {}
    for i, each in enumerate(predictions):
        if each.n_scores != n_scores:
            raise ValueError(f"received rows of {each.n_scores} and {n_scores} scores")
        forms.setdefault((bool(each.flags & NARROW), each.is_divided), []).append(i)
    scores = np.empty((len(predictions), n_scores))
    for (is_narrow, is_divided), rows in forms.items():
        dtype, first = np.dtype("<f4" if is_narrow else "<f8"), _TIME.size
        last = first + n_scores * dtype.itemsize
        packed = [predictions[i].packed for i in rows]
        values = np.frombuffer(b"".join([each[first:last] for each in packed]), dtype)
        found = values.reshape(len(rows), n_scores).astype(np.float64)
        if is_divided:
            sums = b"".join([each[last : last + _NUMBER.size] for each in packed])
            found /= np.frombuffer(sums, "<f8")[:, None]
        if len(rows) == len(predictions):
            return found
        scores[rows] = found
    return scores


def _named(unit: str | None, case: str | None, slices: Slices) -> tuple[int, bytes, bool]:
    flags, texts = 0, []
    for flag, text in ((UNIT, unit), (CASE, case)):
        if text is not None:
            flags |= flag
            texts.append(text)
    if slices:
        flags |= SLICED
        texts += [part for pair in slices for part in pair]
    encoded = [text.encode() for text in texts]
    is_long = max(map(len, encoded)) > MAX_SHORT
    packed = [len(text).to_bytes(1 + is_long, "little") + text for text in encoded]
    return flags, b"".join(packed), is_long


def texts_at(
    data: bytes, at: int, flags: int, n_slices: int, is_long: bool = False
) -> tuple[str | None, str | None, Slices, int]:
    """Return unit, case and slices of packed bytes, and where they end."""
    n_texts = bool(flags & UNIT) + bool(flags & CASE)
    n_all = n_texts + (2 * n_slices if flags & SLICED else 0)
    texts, at = _texts(data, at, n_all, 1 + is_long)
    unit = texts[0] if flags & UNIT else None
    case = texts[n_texts - 1] if flags & CASE else None
    return unit, case, tuple(zip(texts[n_texts::2], texts[n_texts + 1 :: 2], strict=True)), at


def _texts(data: bytes, at: int, n: int, width: int) -> tuple[list[str], int]:
    texts = []
    for _ in range(n):
        if at + width > len(data):
            raise ValueError(f"received {len(data)} bytes; expected at least {at + width}")
        end = at + width + int.from_bytes(data[at : at + width], "little")
        texts.append(data[at + width : end].decode())
        at = end
    return texts, at
