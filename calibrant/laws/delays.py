"""Only labelled predictions have a delay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant.laws.basis import Laws

if TYPE_CHECKING:
    from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    delays = pane["delays"].blocks["delays"].counts[0]
    yield "delays: more than labelled predictions", delays.sum() <= pane.counts["n_labelled"]
