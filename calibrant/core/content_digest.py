"""Content digest of a pane: an additive 128-bit multiset hash of the rows and histograms that it was filled from.

The digest is a sum modulo 2^128, so it does not depend on the order of merges, on batch sizes or on sharding, and
subtraction removes. It compares panes and finds mistakes. It is not cryptographic: a party that chooses rows can
construct another set of rows with the same digest. `docs/state.md` ("The content digest") defines every bit.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np

from calibrant.core.batch import Batch
from calibrant.core.hashing import U64, hash_names
from calibrant.core.histogram import Histogram
from calibrant.core.packing import PackingError, pack, unpack
from calibrant.core.spec import PaneSpec

PART = "digest"
FORMAT = 1
MODULUS = 1 << 128
SOURCES = {"row": 0, "id": 1, "case": 2, "unit": 2}


def histogram_digest(histogram: Histogram, *, with_cases: bool) -> int:
    """Hash a plain histogram's content; a negated histogram gives minus the hash of what it subtracts.

    A histogram without any count contributes nothing to a pane and hashes to 0.
    """
    taken = histogram.negated() if histogram.is_negated else histogram
    numbers = taken.n_predictions
    if not taken.count.any() and (numbers is None or not numbers.any()):
        return 0
    case = taken.case if with_cases else None
    about = [taken.key, taken.bins, taken.units_named, case, numbers is not None]
    state = hashlib.blake2b(json.dumps(about, separators=(",", ":")).encode(), digest_size=16)
    for sums in (taken.count, taken.sum_confidence, taken.sum_correct):
        state.update((sums + 0.0).astype("<f8").tobytes())
    if numbers is not None:
        state.update(numbers.astype("<i8").tobytes())
    value = int.from_bytes(state.digest(), "big")
    return -value % MODULUS if histogram.is_negated else value


def pack_digest(value: int, spec: PaneSpec) -> bytes:
    """Return the digest as bytes, for storage as a part of a pane."""
    halves = np.array([value >> 64, value & (1 << 64) - 1], np.uint64)
    return pack({"halves": halves}, {"accumulator": PART, "format": FORMAT, "spec": spec.digest})


def unpack_digest(data: bytes, spec: PaneSpec) -> int:
    """Read the digest that `pack_digest` packed.

    Raises
    ------
    PackingError
        Damaged, with another spec or of an unknown format.
    """
    arrays, about = unpack(data, largest=16)
    if about.get("accumulator") != PART or about.get("format") != FORMAT:
        raise PackingError(f"Received other bytes; expected a {PART} in format {FORMAT}.")
    if about.get("spec") != spec.digest:
        raise PackingError("Received a digest of another kind of model.")
    halves = arrays.get("halves")
    if halves is None or halves.dtype != np.uint64 or halves.shape != (2,):
        raise PackingError("Received a digest of another length; expected two halves.")
    return int(halves[0]) << 64 | int(halves[1])


def case_hashes(batch: Batch) -> U64:
    """Return the hash of each row's case, 0 for a row without one; uint64 (n,). The batch has cases."""
    assert batch.cases is not None
    hashes = np.zeros(batch.n, np.uint64)
    named = np.flatnonzero([case is not None for case in batch.cases])
    hashes[named] = hash_names([batch.cases[row] for row in named])
    return hashes
