"""Index of the retained records of a pane, until it is sealed and the alarm has processed it: it finds rows by time.

The commit that first joins a prediction to its pane writes the index, one field per commit, so that existing fields are
never written again. Models without a label horizon have no index. Deleted ids stay listed; their records report the deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig

_SEPARATOR = "\x1f"
_A_READ = 500


def note(
    commit: Commit, keys: PartitionKeys, config: ModelConfig, ids: Mapping[int, Sequence[str]]
) -> None:
    """Add to a commit the ids that are new in each pane, by its start in seconds."""
    for start, names in ids.items():
        listed = _SEPARATOR.join(names).encode()
        field = blake2b(listed, digest_size=8).hexdigest()
        commit.set_fields(keys.unsealed(config.key, config.generation, start), {field: listed})


def ids_in(node: Any, keys: PartitionKeys, config: ModelConfig, starts: Sequence[int]) -> list[str]:
    """Return the ids of some panes, sorted and each once."""
    found: set[str] = set()
    for first in range(0, len(starts), _A_READ):
        with node.pipeline(transaction=False) as pipe:
            for start in starts[first : first + _A_READ]:
                pipe.hvals(keys.unsealed(config.key, config.generation, start))
            for listed in pipe.execute():
                for names in listed:
                    found.update(names.decode().split(_SEPARATOR))
    return sorted(found)


def forget(commit: Commit, keys: PartitionKeys, config: ModelConfig, starts: Iterable[int]) -> None:
    """Delete the indices of some panes in a commit."""
    for start in starts:
        commit.unlink(keys.unsealed(config.key, config.generation, start))
