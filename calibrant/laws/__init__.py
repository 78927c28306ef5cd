"""What the accumulators of a pane obey: a file beside each accumulator, of its name, with `laws`.

Accumulators of one pane are filled from the same predictions, so they agree with each other: the cells of each table
hold as many predictions as `counts` says, the losses at temperature 1 are the scores, confidences lie in their cells.
A pane that breaks such a law came of no predictions. Counts are compared exactly, sums within `basis.TOLERANCE` of the
weight that they are sums of.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module

from calibrant.laws.basis import Laws
from calibrant.pane import Pane


@lru_cache(maxsize=64)
def _of(name: str) -> Callable[[Pane], Laws]:
    laws: Callable[[Pane], Laws] = import_module(f"{__name__}.{name}").laws
    return laws


def laws_of(pane: Pane) -> Laws:
    """Each law as a sentence and whether it holds, everywhere where it is an array."""
    for name in pane.names:
        yield from _of(name)(pane)
