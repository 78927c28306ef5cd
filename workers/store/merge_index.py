"""Merged panes in the store: a cache, bounded in bytes, whose entries name the state of the panes that they were merged from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from calibrant_server.workers.store.connection import run_script
from calibrant_server.workers.store.keys import LAST_CHANGE, PartitionKeys

STATE_BYTES = 16
# Field of a merge: its state, and the starts of its first and last pane.
SPAN = "#"
# Merges of another meaning are not read.
_MEANING = b"1"
_AT_ONCE = 100


def state_of(panes: Iterable[tuple[int, bytes]]) -> bytes:
    """Return what a merge of panes depends on, from their starts and versions; 16 bytes."""
    digest = blake2b(_MEANING, digest_size=STATE_BYTES)
    for start, version in panes:
        digest.update(b"|%d:%s" % (start, version))
    return digest.digest()


def drop_merges(node: Any, keys: PartitionKeys, members: Sequence[str]) -> int:
    """Drop merged panes; return the bytes of those that are left. Without members, 0."""
    if not members:
        return 0
    named = [keys.merge_times, keys.merge_bytes, *map(keys.merge, members)]
    return int(run_script(node, "drop_merges", named, members))


def drop_oldest_merges(node: Any, keys: PartitionKeys, excess: int) -> int:
    """Drop the oldest merged panes, together at least `excess` bytes, if there are as many; return the bytes of those that are left."""
    oldest = [each.decode() for each in node.zrange(keys.merge_times, 0, _AT_ONCE - 1)]
    sizes = node.hmget(keys.merge_bytes, oldest) if oldest else []
    freed = [0, *accumulate(int(size or 0) for size in sizes)]
    return drop_merges(
        node, keys, [each for each, before in zip(oldest, freed, strict=False) if before < excess]
    )


def drop_merges_of(node: Any, keys: PartitionKeys, model: str, generation: str) -> None:
    """Drop the merged panes of a model."""
    head = f"{model}|{generation}|"
    for some in _some(_members(node, keys)):
        drop_merges(node, keys, [member for member in some if member.startswith(head)])


def drop_stale_merges(node: Any, keys: PartitionKeys) -> int:
    """Drop the merged panes with a pane that has changed or is gone; return their number."""
    n_dropped = 0
    for some in _some(_members(node, keys)):
        with node.pipeline(transaction=False) as pipe:
            for member in some:
                pipe.hget(keys.merge(member), SPAN)
            spans = pipe.execute()
        names = sorted({_slice_of(member) for member in some})
        with node.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hgetall(keys.versions(*name))
            found = dict(zip(names, pipe.execute(), strict=True))
        stale = [
            member
            for member, span in zip(some, spans, strict=True)
            if not _is_current(span, found[_slice_of(member)])
        ]
        drop_merges(node, keys, stale)
        n_dropped += len(stale)
    return n_dropped


def _is_current(span: bytes | None, versions: Mapping[bytes, bytes]) -> bool:
    if span is None:
        return False
    first, last = map(int, span[STATE_BYTES:].split(b"|"))
    panes = sorted(
        (int(start), version)
        for start, version in versions.items()
        if start != LAST_CHANGE.encode() and first <= int(start) <= last
    )
    return state_of(panes) == span[:STATE_BYTES]


def _slice_of(member: str) -> tuple[str, str, str]:
    """Return model, generation and slice of a member; a slice may contain the separator."""
    model, generation, rest = member.split("|", 2)
    return model, generation, rest.rsplit("|", 3)[0]


def _members(node: Any, keys: PartitionKeys) -> list[str]:
    return [member.decode() for member in node.zrange(keys.merge_times, 0, -1)]


def _some(members: list[str]) -> Iterable[list[str]]:
    return (members[at : at + _AT_ONCE] for at in range(0, len(members), _AT_ONCE))
