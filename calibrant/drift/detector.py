"""The alarm's state: six numbers per bet, advanced by one sealed cohort at a time.

The evidence is tempered by the dispersion of earlier cohorts, and counts labels that have not arrived at their least favourable value.
A change has to show more, the less is known of the variation of cohorts before it (`caution`).
The plain statistic is stored with it: if it alone reaches the threshold, an assumption is in doubt, and that is a watch.

Cohorts are numbered in order of time (for example start divided by length), and each counts once. The number
of the last one is a watermark; cohorts at or below it are closed. A replay therefore changes nothing and gives
the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibrant.drift.bets import Bets, bets_of
from calibrant.drift.dispersion import Dispersion, standardised
from calibrant.drift.evidence import log_bets, log_mixture, shiryaev_roberts
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import UnitTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MAX_BINS = 60
MAX_HELD = 7


@dataclass(frozen=True)
class DetectorState:
    """State of a detector after the processed cohorts.

    Attributes
    ----------
    tolerance : the band of gaps that are not drift
    log_sr : float64 (n_bets,), log of the Shiryaev–Roberts statistic; minus infinity before the first cohort
    log_evidence : float64 (n_bets,), log evidence since the baseline
    lowest : float64 (n_bets,), the minimum of `log_evidence` since the last restart
    since : int64 (n_bets,), the cohort after that minimum: the most likely start of a change
    peak : the maximum of the log of the mixed evidence, at least 0
    n_cohorts : cohorts processed since the baseline
    last : number of the last processed or closed cohort, None before the first
    alarmed_at : the cohort that raised the alarm, None without an alarm
    acknowledged_at : the last cohort when an alarm was acknowledged, None if none was
    map_version : active calibration map, None without
    plain_sr : float64 (n_bets,), log of the statistic of labelled units without tempering
    dispersion : of the cohorts before an alarm
    caution : float64 (n_bets,), factor of the log evidence that an alarm needs, from the cohorts before the start of the change
    n_held : last cohorts in a row at which the statistic reached the threshold and the caution alone withheld the alarm
    n_tempered, n_pending : cohorts since the last restart whose evidence was tempered; that had pending labels
    """

    tolerance: Tolerance
    log_sr: Floats
    log_evidence: Floats
    lowest: Floats
    since: Ints
    peak: float = 0.0
    n_cohorts: int = 0
    last: int | None = None
    alarmed_at: int | None = None
    acknowledged_at: int | None = None
    map_version: str | None = None
    plain_sr: Floats = field(default_factory=lambda: np.zeros(0))
    dispersion: Dispersion = field(default_factory=Dispersion.none)
    caution: Floats = field(default_factory=lambda: np.zeros(0))
    n_held: int = 0
    n_tempered: int = 0
    n_pending: int = 0

    @property
    def bets(self) -> Bets:
        return bets_of(len(self.tolerance.lower))

    @property
    def log_mixed_sr(self) -> float:
        """Log of the mixed Shiryaev–Roberts statistic, to be compared with the threshold.

        Evidence for a change (above 0) is divided by the caution of the leading bet.
        """
        found = self.log_uncautious_sr
        return found / float(self.caution[self.heaviest_bet]) if found > 0.0 else found

    @property
    def log_uncautious_sr(self) -> float:
        """Log of the mixed statistic before it is divided by the caution."""
        return float(log_mixture(self.log_sr, self.bets))

    @property
    def log_plain_sr(self) -> float:
        """Log of the mixed statistic without tempering and without pending labels."""
        return float(log_mixture(self.plain_sr, self.bets))

    @property
    def log_mixed_evidence(self) -> float:
        """Log of the mixed evidence since the baseline, in nats."""
        return float(log_mixture(self.log_evidence, self.bets))

    @property
    def anytime_p(self) -> float:
        """Upper bound of the probability of this much evidence at any evaluation since the baseline, within tolerance."""
        return float(np.exp(-self.peak))

    @property
    def heaviest_bet(self) -> int:
        """The bet with the largest share of the Shiryaev–Roberts mixture."""
        return int(np.argmax(self.log_sr + self.bets.log_weights))

    @property
    def start_of_change(self) -> int | None:
        """The cohort from which the leading bet's evidence is largest, None before the first cohort."""
        return int(self.since[self.heaviest_bet]) if self.n_cohorts else None


