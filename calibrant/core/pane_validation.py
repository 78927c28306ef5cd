"""Checks of a posted pane: its specification, counts that add up, and the range of every column.

Clients are trusted with the numbers of their own models and with nothing else. The check rejects panes that could stop a query or
a worker, and common mistakes: a missing accumulator, counts that differ, sums beyond their weight. It does not prove that a pane
came of predictions (`docs/state.md`).
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
    spec : required specification. Default: the pane's own.

    Raises
    ------
    CalibrationInputError
        Another specification (`spec`), impossible counts (`negative_count`, `count_limit`), or columns that are out of range or
        do not add up (`disagreement`). The pointer is `/packed`; the details name the accumulators.
    """
    if spec is not None and spec != pane.spec:
        detail = f"Received a pane of {pane.spec.to_dict()}; expected {spec.to_dict()}. Fill it with the model's specification."
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
                detail = f"Received a negative count in {where}; expected at least 0."
                raise CalibrationInputError.at("/packed", "negative_count", detail)
            if (counts > MAX_COUNT).any() or counts.astype(np.float64).sum() > MAX_COUNT:
                detail = f"Received counts above 2^53 in {where}; expected at most 2^53 in total."
                raise CalibrationInputError.at("/packed", "count_limit", detail)


def _violations(pane: Pane) -> Iterator[str]:
    n = pane.counts
    n["several"] = n["n_labelled"] - n["n_one_rating"]
    weight = pane.weight
    for name in pane.names:
        part = pane[name]
        if part.optional and part.is_empty:
            continue
        declared = part.ranges()
        for key, block in part.blocks.items():
            if not (np.abs(block.filled()[2]) < MAX_SUM).all():
                yield f"{name} ({key}): received a sum of {MAX_SUM:g} or more."
                continue
            yield from (f"{name} ({key}): {text}" for text in violations(declared[key], block, n))
        for share, (value, total) in part.shares().items():
            most = weight * (1.0 + TOLERANCE) + TOLERANCE if total == "weight" else n[total]
            if value > most:
                yield f"{name}: received {value:g} {share}; expected at most {most:g} ({total} of the pane)."
