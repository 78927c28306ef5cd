"""The pane: a small set of accumulators that fill, merge and subtract together. A window is the merge of its panes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from calibrant.accumulators import Accumulator, accumulators
from calibrant.accumulators.cases import Cases
from calibrant.accumulators.counts import Counts
from calibrant.accumulators.histograms import Histograms
from calibrant.accumulators.sample import PANE_BYTES, WINDOW_BYTES, Sample
from calibrant.accumulators.unit_sample import UnitSample
from calibrant.core.array_memory import held_bytes
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import Filling
from calibrant.core.content_digest import (
    MODULUS,
    PART,
    histogram_digest,
    pack_digest,
    rows_digest,
    unpack_digest,
)
from calibrant.core.histogram import Histogram
from calibrant.core.packing import PackingError, pack, packed_length, unpack
from calibrant.core.pane_comparison import close_blocks
from calibrant.core.pane_results import PaneResults
from calibrant.core.routing import apart
from calibrant.core.spec import PaneSpec
from calibrant.input.arrays import read_arrays

# Format 2 added the digest; panes of format 1 are read without one.
FORMAT = 2
READ_FORMATS = (1, 2)
MAX_BYTES = 1 << 28


class Pane(PaneResults):
    """The additive state of some predictions of one model, of a size that does not grow with their number.

    Make one with `Pane.fill`. Panes of the same specification add and subtract.

    Parameters
    ----------
    spec : PaneSpec
    only : names of the accumulators to fill. Default: all. A pane with fewer is for one computation, not for storage.

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

    def __init__(self, spec: PaneSpec, only: Collection[str] | None = None) -> None:
        self.spec = spec
        self._parts: dict[str, Accumulator] = {}
        self._only = None if only is None else frozenset(only)
        self._digest: int | None = 0 if only is None else None

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
        classes: Sequence[str] | None = None,
        spec: PaneSpec | None = None,
    ) -> Pane:
        """Make a pane of arrays or lists.

        Parameters
        ----------
        probabilities : (n, n_classes), rows that sum to 1, or (n,), the probability of class 1 of two
        labels : a class per row, or a list with one class per rater; None for a row without label
        logits : instead of `probabilities`: (n, n_classes), or (n,), the log-odds of class 1 of two
        label_counts : instead of `labels`: (n, n_classes), ratings per class
        weights : (n,), a factor per row
        units : (n,), names or integers: what is independent of the rest, such as the patient. A unit must be complete
            in one call; `units_split` counts those that are not.
        ids, cases : (n,), names or integers of predictions, and of images or studies
        classes : names of the classes; labels may then be names
        spec : specification of the pane; panes of a model of the service need the model's. Default: from the arrays.

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
            units=units, ids=ids, cases=cases, classes=classes, spec=spec,
        )  # fmt: skip
        pane = cls(spec or PaneSpec(batch.task, batch.n_classes))
        for part in apart(batch):
            pane.fill_batch(part)
        return pane

    @classmethod
    def for_window(cls, spec: PaneSpec, only: Collection[str] | None = None) -> Pane:
        """Return an empty pane into which many others are merged. Its sample may hold all of theirs; it is not stored."""
        pane = cls(spec, only)
        if "sample" in pane.names:
            sample = pane["sample"]
            assert isinstance(sample, Sample)
            sample.most_bytes = WINDOW_BYTES
        return pane

    def __getitem__(self, name: str) -> Accumulator:
        """Return the accumulator of that name; zero where nothing was added.

        Raises
        ------
        KeyError
            Panes of this spec have none of that name, or it was left out when the pane was read.
        """
        if self._only is not None and name not in self._only:
            raise KeyError(f"{name} was not read with this pane")
        if name not in self._parts:
            kind = accumulators()[name]
            if not kind.applies(self.spec):
                raise KeyError(f"panes of this model keep no {name}")
            self._parts[name] = kind(self.spec)
        return self._parts[name]

    def keeps(self, name: str) -> bool:
        """Whether panes of this spec keep the accumulator."""
        kind = accumulators().get(name)
        return kind is not None and kind.applies(self.spec)

    @property
    def names(self) -> list[str]:
        """Accumulators that panes of this spec keep."""
        return [
            name
            for name in accumulators()
            if self.keeps(name) and (self._only is None or name in self._only)
        ]

    @property
    def counts(self) -> dict[str, int]:
        """n_predictions, n_labelled, n_ratings, n_units and the like."""
        counts = self["counts"]
        assert isinstance(counts, Counts)
        return counts.named()

    @property
    def weight(self) -> float:
        """Sum of the labelled predictions' weights."""
        counts = self["counts"]
        assert isinstance(counts, Counts)
        return counts.weight

    @property
    def unit_source(self) -> str | None:
        """Where the labelled predictions' units come from: "named" (units or cases), "id", "row", or "mixed"; None without.

        A pane that was filled both from named units and from ids says "named".
        """
        counts = self.counts
        if not counts["n_labelled"]:
            return None
        from_rows = counts["n_unit_from_row"]
        if from_rows:
            return "row" if from_rows == counts["n_labelled"] else "mixed"
        return "id" if self["unit_sample"].is_empty else "named"

    @property
    def units_split(self) -> dict[str, int | bool]:
        """Units that came in more than one batch although they should be complete in one: `n`, `estimated`.

        Each such batch counts the unit as a new one. `n` is exact up to 1024 units and estimated from those
        whose hash lies below a threshold beyond.
        """
        sample = self["unit_sample"]
        assert isinstance(sample, UnitSample)
        return sample.split

    @property
    def sample(self) -> Sample:
        """The kept sample of labelled predictions.

        Raises
        ------
        KeyError
            Panes of this spec keep none.
        """
        sample = self["sample"]
        assert isinstance(sample, Sample)
        return sample

    @property
    def histograms(self) -> Histograms:
        """Plain histograms that were added."""
        histograms = self["histograms"]
        assert isinstance(histograms, Histograms)
        return histograms

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return all(part.is_empty for part in self._parts.values())

    def digest(self) -> str | None:
        """Content digest of the rows and histograms in the pane, as 32 hexadecimal digits.

        It is additive: it does not depend on the order of merges, on batch sizes or on sharding, and subtraction
        removes. The digest covers everything that the numbers depend on except the delays of labels. It is not
        cryptographic. The digest of an empty pane is zero.

        Returns
        -------
        str, or None where the pane holds something whose digest is not known: a pane of an older format.

        Examples
        --------
        >>> batch = Batch.from_columns({"confidences": [0.9, 0.2], "labels": [1, 0]}).batch
        >>> import numpy as np
        >>> whole, part, rest = (Pane(PaneSpec("binary", 2)) for _ in range(3))
        >>> whole.fill_batch(batch)
        >>> part.fill_batch(batch.take(np.array([1])))
        >>> rest.fill_batch(batch.take(np.array([0])))
        >>> whole.digest() == part.merge(rest).digest()
        True
        >>> whole.subtract(part).digest()
        '00000000000000000000000000000000'
        """
        return None if self._digest is None else f"{self._digest:032x}"

    @property
    def memory_bytes(self) -> int:
        """Bytes that the pane keeps allocated: every array of its accumulators, dense or sparse, and their objects.

        Array memory is exact; arrays shared with a copy of the pane count in both. Objects are estimated: for panes of
        100 kB or more the total is within 10 % of what the allocator reports.
        """
        held = held_bytes(chain.from_iterable(part.held_arrays() for part in self._parts.values()))
        return held + sum(part.object_bytes for part in self._parts.values())

    def fill_batch(self, batch: Batch) -> None:
        """Add a checked batch's predictions to this pane.

        Raises
        ------
        ValueError
            The batch is of another number of classes or another task.
        """
        if batch.n_classes != self.spec.n_classes or batch.task != self.spec.task:
            raise ValueError(
                f"a {batch.task} batch of {batch.n_classes} classes does not fill {self.spec}"
            )
        if self._only is None:
            self._add_digest(rows_digest(batch, with_cases=self.keeps("cases")))
        filling = Filling(batch)
        for name in self.names:
            self[name].fill(filling)

    def fill_histogram(self, histogram: Histogram) -> None:
        """Add a plain histogram."""
        self._add_digest(histogram_digest(histogram, with_cases=self.keeps("cases")))
        self.histograms.add(histogram)
        if histogram.case is not None and self.keeps("cases"):
            cases = self["cases"]
            assert isinstance(cases, Cases)
            cases.add_histogram(histogram)

    def merge(self, other: Pane) -> Pane:
        """Add another pane of the same spec to this one, which is returned.

        Raises
        ------
        ValueError
            The specs differ.
        """
        return self.merge_all([other])

    def merge_all(self, others: Sequence[Pane]) -> Pane:
        """Add several panes of the same spec to this one, which is returned; the same as one after the other.

        Raises
        ------
        ValueError
            The specs differ.
        """
        parts: dict[str, list[Accumulator]] = {}
        for other in others:
            self._must_match(other)
            self._add_digest(other._digest)
            for name, part in other._parts.items():
                if not part.is_empty:
                    parts.setdefault(name, []).append(part)
        for name, several in parts.items():
            self[name].merge_all(several)
        return self

    def subtract(self, other: Pane) -> Pane:
        """Take another pane's contribution away from this one, which is returned.

        Raises
        ------
        ValueError
            The specs differ.
        """
        self._must_match(other)
        for name, part in other._parts.items():
            if not part.is_empty:
                self[name].subtract(part)
        if "sample" in self._parts and self["counts"].is_empty:
            del self._parts["sample"]  # of no predictions every threshold gives the same sample
        self._add_digest(other._digest, -1)
        if self.is_empty:
            self._digest = 0  # known again, whatever was added and taken away
        return self

    def tighten(self) -> Pane:
        """Take less memory where few cells are filled, for a pane that is kept for a while; returns it."""
        for part in self._parts.values():
            part.tighten()
        return self

    def copy(self) -> Pane:
        """Return an independent pane with the same content."""
        twin = Pane(self.spec)
        twin._only = self._only
        twin._digest = self._digest
        twin._parts = {name: part.copy() for name, part in self._parts.items()}
        return twin

    def parts(self) -> dict[str, bytes]:
        """Each accumulator that is not zero, as bytes, by name; with them the digest, if it is known."""
        parts = {name: part.pack() for name, part in self._parts.items() if not part.is_empty}
        if parts and self._digest is not None:
            parts[PART] = pack_digest(self._digest, self.spec)
        return parts

    @classmethod
    def from_parts(
        cls, spec: PaneSpec, parts: Mapping[str, bytes], only: Collection[str] | None = None
    ) -> Pane:
        """Return the pane that `parts` came from, or the accumulators of it that are named in `only`.

        Raises
        ------
        PackingError
            Bytes are damaged, of another spec or of a newer format.
        """
        pane = cls(spec, only)
        pane._digest = None if parts or only is not None else 0
        for name, data in parts.items():
            if only is not None and name not in only:
                continue
            if name == PART:
                pane._digest = unpack_digest(data, spec)
                continue
            if not pane.keeps(name):
                raise PackingError(f"panes of this model keep no {name!r}")
            pane._parts[name] = accumulators()[name].unpack(spec, data)
        return pane

    def pack(self) -> bytes:
        """Return the complete pane as bytes, for clients that fill at the edge and for export."""
        parts = self.parts()
        sizes = {name: len(data) for name, data in parts.items()}
        about = {"pane": FORMAT, "spec": self.spec.to_dict(), "parts": sizes}
        return pack({}, about) + b"".join(parts.values())

    @classmethod
    def unpack(cls, data: bytes) -> Pane:
        """Return the pane that `pack` wrote.

        Raises
        ------
        PackingError
            Not a packed pane, damaged, too large or of a newer format.
        """
        if len(data) > MAX_BYTES:
            raise PackingError("a packed pane is larger than 256 MiB")
        head = packed_length(data)
        about = unpack(data[:head], largest=0)[1]
        try:
            if about["pane"] not in READ_FORMATS:
                raise PackingError(
                    f"pane format {about['pane']} is not one that this version reads {READ_FORMATS}"
                )
            spec = PaneSpec.from_dict(about["spec"])
            sizes = {str(name): int(size) for name, size in about["parts"].items()}
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as fault:
            if isinstance(fault, PackingError):
                raise
            raise PackingError(f"not a packed pane: {fault}") from fault
        parts: dict[str, bytes] = {}
        for name, size in sizes.items():
            parts[name] = data[head : head + size]
            head += size
        if head != len(data) or any(size < 0 for size in sizes.values()):
            raise PackingError("the parts do not fill the bytes")
        return cls.from_parts(spec, parts)

    def _add_digest(self, value: int | None, sign: int = 1) -> None:
        """Add a digest, or take it away; what is not known stays so."""
        if self._digest is not None:
            self._digest = None if value is None else (self._digest + sign * value) % MODULUS

    def to_bytes(self) -> bytes:
        """Return the pane as bytes, to store or to post to the service; `from_bytes` reads them in all later versions.

        The stored sample is cut to what one pane may hold; everything else is exact.
        """
        kept = self.copy()
        if kept.keeps("sample") and "sample" in kept._parts:
            kept.sample.shrink(PANE_BYTES)
        return kept.pack()

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
        return Pane.for_window(self.spec, self._only).merge_all(panes)

    def _must_match(self, other: Pane) -> None:
        if self.spec != other.spec:
            raise ValueError(f"panes of {self.spec} and {other.spec} do not add")
