"""Detectors of a model: one per slice and scope, advanced by each sealed cohort in the commit that seals it.

A detector is the start of Before, the words that it shows and an open change. The rule of change reads the tables of its cohorts
(`cohort_history`). Cohorts are numbered by their start in seconds, which keeps their order for any length of a cohort. The last
processed cohort is a watermark: a repeated cohort changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from calibrant.core.packing import PackingError, pack, unpack
from calibrant.drift.calibration import GOOD, N_RECENT, UNKNOWN, Judgement, Word, held_word
from calibrant.drift.change import Change, Effects
from calibrant.drift.evaluation import effects_of
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant.inference.false_alarm_rate import flagged
from calibrant_server.workers.alarm.alarm_settings import NO_MAP, ActiveMap, AlarmSettings
from calibrant_server.workers.alarm.cohorts import CohortResult, parts_of, rater_in
from calibrant_server.workers.ingest.reference import MIN_DAYS
from calibrant_server.workers.store.windows import Window

FORMAT = 2
# Further slices of a model are not watched, and the verdict reports it: each reduces the sensitivity of all others.
MAX_DETECTORS = 256
MAX_BYTES = 1 << 19


@dataclass(frozen=True)
class OpenChange:
    """A change that was shown and is not acknowledged; cohorts by their start in seconds."""

    alarmed_at: int  # the cohort that showed it
    start: int  # start, earliest, latest: its first cohort, with the range of starts
    earliest: int
    latest: int
    direction: int  # index into `DIRECTIONS`
    sign: int  # of the change of the effect
    p: float  # of its test
    of_reference: bool = False  # whether the first live cohort differs from the reference already

    @classmethod
    def of(cls, found: Change, cohorts: Sequence[CohortResult], before: Before) -> OpenChange:
        """Create from a change that the last of some cohorts shows, which came after the days of a reference."""
        n, last = len(before.days), cohorts[-1].cohort
        ends = found.start, found.earliest, found.latest
        start, earliest, latest = (cohorts[max(0, each - n)].cohort for each in ends)
        is_first = bool(before.tables) and found.start <= n
        return cls(last, start, earliest, latest, found.direction, found.sign, found.p, is_first)

    def follows(self, other: OpenChange) -> bool:
        """Whether an earlier alarm was of the same change: the ranges of DATE overlap."""
        is_later = other.alarmed_at < self.alarmed_at
        return is_later and self.earliest <= other.latest and other.earliest <= self.latest


@dataclass(frozen=True)
class Words:
    """The word of calibration as shown."""

    calibration: Word = UNKNOWN  # as shown
    last: Word = UNKNOWN  # of the last cohort
    since: int | None = None  # the cohort at which it turned
    # whether `good` held, or a change was shown, at some cohort since the map
    was_good: bool = False
    tolerance: float | None = None  # that it was judged with
    limit: float | None = None  # of the error that decided at the last cohort

    def turned(self, now: Judgement, cohort: int, tolerance: float) -> Words:
        """Return the words after one more cohort."""
        is_same = tolerance == self.tolerance
        word = held_word(self.calibration, self.last, now) if is_same else now.word
        since = self.since if word == self.calibration else cohort
        was_good = self.was_good or word == GOOD
        return Words(word, now.word, since, was_good, tolerance, now.limit)

    def at_change(self) -> Words:
        """Return the words when a change is shown: `good` was said of the cohorts before it."""
        word = UNKNOWN if self.calibration == GOOD else self.calibration
        return replace(self, calibration=word, last=UNKNOWN, was_good=True)


@dataclass(frozen=True)
class Before:
    """What is before the first live cohort of a detector."""

    tables: Sequence[UnitTable] = ()  # of the reference
    block: Effects | None = None  # of a reference that is one block, without days
    # of the live data that it was frozen from: their cohorts are not counted again
    window: Window = Window(0, 0)  # noqa: RUF009

    @property
    def days(self) -> Sequence[UnitTable]:
        """Tables of the reference's days, which are cohorts of Before."""
        return self.tables if self.block is None else ()


@dataclass(frozen=True)
class Reference:
    """Tables of the reference by detector, of its days or of all; the window of live data that it was frozen from; when it was made."""

    tables: Mapping[str, Sequence[UnitTable]] = field(default_factory=dict)
    window: Window = Window(0, 0)  # noqa: RUF009
    created_ms: int = 0

    def of(self, name: str, detector: Detector) -> Before:
        """Return what is before the first live cohort of a detector; nothing if a change was acknowledged since it was made."""
        tables = [each for each in self.tables.get(name, ()) if each.n_units]
        if not tables or self.created_ms == detector.past_reference:
            return Before()
        block = effects_of([merged(tables)]) if len(tables) < MIN_DAYS else None
        return Before(tables, block, self.window)


