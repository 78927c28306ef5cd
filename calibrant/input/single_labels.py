"""Arrays of scores with one label per row, which are read where they are.

What is no plain array, or has names, weights or several raters, is read by `read_arrays`. So is an array with a value that is
not simply valid: that reader adjusts it, or states what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.edge_rules import FLOAT32, rule_of_type

# Data of a call besides probabilities and labels.
OTHER_DATA = (
    "logits",
    "label_counts",
    "label_shares",
    "n_ratings",
    "weights",
    "units",
    "ids",
    "cases",
    "classes",
    "ignore_label",
)


@dataclass(frozen=True, eq=False)
class SingleLabels:
    """Probabilities with one label each; nothing about their values is checked.

    Attributes
    ----------
    scores : float64 or float32, (n, n_classes), or (n,) of class 1 of two; of any strides
    labels : int64 (n,)
    edge_rule : by which scores are on an edge of bins (`core.edge_rules`)
    """

    scores: NDArray[Any]
    labels: NDArray[np.int64]
    edge_rule: int = FLOAT32

    @property
    def is_flat(self) -> bool:
        """Whether there is one score per row."""
        return self.scores.ndim == 1

    @property
    def n_classes(self) -> int:
        return 2 if self.is_flat else self.scores.shape[1]


def single_labels(data: Mapping[str, Any]) -> SingleLabels | None:
    """Return the arguments of a call as they are, where they are arrays of scores with one label each.

    Examples
    --------
    >>> single_labels({"probabilities": np.array([0.9, 0.2]), "labels": np.array([1, 0])}).n_classes
    2
    >>> single_labels({"probabilities": [0.9, 0.2], "labels": [1, 0]}) is None
    True
    """
    if data.get("normalize") or any(data.get(name) is not None for name in OTHER_DATA):
        return None
    scores, labels = _scores(data.get("probabilities")), _labels(data.get("labels"))
    if scores is None or labels is None or len(scores) != len(labels) or not len(scores):
        return None
    return SingleLabels(scores, labels, rule_of_type(data["probabilities"].dtype.name))


def _scores(given: Any) -> NDArray[Any] | None:
    if type(given) is not np.ndarray or given.dtype.kind != "f" or given.ndim not in (1, 2):
        return None
    if given.ndim == 2 and given.shape[1] < 2:
        return None
    if given.dtype == np.float16:
        return given.astype(np.float32)
    is_native = given.dtype.isnative and given.dtype.itemsize in (4, 8)
    return given if is_native and given.flags.aligned else None


def _labels(given: Any) -> NDArray[np.int64] | None:
    if type(given) is not np.ndarray or given.dtype.kind not in "iu" or given.ndim != 1:
        return None
    return None if given.dtype == np.uint64 else np.ascontiguousarray(given, np.int64)
