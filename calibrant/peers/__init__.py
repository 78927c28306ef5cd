"""Calibration metrics as other libraries compute them: their edges, ranges, empty bins and norms.

One file for each library. None of them is imported or needed; tests compare with them to 1e-6.
"""

from __future__ import annotations

from calibrant.peers import (
    monai,
    netcal,
    relplot,
    scikit_learn,
    torchmetrics,
    uncertainty_calibration,
)
from calibrant.peers.peer import REASONS, Peer, PeerValue, ScoredRows

PEERS: dict[str, Peer] = {
    each.PEER.name: each.PEER
    for each in (monai, netcal, relplot, scikit_learn, torchmetrics, uncertainty_calibration)
}

__all__ = ["PEERS", "REASONS", "Peer", "PeerValue", "ScoredRows"]
