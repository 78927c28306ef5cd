"""State of a pane: accumulators that fill, merge and subtract together, and the digest of their content."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Self, TypeVar

from calibrant.accumulators import Accumulator, accumulators, sample
from calibrant.accumulators.accumulator import fill_all
from calibrant.accumulators.counts import Counts
from calibrant.accumulators.histograms import Histograms
from calibrant.accumulators.named_cases import Cases
from calibrant.accumulators.sample import Sample
from calibrant.core.batch import Batch
from calibrant.core.content_digest import (
    MODULUS,
    PART,
    histogram_digest,
    pack_digest,
    unpack_digest,
)
from calibrant.core.errors import CalibrationInputError
from calibrant.core.histogram import Histogram
from calibrant.core.packing import PackingError
from calibrant.core.spec import PaneSpec
from calibrant.kernel import fill as kernel

_UNLIKE_SUMS = frozenset({"logits", "sample"})
A = TypeVar("A", bound=Accumulator)


class PaneState:
    """Accumulators of one pane by name, with the digest of their content."""

    def __init__(
        self,
        spec: PaneSpec,
        only: Collection[str] | None = None,
        *,
        sample_bytes: int | None = None,
    ) -> None:
        if sample_bytes is not None and not 0 <= sample_bytes <= sample.MAX_PANE_BYTES:
            detail = f"Received {sample_bytes}; expected 0 to {sample.MAX_PANE_BYTES} bytes."
            raise CalibrationInputError.at("/sample_bytes", "range", detail)
        self.spec = spec
        self._parts: dict[str, Accumulator] = {}
        self._only = None if only is None else frozenset(only)
        self._digest: int | None = 0 if only is None else None
        self._sample_bytes = sample_bytes

    @classmethod
    def for_window(cls, spec: PaneSpec, only: Collection[str] | None = None) -> Self:
        """Return an empty pane into which many others are merged. Its sample may hold all of theirs; it is not stored."""
        pane = cls(spec, only)
        if "sample" in pane.names:
            pane.sample.max_bytes = sample.WINDOW_BYTES
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
            if name == "sample" and self._sample_bytes is not None:
                self.sample.max_bytes = self._sample_bytes
        return self._parts[name]

    def _part(self, name: str, kind: type[A]) -> A:
        part = self[name]
        assert isinstance(part, kind)
        return part

    def keeps(self, name: str) -> bool:
        """Whether panes of this spec keep the accumulator."""
        kind = accumulators().get(name)
        return kind is not None and kind.applies(self.spec)

    @property
    def names(self) -> list[str]:
        """Accumulators that panes of this spec keep."""
        return list(_names(self.spec, self._only))

    @property
    def counts(self) -> dict[str, int]:
        """n_predictions, n_labelled, n_ratings, n_units and the like."""
        return self._part("counts", Counts).named()

    @property
    def weight(self) -> float:
        """Sum of the labelled predictions' weights."""
        return self._part("counts", Counts).weight

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
    def sample(self) -> Sample:
        """The stored sample of labelled predictions.

        Raises
        ------
        KeyError
            Panes of this spec keep none.
        """
        return self._part("sample", Sample)

    @property
    def sample_bytes(self) -> int:
        """Bound of the stored sample in the packed pane."""
        return sample.PANE_BYTES if self._sample_bytes is None else self._sample_bytes

    @property
    def histograms(self) -> Histograms:
        """Plain histograms that were added."""
        return self._part("histograms", Histograms)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return all(part.is_empty for part in self._parts.values())

    def digest(self) -> str | None:
        """Content digest of the rows and histograms in the pane, as 32 hexadecimal digits.

        It is additive: it does not depend on the order of merges, on batch sizes or on sharding, and subtraction removes. It covers
        everything that the numbers depend on except the delays of labels. It is not cryptographic. That of an empty pane is zero.

        Returns
        -------
        str, or None where the pane holds something whose digest is not known: a pane of an older format.

        Examples
        --------
        >>> from calibrant.core.pane import Pane
        >>> morning, evening = Pane.fill([0.9], [1]), Pane.fill([0.2], [0])
        >>> (morning + evening).digest() == Pane.fill([0.9, 0.2], [1, 0]).digest()
        True
        >>> (morning + evening - morning - evening).digest()
        '00000000000000000000000000000000'
        """
        return None if self._digest is None else f"{self._digest:032x}"

    def fill_batch(self, batch: Batch) -> None:
        """Add a checked batch's predictions to this pane.

        Raises
        ------
        ValueError
            The batch is of another number of classes or another task.
        """
        if batch.n_classes != self.spec.n_classes or batch.task != self.spec.task:
            detail = f"a {batch.task} batch of {batch.n_classes} classes does not fill {self.spec}"
            raise ValueError(detail)
        if not batch.n:
            return
        # A pane of some accumulators has no digest: hashes of cases would be computed for nothing.
        with_cases = self._only is None and self.keeps("cases")
        filled = kernel.fill(self.spec, self._only, batch, self.__getitem__, with_cases=with_cases)
        if self._only is None:
            self._add_digest(filled.digest)
        names = names_beyond(self.spec, self._only, filled.names)
        fill_all([self[name] for name in names if accumulators()[name].concerns(batch)], batch)

    def fill_histogram(self, histogram: Histogram) -> None:
        """Add a plain histogram."""
        self._add_digest(histogram_digest(histogram, with_cases=self.keeps("cases")))
        self.histograms.add(histogram)
        if histogram.case is not None and self.keeps("cases"):
            self._part("cases", Cases).add_histogram(histogram)

    def merge(self, other: PaneState) -> Self:
        """Add another pane of the same spec to this one, which is returned.

        Raises
        ------
        ValueError
            The specs differ.
        """
        return self.merge_all([other])

    def merge_all(self, others: Sequence[PaneState]) -> Self:
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

    def subtract(self, other: PaneState) -> Self:
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
        if self._parts.keys() & _UNLIKE_SUMS and "counts" in self.names and self["counts"].is_empty:
            # Of no predictions every threshold gives the same sample, and logits that an older pane lacks are no longer missing.
            for name in _UNLIKE_SUMS:
                self._parts.pop(name, None)
        self._add_digest(other._digest, -1)
        if self.is_empty and self._only is None:
            self._digest = 0  # known again, whatever was added and taken away
        return self

    def tighten(self) -> Self:
        """Take less memory where few cells are filled, for a pane that is cached; returns it."""
        for part in self._parts.values():
            part.tighten()
        return self

    def compact(self) -> Self:
        """Take the least memory, for a pane that is read and merged into others; returns it."""
        for part in self._parts.values():
            part.compact()
        return self

    def copy(self) -> Self:
        """Return an independent pane with the same content."""
        twin = type(self)(self.spec)
        twin._only = self._only
        twin._digest = self._digest
        twin._sample_bytes = self._sample_bytes
        twin._parts = {name: part.copy() for name, part in self._parts.items()}
        return twin

    def restricted(self, only: Collection[str]) -> Self:
        """Return a pane of some of the accumulators, which it shares with this one: neither may be changed."""
        twin = type(self)(self.spec, only)
        twin._sample_bytes = self._sample_bytes
        twin._parts = {name: part for name, part in self._parts.items() if name in only}
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
    ) -> Self:
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
        if "sample" in pane._parts:
            pane._sample_bytes = pane.sample.max_bytes
        return pane

    def replace_sample(self, sample: Sample) -> Self:
        """Take a sample that was stored elsewhere, also if none was read with the pane; returns the pane."""
        self._parts["sample"] = sample
        if self._only is not None:
            self._only |= {"sample"}
        return self

    def drop_sample(self) -> Self:
        """Leave the sample to be stored elsewhere, from now on; returns the pane."""
        self._parts.pop("sample", None)
        self._sample_bytes = 0
        return self

    def _add_digest(self, value: int | None, sign: int = 1) -> None:
        """Add a digest, or take it away; what is not known stays so."""
        if self._digest is not None:
            self._digest = None if value is None else (self._digest + sign * value) % MODULUS

    def _must_match(self, other: PaneState) -> None:
        if self.spec != other.spec:
            raise ValueError(f"panes of {self.spec} and {other.spec} cannot be added")


@lru_cache(maxsize=256)
def _names(spec: PaneSpec, only: frozenset[str] | None) -> tuple[str, ...]:
    """Return the accumulators of a pane of a specification, all or some of them."""
    applying = (name for name, kind in accumulators().items() if kind.applies(spec))
    return tuple(name for name in applying if only is None or name in only)


@lru_cache(maxsize=64)
def names_beyond(
    spec: PaneSpec, only: frozenset[str] | None, filled: frozenset[str]
) -> tuple[str, ...]:
    """Return the accumulators of a pane that are not filled yet."""
    return tuple(name for name in _names(spec, only) if name not in filled)
