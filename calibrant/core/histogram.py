"""Plain histogram of confidence, as sent by clients: a count and two sums per bin, for one kind, policy and edges."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats
from calibrant.core.documents import Columns
from calibrant.core.histogram_fields import KINDS, HistogramFields
from calibrant.core.label_policies import POLICIES
from calibrant.core.packing import PackingError, pack, unpack
from calibrant.core.spec import PaneSpec

# Attribute by its key in the packed format.
PACKED = {
    "kind": "kind",
    "klass": "class_index",
    "policy": "policy",
    "bins": "bins",
    "edges": "edges",
    "n_units": "n_units",
    "unit": "unit",
    "case": "case",
    "event_time": "event_time",
}


@dataclass(frozen=True, eq=False)
class Histogram:
    """One table: `count` is the weight under the policy, the sums carry the same weight.

    Attributes
    ----------
    kind : "top_label", "class", "positive", or "uncertainty": of the entropy / log K instead of a confidence, correct as of the top class
    class_index : int for "class", else None
    policy : one of `POLICIES`
    bins : int; edges : "right" or "left"
    count, sum_confidence, sum_correct : float64 (bins,)
    n_predictions : int64 (bins,) or None
    n_units : int or None; unit, case : str or None
    event_time : int microseconds or None; slice : key to value
    """

    kind: str
    class_index: int | None
    policy: str
    bins: int
    edges: str
    count: Floats
    sum_confidence: Floats
    sum_correct: Floats
    n_predictions: NDArray[np.int64] | None = None
    n_units: int | None = None
    unit: str | None = None
    case: str | None = None
    event_time: int | None = None
    slice: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """Subject of its numbers: kind, class, policy and edges."""
        return f"{self.kind}|{'' if self.class_index is None else self.class_index}|{self.policy}|{self.edges}"

    @property
    def is_negated(self) -> bool:
        """Whether its numbers are subtracted."""
        fewer = self.n_predictions is not None and (self.n_predictions < 0).any()
        return bool(fewer or (self.count < 0).any() or (self.n_units or 0) < 0)

    @property
    def units_named(self) -> int:
        """Number of units that it declares: `n_units`, one for a named unit or case, else none."""
        if self.n_units is not None:
            return abs(self.n_units)
        return int(self.unit is not None or self.case is not None)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], spec: PaneSpec, pointer: str = "") -> Histogram:
        """Check one histogram of a request.

        Parameters
        ----------
        fields : the fields of API's `histograms`, without those of batches and running totals
        spec : PaneSpec of the model
        pointer : location of the histogram in the request

        Raises
        ------
        CalibrationInputError
            A field is missing, unknown, of the wrong length, or breaks a rule.
        """
        return cls(**HistogramFields(fields, spec, pointer).read())

    def on_grid(self, cells: int) -> tuple[Floats, NDArray[np.int64] | None]:
        """Return count and sums on a coarser grid that divides `bins`; float64 (3, cells), and n_predictions."""
        table = (
            np.stack([self.count, self.sum_confidence, self.sum_correct])
            .reshape(3, cells, -1)
            .sum(axis=2)
        )
        numbers = (
            None
            if self.n_predictions is None
            else self.n_predictions.reshape(cells, -1).sum(axis=1)
        )
        return table, numbers

    def negated(self) -> Histogram:
        """Return the histogram that subtracts this one."""
        return replace(
            self,
            count=-self.count,
            sum_confidence=-self.sum_confidence,
            sum_correct=-self.sum_correct,
            n_predictions=None if self.n_predictions is None else -self.n_predictions,
            n_units=None if self.n_units is None else -self.n_units,
        )

    def pack(self) -> bytes:
        """Return the histogram as bytes, with its numbers exact."""
        arrays: dict[str, NDArray[Any]] = {
            "count": self.count,
            "sum_confidence": self.sum_confidence,
            "sum_correct": self.sum_correct,
        }
        if self.n_predictions is not None:
            arrays["n_predictions"] = self.n_predictions
        about = {key: getattr(self, name) for key, name in PACKED.items()}
        return pack(arrays, about | {"slice": [list(pair) for pair in self.slice]})

    @classmethod
    def unpack(cls, data: bytes) -> Histogram:
        """Return the histogram that `pack` wrote.

        Raises
        ------
        PackingError
            Not a packed histogram, or damaged.
        """
        arrays, about = unpack(data)
        try:
            stored = {key: value for key, value in about.items() if key != "slice"}
            values: Columns = arrays | {PACKED[key]: stored[key] for key in stored}
            values["slice"] = tuple((str(key), str(value)) for key, value in about["slice"])
            histogram = cls(**values)
            lengths = {len(column) for column in arrays.values()}
        except (KeyError, TypeError, ValueError) as error:
            raise PackingError(f"not a packed histogram: {error}") from error
        if lengths != {histogram.bins}:
            detail = "Received a packed histogram whose columns are not as long as its bins."
            raise PackingError(detail)
        return histogram

    def digest(self) -> bytes:
        """Return 16 bytes that identify the content of a histogram."""
        return hashlib.blake2b(self.pack(), digest_size=16).digest()


def is_key(key: Any, spec: PaneSpec) -> bool:
    """Return whether histograms of a model of this spec can have this `Histogram.key`."""
    parts = key.split("|") if isinstance(key, str) else []
    if len(parts) != 4 or parts[2] not in POLICIES or parts[3] not in ("right", "left"):
        return False
    kind, name = parts[0], parts[1]
    if kind == "class":
        return name in {str(k) for k in range(spec.n_classes)}
    known = ("top_label", "uncertainty") if spec.n_classes > 2 else KINDS
    return name == "" and kind in known
