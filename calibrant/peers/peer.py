"""Interface of a peer library: scored rows in, values by the peer's own function names out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
REASONS = {
    "tied_edges": "tied scores make two bin edges equal, on which the peer raises an error",
}


@dataclass(frozen=True)
class ScoredRows:
    """Rows with one label each, as peers take them.

    Parameters
    ----------
    probabilities : (n, n_classes)
    labels : (n,), class of each row
    score : (n,), probability of the scope
    outcome : (n,), 1.0 if the scored class is the label, otherwise 0.0
    one_class : whether one class is scored against the rest, rather than the top class
    """

    probabilities: Floats
    labels: Ints
    score: Floats
    outcome: Floats
    one_class: bool

    @property
    def one_hot(self) -> Floats:
        """Labels as (n, n_classes)."""
        return np.asarray(np.eye(self.probabilities.shape[1])[self.labels])


@dataclass(frozen=True)
class PeerValue:
    """The value of one function of a peer.

    Parameters
    ----------
    value : None with a `reason` of `REASONS`
    metric : slug of our metric of the same idea
    why : one sentence on why the number differs from ours
    """

    value: float | None
    metric: str
    why: str
    reason: str | None = None


@dataclass(frozen=True)
class Peer:
    """A library that computes calibration metrics.

    Parameters
    ----------
    name : of its distribution
    version : with which the values were compared
    compute : rows and number of bins to values by function
    """

    name: str
    version: str
    compute: Callable[[ScoredRows, int], dict[str, PeerValue]]
