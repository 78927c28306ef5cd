"""Marginal L1 calibration errors of cases: by case and class, averaged over cases, or with all predictions pooled.

    ECE_c = Σ_m (n_m / N) |o_m - e_m|,   ACE_c = mean over non-empty m of |o_m - e_m|,   MCE_c = max over them

`macro` is the mean over classes, then over cases. `micro` follows the published code: e_m is the plain mean of the
cases' own, o_m and n_m are of all predictions. `micro_pooled` takes all three from all predictions; we
recommend it.

Source
------
Barfoot et al., Average Calibration Losses, eqs. 1 to 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.named_cases import Cases
from calibrant.accumulators.named_tables import OTHER
from calibrant.core.arrays import Floats, ratio
from calibrant.core.documents import Result
from calibrant.core.view import NoResultError, View
from calibrant.segmentation.case_bins import CaseBins, bin_cases
from calibrant.segmentation.case_kernels import KERNELS, kernel_bins
from calibrant.segmentation.case_options import CaseOptions
from calibrant.segmentation.case_tables import Layout, case_tables, case_units, composite_layout

QUANTILES = {
    "minimum": 0.0,
    "lower_quartile": 0.25,
    "median": 0.5,
    "upper_quartile": 0.75,
    "maximum": 1.0,
}
Flags = NDArray[np.bool_]
Error = Callable[[CaseBins], Floats]


def expected_error(bins: CaseBins) -> Floats:
    """Return the mL1-ECE of every case and class, float64 (n_cases, n_classes); nan if the class has no data."""
    return _known(bins, _share(bins, (bins.weight * bins.gap).sum(axis=2)))


def average_error(bins: CaseBins) -> Floats:
    """Return the mL1-ACE over bins that are not empty, as the published code; (n_cases, n_classes)."""
    n = bins.filled.sum(axis=2)
    return _known(bins, bins.gap.sum(axis=2) / np.maximum(n, 1))


def average_error_of_all_bins(bins: CaseBins) -> Floats:
    """Return the mL1-ACE as printed in eq. 3: divided by the number of bins, empty ones counting 0; (n_cases, n_classes)."""
    return _known(bins, bins.gap.mean(axis=2))


def maximum_error(bins: CaseBins) -> Floats:
    """Return the mL1-MCE over bins that are not empty; (n_cases, n_classes)."""
    return _known(bins, bins.gap.max(axis=2))


ERRORS: Mapping[str, Error] = {
    "ece": expected_error,
    "ace": average_error,
    "mce": maximum_error,
    "ace_all_bins": average_error_of_all_bins,
}


def error_bound(bins: CaseBins, name: str) -> Floats:
    """Bound the change of an error if plain histograms were read softly; (n_cases, n_classes)."""
    return ERRORS[name](
        replace(bins, correct=bins.gap_error * bins.weight, confidence=np.zeros_like(bins.weight))
    )


@dataclass(frozen=True)
class CaseErrors:
    """Binned cases of a view.

    Attributes
    ----------
    names : cases with their own table
    bins : theirs; other : of all other cases together, None if there are none
    classes : indices of the classes that count
    class_names : of every class; for composites their names
    n_cases : `n`, `kept`, `estimated`
    units : case to hash of its unit, `SEVERAL_UNITS` if it has several; empty if no unit was named
    """

    options: CaseOptions
    names: list[str]
    bins: CaseBins
    other: CaseBins | None
    classes: list[int]
    class_names: list[str]
    n_cases: Mapping[str, int | bool]
    units: Mapping[str, int]

    @property
    def counted(self) -> CaseBins:
        """Bins of the classes that count."""
        return self.bins.of_classes(np.array(self.classes))

    @property
    def use(self) -> Flags:
        """The (case, class) pairs that count, bool (n_cases, n counted classes)."""
        bins = self.counted
        present = bins.present | ~bins.known
        if self.options.missing == "skip_class":
            return bins.known & present
        if self.options.missing == "skip_case":
            return bins.known & present.all(axis=1, keepdims=True)
        return bins.known

    @property
    def n_missing(self) -> int:
        """Number of pairs of case and counted class without a rating of that class."""
        bins = self.counted
        return int((bins.known & ~bins.present).sum())

    def by_case_and_class(self, name: str) -> Floats:
        """Return an error, or "dice", of every case and counted class, (n_cases, n counted classes); nan if it does not count."""
        values = self.counted.dice if name == "dice" else ERRORS[name](self.counted)
        return np.where(self.use, values, np.nan)

    def by_case(self, name: str) -> Floats:
        """Return an error, or "dice", of every case: the mean over its classes that count; nan if none does."""
        values = self.by_case_and_class(name)
        return _mean(values, np.isfinite(values), axis=1)

    def macro(self, name: str) -> Result:
        """Return the mean over cases with its standard deviation and quantiles."""
        values = self.by_case(name)
        by_class = _mean(ERRORS[name](self.counted), self.use, axis=0)
        found = values[np.isfinite(values)]
        result = {"value": float(found.mean()) if len(found) else None, "n": len(found)} | spread(
            found
        )
        return result | {"by_class": numbers(by_class)}

    def micro(self, name: str, *, pooled: bool) -> Result:
        """Return the mean over the classes that count of the errors of all cases pooled."""
        use = self.use
        all_cases = self.counted.pooled(use)
        if pooled and self.other is not None and self.options.missing == "include":
            both = all_cases.with_cases(self.other.of_classes(np.array(self.classes)))
            all_cases = both.pooled(np.ones((2, len(self.classes)), bool))
        elif not pooled:
            all_cases = self._with_plain_means(all_cases, use)
        by_class = ERRORS[name](all_cases)[0]
        known = by_class[np.isfinite(by_class)]
        value = float(known.mean()) if len(known) else None
        return {"value": value, "by_class": numbers(by_class), "n": int(use.any(axis=1).sum())}

    def bound(self, name: str) -> float:
        """Return a bound on the error of any result, beyond rounding; 0 except for plain histograms read softly."""
        bounds = error_bound(self.counted, name)[self.use]
        return float(bounds.max()) if len(bounds) else 0.0

    def _with_plain_means(self, pooled: CaseBins, use: Flags) -> CaseBins:
        """Return the pooled bins with e_m the plain mean over cases of their own e_m."""
        mean = _mean(self.counted.mean, use[:, :, None] & self.counted.filled, axis=0)[None]
        return replace(
            pooled, confidence=np.where(np.isfinite(mean), mean * pooled.weight, pooled.confidence)
        )


def case_errors(view: View) -> CaseErrors:
    """Return the cases of a view, binned as its query requires.

    Raises
    ------
    NoResultError
        No case was named, bins are not exact, composites are requested of stored tables, or plain histograms have
        other options.
    CalibrationInputError
        An option outside its range.
    """
    options = CaseOptions.read(view.pane_query.options, view.spec.n_classes)
    return view.once(("cases", options), lambda: _case_errors(view, options))


def spread(values: Floats) -> Result:
    """Return population standard deviation and quantiles of finite values, None without any."""
    if not len(values):
        return {"sd": None, "quantiles": None}
    quantiles = dict(
        zip(QUANTILES, np.quantile(values, list(QUANTILES.values())).tolist(), strict=True)
    )
    return {"sd": float(values.std()), "quantiles": quantiles}


def numbers(values: Floats) -> list[Any]:
    """Return nested lists with None for nan."""
    if values.ndim > 1:
        return [numbers(row) for row in values]
    return [float(value) if np.isfinite(value) else None for value in values]


def _case_errors(view: View, options: CaseOptions) -> CaseErrors:
    if view.is_raw:
        return _from_rows(view, options)
    if options.composites:
        raise NoResultError(
            "needs_raw_rows",
            "composites of this request are unions of rows' probabilities: post the rows, or declare them in the model's settings",
        )
    if options.membership in KERNELS:
        raise NoResultError(
            "needs_raw_rows",
            f"stored tables do not give {options.membership} bins: post the rows to score them",
        )
    if not view.pane.keeps("cases"):
        raise NoResultError(
            "class_not_kept", "cases are stored only for models that store every class"
        )
    cases = view.pane["cases"]
    assert isinstance(cases, Cases)
    pane_query = view.pane_query
    _check_bins(cases, pane_query.bins, options.membership)
    _check_sources(cases, pane_query.raters, pane_query.edges, pane_query.bins, options.membership)
    if cases.is_empty:
        raise NoResultError("no_cases", "no prediction of the window names its case")

    def binned(names: list[str]) -> CaseBins:
        tables = {name: cases.tables[name] for name in names}
        coarse = {
            name: int(np.gcd.reduce(list(own.values()))) for name, own in cases.sources.items()
        }
        return bin_cases(
            tables,
            cases.layout,
            pane_query.bins,
            options.membership,
            pane_query.edges,
            view.policy,
            coarse,
            n_own=view.spec.n_classes,
        )

    own = view.spec.n_classes
    classes = options.counted(own)
    if options.regions == "composites":
        classes = _declared(view, cases)
    other = binned([OTHER]) if OTHER in cases.tables else None
    class_names = [*(str(k) for k in range(own)), *(name for name, _ in view.spec.composites)]
    own_bins = binned(cases.names)
    about = class_names, cases.n_cases, cases.units
    return CaseErrors(options, cases.names, own_bins, other, classes, *about)


def _from_rows(view: View, options: CaseOptions) -> CaseErrors:
    """Bin raw rows: any number of bins is exact, and classes may be united."""
    batch_sums, bins = view.batch_sums, view.pane_query.bins
    assert batch_sums is not None
    if options.regions == "composites" and not options.composites:
        raise NoResultError(
            "no_composites", "posted rows have no model: name the unions in options.composites"
        )
    if options.composites:
        layout = composite_layout(dict(options.composites), 2 * bins)
        class_names = [name for name, _ in options.composites]
    else:
        layout = Layout.of_classes(range(view.spec.n_classes), 2 * bins)
        class_names = [str(k) for k in range(view.spec.n_classes)]
    tables = case_tables(batch_sums, layout)
    if not tables:
        raise NoResultError("no_cases", "no labelled prediction names its case")
    kernel = options.membership in KERNELS
    plain = "hard" if kernel else options.membership
    binned = bin_cases(
        tables, layout, bins, plain, view.pane_query.edges, view.policy, from_rows=True
    )
    if kernel:
        binned = kernel_bins(batch_sums, layout, bins, options.membership, view.policy, binned)
    n = {"n": len(tables), "kept": len(tables), "estimated": False}
    about = class_names, n, case_units(batch_sums.batch)
    return CaseErrors(
        options, list(tables), binned, None, options.counted(layout.n_classes), *about
    )


def _declared(view: View, cases: Cases) -> list[int]:
    """Return the places of the declared composites, which plain histograms of classes do not fill."""
    if not view.spec.composites:
        detail = "the model declares no composites in its settings"
        raise NoResultError("no_composites", detail)
    if cases.sources:
        detail = "a case contains plain histograms of classes, which do not give unions of them"
        raise NoResultError("not_in_histogram", detail)
    own = view.spec.n_classes
    return list(range(own, own + len(view.spec.composites)))


def _check_bins(cases: Cases, bins: int, membership: str) -> None:
    cells = cases.layout.cells if membership == "hard" else cases.layout.cells // 2
    if cells % bins:
        exact = ", ".join(str(m) for m in range(1, cells + 1) if cells % m == 0)
        raise NoResultError(
            "bins_not_exact", f"stored cases give {membership} bins exactly for {exact}"
        )


def _check_sources(cases: Cases, raters: str, edges: str, bins: int, membership: str) -> None:
    """Raise unless plain histograms have this policy and these edges, and bins that theirs divide into."""
    for own in cases.sources.values():
        for (policy, side), fine in own.items():
            fits = fine % (bins if membership == "hard" else 2 * bins) == 0
            if policy != raters or (side != edges and membership == "hard") or not fits:
                description = f"{fine} bins, {policy} ratings and {side} edges"
                detail = (
                    f"a case contains plain histograms of {description}, which cannot give this"
                )
                raise NoResultError("not_in_histogram", detail)


def _share(bins: CaseBins, sums: Floats) -> Floats:
    return ratio(sums, bins.total)


def _known(bins: CaseBins, values: Floats) -> Floats:
    return np.where(bins.known, values, np.nan)


def _mean(values: Floats, use: Flags, axis: int) -> Floats:
    """Return the mean of the values marked in `use` along an axis, nan if there are none."""
    n = use.sum(axis=axis)
    total = np.where(use, np.nan_to_num(values), 0.0).sum(axis=axis)
    return ratio(total, n, np.nan)