def fresh(
    tolerance: Tolerance, map_version: str | None = None, after: int | None = None
) -> DetectorState:
    """Return a detector without evidence.

    Parameters
    ----------
    tolerance : over the bins of later tables
    map_version : active calibration map
    after : cohorts up to this number are closed to it

    Raises
    ------
    ValueError
        An invalid tolerance, or more than 60 bins.
    """
    bins = len(tolerance.check().lower)
    if not 1 <= bins <= MAX_BINS:
        raise ValueError(f"a detector has 1 to {MAX_BINS} bins")
    n = bets_of(bins).n_bets
    nothing = np.full(n, -np.inf)
    return DetectorState(
        tolerance,
        nothing,
        np.zeros(n),
        np.full(n, np.inf),
        np.zeros(n, np.int64),
        last=after,
        map_version=map_version,
        plain_sr=nothing,
        dispersion=Dispersion.none((), bins),
        caution=np.ones(n),
    )


def advance(
    state: DetectorState,
    cohort: int,
    table: UnitTable,
    threshold: float,
    slack: Floats | None = None,
    pending: Floats | None = None,
) -> DetectorState:
    """Return the state after one more sealed cohort.

    Parameters
    ----------
    state : DetectorState
    cohort : its number; one at or below `state.last` is closed, and the state is returned unchanged
    table : UnitTable of the cohort; an empty one counts as an evaluation without evidence
    threshold : the alarm is raised when the mixed Shiryaev–Roberts statistic reaches it
    slack : float64 (2, n_bins), sums of weight times the error bound of the mean score below and above; None if the
        table is exact
    pending : float64 (n_bins,), units whose labels may still arrive; None if there are none

    Raises
    ------
    ValueError
        A table with another number of bins, or an invalid one.

    Examples
    --------
    >>> state = fresh(Tolerance.within(0.0))
    >>> state = advance(state, 1, UnitTable.empty(), 3650.0)
    >>> round(float(np.exp(state.log_mixed_sr)), 6)
    1.0
    >>> advance(state, 1, UnitTable.empty(), 3650.0) is state
    True
    """
    if state.last is not None and cohort <= state.last:
        return state
    if table.check().n_bins != state.bets.bins:
        raise ValueError(f"a table of {table.n_bins} bins for a detector of {state.bets.bins}")
    tolerance = state.tolerance if slack is None else state.tolerance.widened(table, slack)
    plain = log_bets(table.weight, table.confidence, table.correct, state.bets, tolerance)
    is_pending = pending is not None and bool((pending > 0.0).any())
    gain = plain
    if is_pending:
        gain = log_bets(
            table.weight, table.confidence, table.correct, state.bets, tolerance, pending
        )
    factor = _factor(state.dispersion, table)
    gain = gain / factor
    begins = state.log_evidence <= state.lowest
    ahead = replace(
        state,
        log_sr=shiryaev_roberts(state.log_sr, gain),
        log_evidence=state.log_evidence + gain,
        lowest=np.minimum(state.log_evidence, state.lowest),
        since=np.where(begins, cohort, state.since),
        caution=np.where(begins, state.dispersion.caution, state.caution),
        n_cohorts=state.n_cohorts + 1,
        last=cohort,
        plain_sr=shiryaev_roberts(state.plain_sr, plain),
        n_tempered=state.n_tempered + (factor > 1.0),
        n_pending=state.n_pending + is_pending,
    )
    alarmed_at, dispersion = ahead.alarmed_at, state.dispersion
    n_held = state.n_held + 1 if ahead.log_uncautious_sr >= np.log(threshold) else 0
    # The first cohorts of what may be a change are no evidence of variation between cohorts.
    if alarmed_at is None and not 0 < n_held <= MAX_HELD:
        dispersion = dispersion.updated(table.weight, table.confidence, table.correct)
    if alarmed_at is None and ahead.log_mixed_sr >= np.log(threshold) and factor < np.inf:
        alarmed_at = cohort
    peak = max(ahead.peak, ahead.log_mixed_evidence)
    return replace(ahead, peak=peak, alarmed_at=alarmed_at, dispersion=dispersion, n_held=n_held)


def _factor(dispersion: Dispersion, table: UnitTable) -> float:
    """Return by what the cohort's evidence is tempered, from earlier cohorts; infinity if cohorts are correlated."""
    if dispersion.is_correlated:
        return float(np.inf)
    variance = standardised(table.weight, table.confidence, table.correct)[1]
    return float(dispersion.phi(np.asarray(table.n_units), variance))


def acknowledge(state: DetectorState) -> DetectorState:
    """Acknowledge an alarm: the change statistic restarts, the evidence since the baseline remains.

    Without an alarm, the state is returned unchanged.
    """
    if state.alarmed_at is None:
        return state
    n = state.bets.n_bets
    return replace(
        state,
        log_sr=np.full(n, -np.inf),
        lowest=np.full(n, np.inf),
        since=np.zeros(n, np.int64),
        alarmed_at=None,
        acknowledged_at=state.last,
        plain_sr=np.full(n, -np.inf),
        n_tempered=0,
        n_pending=0,
    )