@dataclass(frozen=True)
class Detector:
    """Stored state of one detector."""

    made_of: str  # name of the settings that its tables depend on
    # first cohort of Before: since the map, or the last acknowledged change; None before it
    begun: int | None = None
    words: Words = field(default_factory=Words)  # of calibration
    change: OpenChange | None = None  # the open change
    acknowledged_at: float | None = None  # when the last change was, None if none was
    past_reference: int = -1  # when the reference was made that is older than this change, in ms
    improved_at: int | None = None  # the first cohort of the last improvement
    p: float = 1.0  # of a change for the worse, by the cohorts since `begun`
    # all cohorts ever, for counters that only increase
    total: UnitTable = field(default_factory=UnitTable.empty)
    last: int | None = None  # the last processed or closed cohort
    episode: str | None = None  # the open alarm
    map_version: str | None = None  # the active calibration map
    # n_passed, why_passed: number of cohorts skipped, and the reason for the last
    n_passed: int = 0
    why_passed: str | None = None
    # units, n_left_out: what is known of the units of the last cohort, and how many returning units were left out; of all rows only
    units: str | None = None
    n_left_out: int = 0

    @classmethod
    def begin(
        cls, settings: AlarmSettings, active_map: ActiveMap = NO_MAP, last: int | None = None
    ) -> Detector:
        """Create a detector without cohorts; those up to `last`, and those the map was fitted to, are closed to it."""
        if settings.is_mapped:
            last = active_map.closed_to(settings.bucket_s, last)
        version = active_map.version if settings.is_mapped else None
        return cls(settings.made_of, last=last, map_version=version)

    def is_open(self, start_s: int) -> bool:
        """Whether a cohort is after the last processed or closed one."""
        return self.last is None or start_s > self.last

    @property
    def in_alarm(self) -> bool:
        """Whether a change is open."""
        return self.change is not None

    def counted(self, results: Iterable[CohortResult]) -> list[CohortResult]:
        """Return the results of the cohorts since `begun`."""
        return [each for each in results if self.begun is not None and each.cohort >= self.begun]

    def compared(self, results: Iterable[CohortResult], before: Before) -> list[CohortResult]:
        """Return the results that the rule of change compares: labelled, and not part of the reference."""
        counted = self.counted(results)
        return [each for each in counted if each.is_labelled and each.cohort not in before.window]

    def recent(self, results: Sequence[CohortResult]) -> list[CohortResult]:
        """Return the last 28 cohorts with labels, of an open change those since its start."""
        start = None if self.change is None else self.change.start
        found = [each for each in results if each.is_labelled]
        return [each for each in found if start is None or each.cohort >= start][-N_RECENT:]

    def pack(self) -> bytes:
        """Return the stored form."""
        about = asdict(self) | {"alarm": FORMAT}
        del about["total"]
        return pack({"total": self.total.columns}, about)

    @classmethod
    def unpack(cls, data: bytes) -> Detector:
        """Read what `pack` wrote; raises PackingError."""
        arrays, about = unpack(data, largest=MAX_BYTES)
        if about.pop("alarm", None) != FORMAT:
            raise PackingError(f"this is not a model's detector in format {FORMAT}")
        about["words"] = Words(**about["words"])
        about["change"] = about["change"] and OpenChange(**about["change"])
        return cls(**about, total=UnitTable(*arrays["total"]))


def watched(
    detectors: Mapping[str, Detector], cohorts: Iterable[str], settings: AlarmSettings
) -> list[str]:
    """Return the detectors of a model: existing ones, then new ones up to the limit, all rows first.

    Detectors of classes and raters that the settings no longer name are excluded.
    """
    still = requested(detectors, settings)
    new = sorted(
        (name for name in cohorts if name not in detectors),
        key=lambda name: (parts_of(name)[1], name),
    )
    return [*still, *new[: max(0, MAX_DETECTORS - len(still))]]


def requested(detectors: Iterable[str], settings: AlarmSettings) -> list[str]:
    """Return the detectors that the settings still name, by scope and by number of raters."""
    names = list(detectors)
    of_raters = sorted(name for name in names if rater_in(name) is not None)
    raters = of_raters[: settings.rater_detectors]
    return [name for name in names if name in raters or parts_of(name)[0] in settings.scopes]


def n_requested(detectors: Iterable[str], settings: AlarmSettings) -> int:
    """Return how many detectors share the false-alarm rate, at least one."""
    return max(1, len(requested(detectors, settings)))


def watched_raters(
    detectors: Mapping[str, Detector], raters: Iterable[str], settings: AlarmSettings
) -> list[str]:
    """Return raters with their own detector: those that have one, then others by name up to the limit.

    None of a single rater, whose labels are those of the model.
    """
    known = sorted(rater for name in detectors if (rater := rater_in(name)) is not None)
    found = [*known, *sorted(set(raters) - set(known))]
    return found[: settings.rater_detectors] if len(found) > 1 else []


def acknowledged(detector: Detector, reference: Reference, now_s: float) -> Detector:
    """Return a detector whose change was acknowledged now: Before starts again at the start of the change, without the reference."""
    if detector.change is None:
        return detector
    return replace(
        detector,
        begun=detector.change.start,
        change=None,
        acknowledged_at=now_s,
        past_reference=reference.created_ms,
        p=1.0,
    )


def flagged_names(detectors: Mapping[str, Detector], settings: AlarmSettings) -> list[str]:
    """Return slices that changed, so that at most the given share of flagged ones is due to chance."""
    p = {
        name: detectors[name].p
        for name in requested(detectors, settings)
        if detectors[name].begun is not None and parts_of(name)[1]
    }
    return flagged(p, settings.false_flags) if p else []


def promoted(detector: Detector, settings: AlarmSettings, active_map: ActiveMap) -> Detector:
    """Return a reset detector; processed cohorts stay closed."""
    begun = Detector.begin(settings, active_map, detector.last)
    return replace(begun, total=detector.total)


def n_judged(detectors: Iterable[str], settings: AlarmSettings) -> int:
    """Return how many slices and classes share the level of `off`, at least one."""
    return max(1, sum(rater_in(name) is None for name in requested(detectors, settings)))
