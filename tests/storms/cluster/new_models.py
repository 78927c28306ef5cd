"""Models that are created during a storm and get batches for some time."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

from tests.storms.rounds import SETTINGS
from tests.storms.senders import Sender
from tests.storms.storm_thread import StormThread

PAUSE_S = (6.0, 12.0)


class NewModels(StormThread):
    """Creates models of each kind by turns.

    Attributes
    ----------
    senders : the sender of each, by the name of the model
    """

    def __init__(self, ports: list[int], kinds: Mapping[str, type[Sender]], seed: int) -> None:
        super().__init__()
        self.ports, self.kinds, self.seed = ports, kinds, seed
        self.rng = random.Random(f"{seed} new models")
        self.senders: dict[str, Sender] = {}

    def work(self) -> None:
        for number, kind in enumerate(itertools.cycle(self.kinds)):
            if self.may_end.wait(self.rng.uniform(*PAUSE_S)):
                return
            # The comparison takes the kind from the name.
            self._create(f"{kind}-new{number}", kind)

    def _create(self, name: str, kind: str) -> None:
        sender = self.kinds[kind](self.ports, name, 0, 1, self.seed)
        sender.create(SETTINGS[kind])
        # Two send at a time.
        for earlier in list(self.senders.values())[:-1]:
            earlier.may_end.set()
        self.senders[name] = sender
        sender.start()
