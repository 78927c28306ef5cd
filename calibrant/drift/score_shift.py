"""Shift of the scores: evidence without labels, an early warning and never an alarm.

Units belong to bins of the score. Against a distribution θ, ∏ (q_k / θ_k)^ω_k over a unit's shares ω of the bins has
mean at most one (the weighted geometric mean is at most the arithmetic mean), for any dependence inside the unit.
Mixing q by Dirichlet priors around the reference gives evidence that holds at every evaluation. The reference is also a
sample: the reported evidence is the minimum over all θ that the sample does not rule out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.packing import PackingError, pack, unpack

Floats = NDArray[np.float64]
FORMAT = 1
CONCENTRATIONS = (10.0, 100.0, 1000.0)
REFERENCE_LEVEL = 0.99
MIN_REFERENCE = 50.0
_DOUBLINGS, _HALVINGS = 60, 60
_MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class ScoreShiftState:
    """Units by bin of the score, in the reference and since then.

    Attributes
    ----------
    reference, counts : float64 (n_bins,), units
    peak : the maximum of the log evidence, at least 0
    last : number of the last processed cohort, None before the first
    """

    reference: Floats
    counts: Floats
    peak: float = 0.0
    last: int | None = None

    @property
    def log_evidence(self) -> float:
        return log_shift_evidence(self.counts, self.reference)

    @property
    def anytime_p(self) -> float:
        """Upper bound of the probability of this much evidence at any evaluation, for scores of the reference's distribution.

        It includes the probability that the reference's own distribution is outside its region.
        """
        return min(1.0, (1.0 - REFERENCE_LEVEL) + float(np.exp(-self.peak)))


def begin_watch(reference: Floats, after: int | None = None) -> ScoreShiftState:
    """Return a watch without evidence; cohorts up to `after` are closed to it.

    Raises
    ------
    ValueError
        Fewer than 50 units in the reference, or invalid counts.
    """
    if not np.isfinite(reference).all() or (reference < 0).any():
        raise ValueError("units by bin are finite and not negative")
    if reference.sum() < MIN_REFERENCE:
        raise ValueError(
            f"Received a reference of {reference.sum():.0f} units; expected at least {MIN_REFERENCE:.0f}."
        )
    return ScoreShiftState(reference, np.zeros(len(reference)), last=after)


def advance_watch(state: ScoreShiftState, cohort: int, occupancy: Floats) -> ScoreShiftState:
    """Return the state after one more cohort; one at or below `state.last` changes nothing.

    Parameters
    ----------
    state : ScoreShiftState
    cohort : its number
    occupancy : float64 (n_bins,), units by bin of the score, labelled or not
    """
    if state.last is not None and cohort <= state.last:
        return state
    ahead = replace(state, counts=state.counts + occupancy, last=cohort)
    return replace(ahead, peak=max(state.peak, ahead.log_evidence))


def log_shift_evidence(counts: Floats, reference: Floats) -> float:
    """Return the log evidence that `counts` come from another distribution than `reference`; 0 without counts.

    Parameters
    ----------
    counts, reference : float64 (n_bins,), units

    Source
    ------
    Lindon and Malek, Anytime-valid inference for multinomial count data (NeurIPS 2022), for a known
    distribution; here the least over the 99 % likelihood region of the reference (Wilks).
    """
    if not counts.sum():
        return 0.0
    centre = (reference + 0.5) / (reference.sum() + 0.5 * len(reference))
    mixed = [_log_dirichlet_multinomial(counts, c * centre) for c in CONCENTRATIONS]
    numerator = float(np.logaddexp.reduce(mixed)) - np.log(len(mixed))
    return float(numerator - float(scipy.special.xlogy(counts, _nearest(counts, reference)).sum()))


def _log_dirichlet_multinomial(counts: Floats, prior: Floats) -> float:
    """Log of E[∏ q_k^counts_k] for q from a Dirichlet prior."""
    normaliser = scipy.special.gammaln(prior.sum()) - scipy.special.gammaln(
        prior.sum() + counts.sum()
    )
    return float(
        normaliser + (scipy.special.gammaln(prior + counts) - scipy.special.gammaln(prior)).sum()
    )


def _nearest(counts: Floats, reference: Floats) -> Floats:
    """Return the distribution with the highest likelihood of `counts` among those that the reference does not rule out.

    It mixes both samples, (counts + μ reference) / total, with the smallest μ inside the region.
    """
    radius = scipy.special.gammaincinv((len(reference) - 1) / 2.0, REFERENCE_LEVEL)
    own = scipy.special.xlogy(reference, reference / reference.sum()).sum()

    def mixed(mu: float) -> Floats:
        mixture = counts + mu * reference
        return np.asarray(mixture / mixture.sum())

    def outside(mu: float) -> bool:
        return bool(own - scipy.special.xlogy(reference, mixed(mu)).sum() > radius)

    if not outside(0.0):
        return mixed(0.0)
    low, high = 0.0, 1.0
    for _ in range(_DOUBLINGS):
        if not outside(high):
            break
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if outside(middle) else (low, middle)
    return mixed(high)


def pack_watch(state: ScoreShiftState) -> bytes:
    """Pack the state exactly."""
    arrays = {"reference": state.reference, "counts": state.counts, "peak": np.array([state.peak])}
    return pack(arrays, {"occupancy": FORMAT, "last": state.last})


def unpack_watch(data: bytes) -> ScoreShiftState:
    """Unpack what `pack_watch` packed.

    Raises
    ------
    PackingError
        Damaged or other bytes, or another format.
    """
    arrays, about = unpack(data, largest=_MAX_BYTES)
    if about.get("occupancy") != FORMAT:
        raise PackingError(f"these bytes are not a score-shift state of format {FORMAT}")
    last = about.get("last")
    if set(arrays) != {"reference", "counts", "peak"} or type(last) not in (int, type(None)):
        raise PackingError("a score-shift state has two columns, a peak and the last cohort")
    reference, counts, peak = arrays["reference"], arrays["counts"], arrays["peak"]
    if reference.shape != counts.shape or reference.ndim != 1 or peak.shape != (1,):
        raise PackingError("the columns of a score-shift state do not fit each other")
    if not _sums([reference, counts, peak]):
        raise PackingError("sums of a score-shift state are finite and not negative")
    return ScoreShiftState(reference, counts, float(peak[0]), last)


def _sums(columns: list[NDArray[Any]]) -> bool:
    return all(c.dtype == np.float64 and np.isfinite(c).all() and (c >= 0).all() for c in columns)
