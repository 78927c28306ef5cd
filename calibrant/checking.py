"""What a pane made by a stranger must obey before it is merged: no count or sum beyond any data, and every law."""

from __future__ import annotations

import numpy as np

from calibrant.errors import CalibrationInputError, Offence
from calibrant.laws import laws_of
from calibrant.laws.basis import Laws
from calibrant.pane import Pane
from calibrant.spec import PaneSpec

MOST_SUM = 1e150
MOST_COUNTED = 2**53


def check_pane(pane: Pane, spec: PaneSpec | None = None) -> None:
    """Refuse what cannot have come of predictions.

    Parameters
    ----------
    pane : made by somebody else
    spec : what the pane must be of; its own where None

    Raises
    ------
    CalibrationInputError
        Another spec (`spec`), counts that cannot be (`negative_count`, `count_limit`) or accumulators that differ
        (`disagreement`); the pointer is `/packed`, the details name the accumulators.
    """
    if spec is not None and spec != pane.spec:
        detail = f"the pane is of {pane.spec.to_dict()}, the model of {spec.to_dict()}"
        raise CalibrationInputError.at("/packed", "spec", detail)
    _check_counts(pane)
    broken = [
        Offence("/packed", "disagreement", text) for text, holds in _laws(pane) if not np.all(holds)
    ]
    if broken:
        raise CalibrationInputError(broken)


def _check_counts(pane: Pane) -> None:
    for name in pane.names:
        for key, block in pane[name].blocks.items():
            counts = block.filled()[1]
            where = name if key == "cells" else f"{name} ({key})"
            if (counts < 0).any():
                raise CalibrationInputError.at(
                    "/packed", "negative_count", f"{where} holds a negative count"
                )
            if (counts > MOST_COUNTED).any() or counts.astype(np.float64).sum() > MOST_COUNTED:
                raise CalibrationInputError.at(
                    "/packed", "count_limit", f"{where} counts beyond 2^53"
                )


def _laws(pane: Pane) -> Laws:
    yield from _laws_of_sums(pane)
    yield from laws_of(pane)


def _laws_of_sums(pane: Pane) -> Laws:
    """No sum is so large that adding panes could leave the range of float64."""
    for name in pane.names:
        for block in pane[name].blocks.values():
            yield f"{name}: a sum beyond any data", np.abs(block.filled()[2]) < MOST_SUM
