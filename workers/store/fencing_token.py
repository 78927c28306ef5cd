"""Fencing token of one partition, as one worker holds it.

Each commit names the token of the previous commit. A worker whose token differs from the store's is stale and writes
nothing. This, not the lease, makes each batch count once.
"""

from __future__ import annotations

from secrets import token_hex

from calibrant_server.workers.store.commit import OVERTAKEN, Commit, Cursor
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.keys import PartitionKeys

# Entries in one commit. More save little per entry, and all of them are repeated when a commit is rejected.
MAX_COMMIT_ENTRIES = 128


class StaleTokenError(RuntimeError):
    """Another worker has committed since; the prepared commit is void."""


class FencingToken:
    """Position of a partition, and the right to continue from it."""

    def __init__(self, store: Store, keys: PartitionKeys):
        self._store = store
        self._keys = keys
        self.cursor = Cursor()

    def take_over(self) -> None:
        """Read the cursor and count the attempt to continue from it."""
        pairs = self._store.run(
            self._keys.partition,
            "take_over",
            [self._keys.cursor, self._keys.stream],
            [MAX_COMMIT_ENTRIES],
        )
        self.cursor = Cursor.from_hash(dict(zip(pairs[::2], pairs[1::2], strict=True)))

    def reload(self) -> None:
        """Read the cursor again after a commit that was rejected or whose outcome is unknown."""
        node = self._store.node(self._keys.partition)
        self.cursor = Cursor.from_hash(node.hgetall(self._keys.cursor))

    @staticmethod
    def new_token() -> bytes:
        """Return a random token, so that no counter or entry id that recurs after a loss can equal it."""
        return token_hex(8).encode()

    def send(
        self,
        commit: Commit,
        token: bytes,
        cursor_id: str = "",
        n_batches: int = 0,
        n_bytes: int = 0,
    ) -> None:
        """Write a commit and continue from it; raise StaleTokenError if the token is stale. Any other error: the outcome is unknown."""
        outcome = commit.send(self._store, self.cursor.token, token, cursor_id, n_batches, n_bytes)
        if outcome == OVERTAKEN:
            raise StaleTokenError
        self.cursor = Cursor(cursor_id or self.cursor.id, token, 0, self.cursor.danger_id)
