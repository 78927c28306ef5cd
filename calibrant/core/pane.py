"""The pane: a small set of accumulators that fill, merge and subtract together. A window is the merge of its panes.

`PaneState` has the state; this class adds what its users call: operators, bytes and results. Modules that compute results
import panes, so they are imported when a result is requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from calibrant.accumulators.block import close_blocks
from calibrant.accumulators.unit_sample import UnitSample
from calibrant.core.arrays import stored_bytes
from calibrant.core.grid import Edges
from calibrant.core.pane_envelope import PaneEnvelope
from calibrant.core.pane_state import PaneState
from calibrant.core.routing import split_batch
from calibrant.core.spec import PaneSpec
from calibrant.input.arrays import read_arrays

if TYPE_CHECKING:
    from calibrant.core.query import Bins
    from calibrant.results import Comparison, Estimate, ReliabilityTable, Report, Temperature


class Pane(PaneState):
    """The additive state of some predictions of one model, of a size that does not grow with their number.

    Make one with `Pane.fill`. Panes of the same specification add and subtract.

    Parameters
    ----------
    spec : PaneSpec
    only : names of the accumulators to fill. Default: all. A pane with fewer is for one computation, not for storage.
    sample_bytes : bound of the stored sample of complete rows, 0 to 1 MiB. Default: 32 KiB.

    Examples
    --------
    >>> morning = Pane.fill([0.9, 0.2], [1, 0])
    >>> evening = Pane.fill([0.6], [0])
    >>> morning + evening
    Pane(binary: 3 predictions, 3 labelled, 3 ratings, 3 units)
    >>> morning + evening - evening == morning
    True
    >>> Pane.from_bytes(morning.to_bytes()) == morning
    True
    """

    @classmethod
    def fill(
        cls,
        probabilities: Any = None,
        labels: Any = None,
        *,
        logits: Any = None,
        label_counts: Any = None,
        weights: Any = None,
        units: Any = None,
        ids: Any = None,
        cases: Any = None,
        classes: Sequence[Any] | None = None,
        ignore_label: Any = None,
        normalize: bool = False,
        spec: PaneSpec | None = None,
        sample_bytes: int | None = None,
    ) -> Pane:
        """Make a pane of arrays or lists.

        Parameters
        ----------
        probabilities : (n, n_classes), rows that sum to 1, or (n,), the probability of class 1 of two
        labels : a class per row, or one per rater; None or NaN where there is none
        logits : instead of `probabilities`: (n, n_classes), or (n,), the log-odds of class 1 of two
        label_counts : instead of `labels`: (n, n_classes), ratings per class
        weights : (n,), a factor per row
        units : (n,), names or integers: what is independent of the rest, such as the patient. A unit must be complete
            in one call; `units_split` counts those that are not.
        ids, cases : (n,), names or integers of predictions, and of images or studies
        classes : names of the classes; labels may then be names. Integers or truth values are names then, and no indices.
        ignore_label : a label, or several, that stand for none, such as -100 or 255
        normalize : divide each row of probabilities by its sum, whatever it is
        spec : specification of the pane; panes of a model of the service need the model's. Default: from the arrays.
        sample_bytes : bound of the stored sample of complete rows, 0 to 1 MiB (1,048,576). Maps with several parameters
            per class are fitted to it. Default: 32 KiB, with ten classes 270 to 430 rows.

        Returns
        -------
        Pane

        Raises
        ------
        CalibrationInputError
            A value that is not allowed, with its argument, row and rule.
        """
        batch = read_arrays(
            probabilities, labels, logits=logits, label_counts=label_counts, weights=weights,
            units=units, ids=ids, cases=cases, classes=classes, ignore_label=ignore_label,
            normalize=normalize, spec=spec,
        )  # fmt: skip
        pane = cls(spec or PaneSpec(batch.task, batch.n_classes), sample_bytes=sample_bytes)
        for part in split_batch(batch):
            pane.fill_batch(part)
        return pane

    def pack(self) -> bytes:
        """Return the complete pane as bytes, for clients that fill at the edge and for export."""
        return PaneEnvelope(self.spec, self.parts()).pack()

    @classmethod
    def unpack(cls, data: bytes) -> Pane:
        """Return the pane that `pack` wrote.

        Raises
        ------
        PackingError
            Not a packed pane, damaged, too large or of a newer format.
        """
        envelope = PaneEnvelope.read(data)
        return cls.from_parts(envelope.spec, envelope.parts)

    def to_bytes(self) -> bytes:
        """Return the pane as bytes, to store or to post to the service; `from_bytes` reads them in all later versions.

        The stored sample is cut to `sample_bytes`; of a sum, the largest of its panes. Everything else is exact.
        """
        stored = self.copy()
        if stored.keeps("sample") and "sample" in stored._parts:
            stored.sample.shrink(self.sample_bytes)
        return stored.pack()

    @classmethod
    def from_bytes(cls, data: bytes) -> Pane:
        """Return the pane that `to_bytes` wrote.

        Raises
        ------
        PackingError
            Other bytes, or bytes that are damaged or of a newer format.
        """
        return cls.unpack(data)

    def __add__(self, other: Pane | int) -> Pane:
        if isinstance(other, int) and other == 0:
            return self._window([self])
        return self._window([self, other]) if isinstance(other, Pane) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Pane) -> Pane:
        return self.copy().subtract(other) if isinstance(other, Pane) else NotImplemented

    def __eq__(self, other: object) -> bool:
        """Compare specification and digest; panes without digest are equal where their bytes are."""
        if not isinstance(other, Pane):
            return NotImplemented
        if self.spec != other.spec:
            return False
        if self._digest is None or other._digest is None:
            return self.parts() == other.parts()
        return self._digest == other._digest

    __hash__ = None  # type: ignore[assignment]

    def isclose(self, other: Pane, *, rtol: float = 1e-9) -> bool:
        """Compare the numbers: counts must be equal, sums may differ by rounding.

        Parameters
        ----------
        other : Pane
        rtol : tolerance of a sum, relative to the largest one of its kind
        """
        return self.spec == other.spec and all(
            close_blocks(self[name].blocks, other[name].blocks, rtol)
            for name in {*self.names, *other.names}
        )

    def __repr__(self) -> str:
        if "counts" not in self.names:
            return f"Pane({self.spec.task}: {', '.join(self.names)})"
        counts = self.counts
        parts = [
            f"{counts[name]:,} {name.removeprefix('n_')}"
            for name in ("n_predictions", "n_labelled", "n_ratings", "n_units")
        ]
        split = self.units_split["n"] if "unit_sample" in self.names else 0
        if split:
            parts[-1] += f" ({split:,} split over batches or panes)"
        if "histograms" in self.names and not self.histograms.is_empty:
            parts.append("plain histograms")
        classes = "" if self.spec.task == "binary" else f", {self.spec.n_classes} classes"
        return f"Pane({self.spec.task}{classes}: {', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._only is None:
            return Pane.from_bytes, (self.to_bytes(),)
        return Pane.from_parts, (self.spec, self.parts(), self._only)

    def _window(self, panes: Sequence[Pane]) -> Pane:
        """Return the sum of panes, with the sample of a window; of panes that were read in part, what they share."""
        total = Pane.for_window(self.spec, self._only).merge_all(panes)
        total._sample_bytes = max(pane.sample_bytes for pane in panes)
        return total

    def evaluate(
        self,
        metrics: str | Sequence[str] | None = None,
        *,
        bins: Bins | None = None,
        binning: str = "equal_width",
        edges: Edges = "right",
        min_count: float = 0,
        scope: str | None = None,
        raters: str = "pooled",
        ci: float = 0.95,
        **options: Any,
    ) -> Report:
        """Compute metrics from the pane, as the service does from a window.

        Parameters
        ----------
        metrics, binning, edges, min_count, scope, raters, ci, options : as in `calibrant.evaluate`
        bins : a number that the grid gives exactly, or edges that are on it. Default: 15, or the nearest that the grid gives.

        Returns
        -------
        Report

        Raises
        ------
        CalibrationInputError
            An unknown metric or option, or a value outside its range.
        """
        from calibrant import library_of_panes

        return library_of_panes.evaluate_pane(
            self, metrics, bins=bins, binning=binning, edges=edges, min_count=min_count, scope=scope, raters=raters,
            ci=ci, **options,
        )  # fmt: skip

    def compare(
        self,
        other: Pane,
        metrics: str | Sequence[str] | None = None,
        *,
        bins: Bins | None = None,
        binning: str = "equal_width",
        edges: Edges = "right",
        min_count: float = 0,
        scope: str | None = None,
        raters: str = "pooled",
        ci: float = 0.95,
        **options: Any,
    ) -> Comparison:
        """Compare with another pane, metric by metric, as the service does with `against`.

        Units that are in both panes are paired. Without units, predictions with the same id are.

        Parameters
        ----------
        other : pane of the same specification
        metrics, bins, binning, edges, min_count, scope, raters, ci, options : as in `evaluate`

        Returns
        -------
        Comparison: the value of this pane minus that of `other`

        Raises
        ------
        CalibrationInputError
            Another specification; an unknown metric or option, or a value outside its range.
        """
        from calibrant import library_comparison

        return library_comparison.compare_panes(
            self, other, metrics, bins=bins, binning=binning, edges=edges, min_count=min_count, scope=scope,
            raters=raters, ci=ci, **options,
        )  # fmt: skip

    def reliability(
        self,
        *,
        bins: Bins | None = None,
        binning: str = "equal_width",
        edges: Edges = "right",
        min_count: float = 0,
        scope: str | None = None,
        raters: str = "pooled",
        ci: float = 0.95,
    ) -> ReliabilityTable:
        """Compute the reliability table; parameters as in `evaluate`."""
        from calibrant import library_of_panes

        return library_of_panes.reliability_of_pane(
            self,
            bins=bins,
            binning=binning,
            edges=edges,
            min_count=min_count,
            scope=scope,
            raters=raters,
            ci=ci,
        )

    def temperature(
        self,
        *,
        objective: str = "nll",
        raters: str = "pooled",
        ci: float = 0.95,
        bins: int = 15,
        min_count: float = 0,
    ) -> Temperature:
        """Fit the temperature; parameters as in `calibrant.fit_temperature`."""
        from calibrant import library_of_panes

        return library_of_panes.temperature_of_pane(
            self, objective=objective, raters=raters, ci=ci, bins=bins, min_count=min_count
        )

    def expected_accuracy(self, *, ci: float = 0.95) -> Estimate:
        """Estimate the accuracy of the unlabelled predictions from their scores and the labels of the others.

        It holds if, at a given score, labels are missing by chance. Without 200 labelled and 20 unlabelled units there is no value.
        """
        from calibrant import library_of_panes

        return library_of_panes.expected_accuracy_of_pane(self, ci)

    @property
    def units_split(self) -> dict[str, int | bool]:
        """Units that came in more than one batch although they should be complete in one: `n`, `estimated`.

        Each such batch counts the unit as a new one. `n` is exact up to 1024 units; beyond, it is estimated from a sample by hash.
        """
        return self._part("unit_sample", UnitSample).split

    @property
    def memory_bytes(self) -> int:
        """Bytes that the pane keeps allocated: every array of its accumulators, dense or sparse, and their objects.

        Array memory is exact; arrays shared with a copy of the pane count in both. Objects are estimated: for panes of
        100 kB or more the total is within 10 % of what the allocator reports.
        """
        parts = self._parts.values()
        n_bytes = stored_bytes(chain.from_iterable(part.stored_arrays() for part in parts))
        return n_bytes + sum(part.object_bytes for part in parts)
