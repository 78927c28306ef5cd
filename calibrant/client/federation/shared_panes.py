"""The total of some panes as the centre may see it: sums, without rows, names and what identifies them.

A pane holds, in addition to its sums: a sample of complete rows, names of cases, hashes of the names of units, and a digest of its
rows. The sample, the cases and the digest are removed. Hashes of units are replaced by keyed ones, because results need to know that
units were named; they are others in each total. The sums of 64 replicates are put in another order, because a unit's replicate follows from
its name: anyone who guesses a name could look up the sums of a few units. All totals of the site use the same order, so that a unit
in several totals stays in one replicate. The key never leaves the site.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.block import Block
from calibrant.accumulators.unit_sample import UnitSample
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.content_digest import PART
from calibrant.core.hashing import U64
from calibrant.core.pane import Pane
from calibrant.core.pane_envelope import PaneEnvelope
from calibrant.core.spec import PaneSpec

REMOVED = frozenset({"sample", "cases", PART})
# Blocks of 64 replicates, one after the other: by accumulator.
REPLICATED = {
    "replicates": ("tables", "classes", "scores", "score_nulls"),
    "disagreement": ("replicates",),
    "label_distribution": ("sums",),
    "label_uncertainty": ("sums",),
}


def total_of(spec: PaneSpec, panes: Iterable[Mapping[str, bytes]]) -> Pane:
    """Return the sum of panes as packed accumulators, without rows and cases."""
    total = Pane(spec, sample_bytes=0)
    for parts in panes:
        shared = {name: part for name, part in parts.items() if name not in REMOVED}
        total.merge(Pane.from_parts(spec, shared))
    return total


def size_of(total: Pane) -> int:
    """Return the number of labelled units of a total; a unit that was named counts once, however many batches it is in."""
    units = _units(total)
    if units.is_empty:
        return total.counts["n_units"]
    return min(len(units.hashes) << units.halvings, total.counts["n_units"])


def packed_to_share(total: Pane, secret: bytes, subject: str) -> bytes:
    """Return a total as the bytes that leave the site.

    Parameters
    ----------
    total : result of `total_of`
    secret : of the site
    subject : what the total is of. The hashes of units of two subjects cannot be compared.
    """
    shared = total.copy()
    units = _units(shared)
    if not units.is_empty:
        hashes = blinded(units.hashes, secret, subject)
        order = np.argsort(hashes, kind="stable")
        units.hashes, units.batches = hashes[order], units.batches[order]
    _reorder(shared, replicate_order(secret))
    parts = {name: part for name, part in shared.parts().items() if name not in REMOVED}
    return PaneEnvelope(total.spec, parts).pack()


def replicate_order(secret: bytes) -> NDArray[np.int64]:
    """Return the place of each replicate in the totals of a site."""
    keyed = [
        blake2b(b"replicate %d" % each, key=secret, digest_size=16).digest()
        for each in range(N_REPLICATES)
    ]
    return np.array(sorted(range(N_REPLICATES), key=keyed.__getitem__), np.int64)


def _reorder(pane: Pane, order: NDArray[np.int64]) -> None:
    """Put the replicates of a pane in another order."""
    for name, blocks in REPLICATED.items():
        if not pane.keeps(name):
            continue
        accumulator = pane[name]
        for key in accumulator.blocks.keys() & set(blocks):
            accumulator.blocks[key] = _reordered(accumulator.blocks[key], order)


def _reordered(block: Block, order: NDArray[np.int64]) -> Block:
    places, counts, sums = block.filled()
    size = block.size // N_REPLICATES
    moved = order[places // size] * size + places % size
    found = Block(block.n_counts, block.n_sums, block.size, block.depends_on)
    if len(moved):
        found.counts[:, moved], found.sums[:, moved] = counts, sums
    return found


def blinded(hashes: U64, secret: bytes, subject: str) -> U64:
    """Replace hashes by keyed ones below the same thresholds: the number of leading zeros stays, all other bits are new.

    >>> found = blinded(np.array([1 << 60], np.uint64), b"s" * 32, "triage")
    >>> int(found[0]).bit_length(), int(found[0]) == 1 << 60
    (61, False)
    """
    found = []
    for each in hashes.tolist():
        digest = blake2b(each.to_bytes(8, "little") + subject.encode(), key=secret, digest_size=8)
        top = 1 << max(each.bit_length() - 1, 0)
        found.append(top | (int.from_bytes(digest.digest(), "little") & (top - 1)))
    return np.array(found, np.uint64)


def _units(total: Pane) -> UnitSample:
    found = total["unit_sample"]
    assert isinstance(found, UnitSample)
    return found
