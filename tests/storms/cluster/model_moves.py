"""Models that move from one partition to another while clients send to them, as an operator would move them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from redis.exceptions import RedisError

from calibrant_server.workers.lifecycle.model_copy import OvertakenMove
from calibrant_server.workers.lifecycle.model_move import (
    ModelMove,
    MoveInterrupted,
    MoveRejected,
    MoveResult,
)
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.connection import Store
from tests.storms.storm_thread import StormThread

PAUSE_S = (3.0, 8.0)
# How long a worker may take for one step; each move is continued until it ends.
PATIENCE_S = 60.0
COMPLETE_S = 900.0


class ModelMover(StormThread):
    """Moves models at random, again and again. Whatever interrupts a move, it is continued until it ends.

    Parameters
    ----------
    settings : of the store, with the durability of the service
    models : returns the names of the models that may move; a hot model stays

    Attributes
    ----------
    n_moves : moves that have ended in another partition
    n_interrupted : attempts that were interrupted and continued
    rejected : why moves did not begin
    """

    def __init__(
        self,
        settings: EngineSettings,
        models: Callable[[], Sequence[str]],
        rng: random.Random,
    ) -> None:
        super().__init__()
        self.settings, self.models, self.rng = settings, models, rng
        self.n_moves = self.n_interrupted = 0
        self.rejected: list[str] = []

    def work(self) -> None:
        with closing(Store(self.settings)) as store:
            while not self.may_end.wait(self.rng.uniform(*PAUSE_S)):
                self._move_one(store)

    def _move_one(self, store: Store) -> None:
        model, to = self.rng.choice(self.models()), self.rng.randrange(self.settings.partitions)
        try:
            result = self._moved(ModelMove(store, f"default/{model}", PATIENCE_S), to)
        except MoveRejected as error:
            self.rejected.append(str(error))
            return
        self.n_moves += result.former != result.to

    def _moved(self, move: ModelMove, to: int) -> MoveResult:
        until = time.monotonic() + COMPLETE_S
        while True:
            try:
                return move.run(to)
            except (MoveInterrupted, OvertakenMove, RedisError, OSError) as error:
                if time.monotonic() > until:
                    raise AssertionError(f"a move has not ended: {error!r}") from error
                self.n_interrupted += 1
                time.sleep(0.2)
