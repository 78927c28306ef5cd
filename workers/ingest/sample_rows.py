"""Rows of the stored sample of a model and day: labelled predictions, each with its pane's start and its slices.

A row is stored as it was sent. Its number of occurrences is signed: a delayed label, a correction and a deletion add the old
row with -1. Rows and threshold of a day serve every window, slice and cohort, which filter them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.sample import Sample
from calibrant.core.documents import Header
from calibrant.core.hashing import U64, hash_names, mix
from calibrant.core.packing import PackingError, pack, unpack
from calibrant.core.routing import ALL_ROWS
from calibrant.core.sampled_packing import packed_columns, unpacked_columns
from calibrant.core.sampled_rows import SampledRows, below, fits
from calibrant.core.spec import PaneSpec
from calibrant_server.workers.ingest.tail_format import pack_names, unpack_names
from calibrant_server.workers.ingest.tail_rows import TailRows

FORMAT = 1
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SampleRows:
    """Rows of one model and day.

    Attributes
    ----------
    rows : with signed numbers of occurrences
    starts : int64 (n,), start of each row's pane in seconds: its event time, to the length of a pane
    slices : key to object (n,) of str, None where a row has no value
    """

    rows: SampledRows
    starts: Ints
    slices: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of_tail(cls, tail: TailRows, start_s: int | Ints, halvings: int = 0) -> SampleRows:
        """Return the labelled rows of a tail whose hashes are below a threshold, with their signs.

        Parameters
        ----------
        start_s : of the pane; of each row, int64 (n,), if the rows are those of several tails
        """
        labelled = np.bincount(tail.ratings.row, minlength=len(tail)) > 0
        inside = labelled & below(tail.hashes, halvings)
        known, slices = tail.known_narrow, tail.slices
        starts = np.full(len(tail), start_s)
        rows = SampledRows(
            ids=tail.hashes,
            units=tail.unit_hashes,
            logits=tail.logits.view(np.uint8),
            weights=tail.weights,
            scores=tail.scores,
            counts=tail.sign,
            ratings=tail.ratings,
        )
        if not inside.all():
            # Only the columns of a sample: a tail has twice as many, and most rows of it may be without a label.
            index = np.flatnonzero(inside)
            rows = rows.take(index)
            starts = starts[index]
            slices = {key: values[index] for key, values in slices.items()}
            known = None if known is None else (known[0][index], known[1][index], known[2][index])
        # Minus zero hashes as zero, so zero is stored.
        rows = replace(rows, weights=rows.weights + 0.0, scores=rows.scores + 0.0)
        if known is not None:
            rows.knowing((known[0], known[1] + np.float32(0.0), known[2]))
        return cls(rows, starts, slices)

    @classmethod
    def of_sample(cls, sample: Sample, start_s: int, slices: Mapping[str, str]) -> SampleRows:
        """Return the rows of a posted pane, all of one pane and its slices."""
        rows = sample.rows
        same = {key: np.full(len(rows), value, dtype=object) for key, value in slices.items()}
        return cls(rows, np.full(len(rows), start_s), same)

    @classmethod
    def together(cls, parts: Sequence[SampleRows]) -> SampleRows:
        """Concatenate rows."""
        if len(parts) == 1:
            return parts[0]
        keys = sorted({key for part in parts for key in part.slices})
        slices = {
            key: np.concatenate(
                [part.slices.get(key, np.full(len(part), None, dtype=object)) for part in parts]
            )
            for key in keys
        }
        rows = SampledRows.together([part.rows for part in parts])
        return cls(rows, np.concatenate([part.starts for part in parts]), slices)

    def take(self, index: Ints | Mask) -> SampleRows:
        """Select rows, keeping their order."""
        chosen = np.arange(len(self))[index]
        slices = {key: values[chosen] for key, values in self.slices.items()}
        return SampleRows(self.rows.take(chosen), self.starts[chosen], slices)

    def where(self, mask: Mask) -> SampleRows:
        """Return the rows of a mask; itself if these are all."""
        return self if mask.all() else self.take(mask)

    def below(self, halvings: int) -> SampleRows:
        """Return the rows whose hashes are below a threshold."""
        return self.where(below(self.rows.ids, halvings))

    def net(self) -> SampleRows:
        """Return equal rows as one, in the order of their hashes, without those that occur as often with either sign."""
        ids = self.rows.ids
        order = np.argsort(ids, kind="stable")
        again = np.append(False, ids[order][1:] == ids[order][:-1])[: len(order)]
        again[:-1] |= again[1:].copy()
        content = np.zeros(len(self), np.uint64)
        if again.any():
            several = order[again]
            content[several] = self.take(several)._content()
            order = np.lexsort((content, ids))
        sorted_ids, sorted_content = ids[order], content[order]
        first = np.append(
            True, (np.diff(sorted_ids) != 0) | (np.diff(sorted_content) != 0)
        )[: len(order)]  # fmt: skip
        group = np.cumsum(first) - 1
        total = (
            np.bincount(group, self.rows.counts[order]).astype(np.int64) if len(order) else group
        )
        chosen = self.take(order[first][total != 0])
        return SampleRows(chosen.rows.counted(total[total != 0]), chosen.starts, chosen.slices)

    def positive(self) -> SampleRows:
        """Return the rows that occur; a row without its addition is none."""
        return self.where(self.rows.counts > 0)

    def in_slice(self, slice_: str) -> SampleRows:
        """Return the rows of a slice, `key:value`; all of them for `""`."""
        if slice_ == ALL_ROWS:
            return self
        key, _, value = slice_.partition(":")
        if key not in self.slices:
            return self.take(np.zeros(0, np.int64))
        return self.take(np.asarray(self.slices[key] == value))

    def without(self, hashes: U64) -> SampleRows:
        """Return the rows of other ids."""
        return self.take(~np.isin(self.rows.ids, hashes))

    def labelled(self, those: SampleRows, key: str, value: str) -> SampleRows:
        """Return the same rows, of which some are in a slice.

        Parameters
        ----------
        those : as often as they are in the slice, `key:value`; rows that are not here are none
        """
        every_row = self.net().positive()
        left: dict[tuple[int, int, int], int] = {}
        for name, n in zip(those._names(), those.rows.counts.tolist(), strict=True):
            left[name] = left.get(name, 0) + n
        inside = np.zeros(len(every_row), np.int64)
        named = every_row.slices.get(key, np.full(len(every_row), None, dtype=object))
        for row, name in enumerate(every_row._names()):
            if named[row] is None and name in left:
                inside[row] = min(left[name], int(every_row.rows.counts[row]))
                left[name] -= inside[row]
        moved = every_row.take(inside > 0)
        moved = SampleRows(moved.rows.counted(inside[inside > 0]), moved.starts, dict(moved.slices))
        moved.slices[key] = np.full(len(moved), value, dtype=object)
        rest = SampleRows(
            every_row.rows.counted(every_row.rows.counts - inside),
            every_row.starts,
            every_row.slices,
        )
        return SampleRows.together([rest.positive(), moved])

    def _names(self) -> list[tuple[int, int, int]]:
        """Return what identifies each row, whatever its slices."""
        columns = (self.rows.ids, self.rows.content(), self.starts)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def sample(self, spec: PaneSpec, halvings: int, max_bytes: int) -> Sample:
        """Return net rows as the sample of a pane."""
        return Sample.of_rows(spec, self.positive().rows, halvings, max_bytes)

    def pack(self) -> bytes:
        """Return the rows as bytes, exactly."""
        first = int(self.starts.min(initial=0)) if len(self) else 0
        about: Header = {"sample_rows": FORMAT, "from": first}
        arrays = packed_columns(self.rows) | {"starts": self.starts - first}
        about["slices"] = sorted(self.slices)
        for number, key in enumerate(about["slices"]):
            pack_names(arrays, f"slice{number}", self.slices[key])
        return pack(arrays, about)

    @classmethod
    def unpack(cls, data: bytes) -> SampleRows:
        """Return the rows that `pack` wrote.

        Raises
        ------
        PackingError
            Damaged bytes, or bytes of a newer format.
        """
        arrays, about = unpack(data)
        if about.get("sample_rows") != FORMAT:
            raise PackingError(
                f"Received sampled rows of format {about.get('sample_rows')}; this version reads {FORMAT}."
            )
        try:
            rows = unpacked_columns(arrays)
            slices = {
                str(key): unpack_names(arrays, f"slice{number}", len(rows))
                for number, key in enumerate(about["slices"])
            }
            unpacked = cls(rows, arrays["starts"] + int(about["from"]), slices)
            n_classes = rows.scores.shape[1]
        except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
            raise PackingError(f"not sampled rows: {error!r}") from error
        lengths = {len(each) for each in (unpacked.starts, *slices.values())}
        if not fits(rows, n_classes) or lengths != {len(rows)}:
            raise PackingError("Received sampled rows with invalid columns.")
        return unpacked

    def _content(self) -> U64:
        """Hash everything that distinguishes rows of one id, their place included."""
        state = mix(self.rows.content() ^ mix(self.starts.astype(np.uint64)))
        for key, values in sorted(self.slices.items()):
            named = np.flatnonzero([value is not None for value in values])
            if len(named):
                pairs = hash_names([f"{key}:{value}" for value in values[named]])
                state[named] = mix(state[named] ^ pairs)
        return state
