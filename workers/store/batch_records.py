"""Records of batch ids: digest of the content, outcome, counts; and the receipt made from a record.

The inbox writes a record once, with the entry itself. The commit that merges, rejects or dead-letters the entry rewrites
it. An id with a final record never counts again.
"""

from __future__ import annotations

import json
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import orjson

ACCEPTED, MERGED, REJECTED, DEAD_LETTERED = "accepted", "merged", "rejected", "dead_lettered"
# Not final: the entry is stored, and counts once when it is replayed.
PARKED = "parked"
FINAL = (MERGED, REJECTED, DEAD_LETTERED)
# Bytes of a record in the server in addition to key and value: entries of the main and the expiry table.
RECORD_OVERHEAD_BYTES = 140


# Members `pointer`, `rule` and `detail` of a violation.
RowError = dict[str, str]


# Neither is frozen: they are made for each request, which takes a frozen dataclass several times as long.
@dataclass
class BatchRecord:
    """The record of one batch id; it is not changed.

    Attributes
    ----------
    digest : of the content; empty if the store has lost it: any content is then taken for a repeat
    joined, waiting : of labels: rows whose prediction was stored when they were merged, and rows that waited for it
    """

    status: str
    digest: str
    accepted: int = 0
    rejected: int = 0
    errors: list[RowError] = field(default_factory=list)
    stale: bool | None = None
    duplicate: bool = False
    nonce: str = ""
    duplicate_rows: int = 0
    stale_rows: int = 0
    conflicts: int = 0
    slices_other: dict[str, int] = field(default_factory=dict)
    joined: int | None = None
    waiting: int | None = None

    @property
    def is_final(self) -> bool:
        """Whether the entry has its final outcome."""
        return self.status in FINAL

    def ended(self, status: str, **changes: Any) -> BatchRecord:
        """Return the record with an outcome."""
        found = copy(self)
        vars(found).update(changes, status=status)
        return found

    def is_of(self, digest: bytes) -> bool:
        """Whether it may be the record of a batch with this digest."""
        return self.digest in ("", digest.hex())

    def to_json(self) -> bytes:
        """Return JSON with short names: there are many records, and each exists for a day."""
        short = {
            _SHORT[name]: value
            for name, value in vars(self).items()
            if value != _DEFAULTS.get(name)
        }
        # Only lists and objects hold texts of clients, which may have characters that the faster writer writes otherwise.
        if any(type(value) in (list, dict) for value in short.values()):
            return _as_json(short).encode()
        return orjson.dumps(short)

    @classmethod
    def from_json(cls, text: bytes | str) -> BatchRecord:
        """Read a record; skip names of later versions."""
        return cls(**{_LONG[name]: value for name, value in _parsed(text).items() if name in _LONG})


@dataclass
class BatchReceipt:
    """Status of a batch id, as a client sees it; it is not changed."""

    batch_id: str
    status: str
    duplicate: bool
    accepted: int
    rejected: int
    errors: list[RowError]
    durability: str
    stale: bool | None = None
    duplicate_rows: int = 0
    stale_rows: int = 0
    conflicts: int = 0
    slices_other: dict[str, int] = field(default_factory=dict)
    duplicate_reason: str = (
        ""  # of a batch with a new id, whose messages or task were accepted before
    )
    joined: int | None = None
    waiting: int | None = None

    @classmethod
    def accepted_before(
        cls, batch_id: str, n_accepted: int, durability: str, reason: str
    ) -> BatchReceipt:
        """Return the receipt of a batch whose messages or task were accepted before, under an id that may be forgotten."""
        return cls(
            batch_id=batch_id,
            status=ACCEPTED,
            duplicate=True,
            accepted=n_accepted,
            rejected=0,
            errors=[],
            durability=durability,
            duplicate_reason=reason,
        )

    @classmethod
    def of(
        cls, batch_id: str, record: BatchRecord, durability: str, duplicate: bool = False
    ) -> BatchReceipt:
        """Return the receipt for a record."""
        return cls(
            batch_id=batch_id,
            status=record.status,
            duplicate=duplicate or record.duplicate,
            accepted=record.accepted,
            rejected=record.rejected,
            errors=record.errors,
            durability=durability,
            stale=record.stale,
            duplicate_rows=record.duplicate_rows,
            stale_rows=record.stale_rows,
            conflicts=record.conflicts,
            slices_other=record.slices_other,
            joined=record.joined,
            waiting=record.waiting,
        )

    @property
    def is_final(self) -> bool:
        """Whether the batch has an outcome that does not change."""
        return self.status in FINAL or bool(self.duplicate_reason)


_SHORT = {
    "status": "s", "digest": "h", "accepted": "a", "rejected": "r",
    "errors": "e", "stale": "o", "duplicate": "d", "nonce": "n",
    "duplicate_rows": "dr", "stale_rows": "or", "conflicts": "c",
    "slices_other": "so",
    "joined": "j", "waiting": "w",
}  # fmt: skip
_DEFAULTS = {
    "accepted": 0,
    "rejected": 0,
    "errors": [],
    "stale": None,
    "duplicate": False,
    "nonce": "",
    "duplicate_rows": 0,
    "stale_rows": 0,
    "conflicts": 0,
    "slices_other": {},
    "joined": None,
    "waiting": None,
}
_LONG = {short: name for name, short in _SHORT.items()}
_as_json = json.JSONEncoder(separators=(",", ":")).encode


def _parsed(text: bytes | str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:  # half of a pair of surrogates, which a client may have sent
        found = json.loads(text)
    return dict(found)


def expiry_bucket_s(ttl_s: int) -> int:
    """Return the length of the buckets that count the bytes of records until they expire."""
    return max(1, ttl_s // 24)


def expiry_bucket(now_s: float, ttl_s: int) -> int:
    """Return the bucket at whose end a record made now has certainly expired."""
    return int((now_s + ttl_s) // expiry_bucket_s(ttl_s))


def first_living_bucket(now_s: float, ttl_s: int) -> int:
    """Return the first bucket that is not over."""
    return int(now_s // expiry_bucket_s(ttl_s))


def living_bytes(buckets: dict[bytes, bytes], now_s: float, ttl_s: int) -> int:
    """Return the bytes of records that may still exist."""
    first = first_living_bucket(now_s, ttl_s)
    return sum(int(size) for bucket, size in buckets.items() if int(bucket) >= first)


def seconds_to_room(buckets: dict[bytes, bytes], now_s: float, ttl_s: int, limit: int) -> int:
    """Return the whole seconds until enough records have expired that their bytes are below the limit."""
    length_s = expiry_bucket_s(ttl_s)
    living = {int(bucket): int(size) for bucket, size in buckets.items()}
    bucket, left = int(now_s // length_s), living_bytes(buckets, now_s, ttl_s)
    while left >= limit and bucket <= max(living, default=0):
        left -= living.get(bucket, 0)
        bucket += 1
    return max(1, int(bucket * length_s - now_s) + 1)
