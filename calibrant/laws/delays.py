"""Only labelled predictions have a delay."""

from __future__ import annotations

from calibrant.laws.basis import Laws
from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    delays = pane["delays"].blocks["delays"].counts[0]
    yield "delays: more than labelled predictions", delays.sum() <= pane.counts["n_labelled"]
