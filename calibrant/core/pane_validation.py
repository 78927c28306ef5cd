"""What a posted pane is checked for: its spec, counts that add up, and the range of every column.

Panes come from clients that are trusted with the numbers of their own models and with nothing else. The check keeps out what
could stop a query or a worker, and what a mistake leaves: a missing accumulator, counts that differ, sums beyond their
weight. It does not prove that a pane came of predictions. See `docs/state.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calibrant.accumulators.ranges import MAX_COUNT, TOLERANCE, violations
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec

MAX_SUM = 1e150


def check_pane(pane: Pane, spec: PaneSpec | None = None) -> None:
    """Check a pane that a client filled.

    Parameters
    ----------
    pane : Pane
    spec : what the pane must be of; its own where None

    Raises
    ------
    CalibrationInputError
        Another spec (`spec`), counts that cannot be (`negative_count`, `count_limit`), or columns that are out of range or
        do not add up (`disagreement`). The pointer is `/packed`, the details name the accumulators.
    """
    if spec is not None and spec != pane.spec:
        detail = f"the pane is of {pane.spec.to_dict()}, the model of {spec.to_dict()}"
        raise CalibrationInputError.at("/packed", "spec", detail)
    _check_counts(pane)
    broken = [Violation("/packed", "disagreement", text) for text in _violations(pane)]
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
            if (counts > MAX_COUNT).any() or counts.astype(np.float64).sum() > MAX_COUNT:
                raise CalibrationInputError.at(
                    "/packed", "count_limit", f"{where} counts beyond 2^53"
                )


def _violations(pane: Pane) -> Iterator[str]:
    n = pane.counts
    n["several"] = n["n_labelled"] - n["n_one_rating"]
    weight = pane.weight
    for name in pane.names:
        part = pane[name]
        declared = part.ranges()
        for key, block in part.blocks.items():
            if not (np.abs(block.filled()[2]) < MAX_SUM).all():
                yield f"{name} ({key}): a sum is beyond any data"
                continue
            yield from (f"{name} ({key}): {text}" for text in violations(declared[key], block, n))
        for share, (value, whole) in part.shares().items():
            most = weight * (1.0 + TOLERANCE) + TOLERANCE if whole == "weight" else n[whole]
            if value > most:
                yield f"{name}: {share} exceed {whole}, {most}"
