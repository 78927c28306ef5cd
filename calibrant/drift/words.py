"""The two words of a model and the shift of its scores, each with one sentence and the number that decides; and the derived status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np

from calibrant.core.arrays import ratio
from calibrant.core.time_texts import day_of, length_text, period_text
from calibrant.drift.calibration import GOOD, MIN_UNITS, OFF, Judgement, Selection, Word
from calibrant.drift.evaluation import WITHIN, effects_of
from calibrant.drift.phrases import against_scores, labels_text, percent_text, size_text
from calibrant.drift.recommendation import recalibration
from calibrant.drift.unit_tables import UnitTable
from calibrant.drift.unlabelled_scores import ExpectedAccuracy, Shift

ChangeWord = Literal[
    "changed", "none_seen", "not_armed", "no_recent_predictions", "no_recent_labels"
]
CHANGED: ChangeWord = "changed"
NONE_SEEN: ChangeWord = "none_seen"
NOT_ARMED: ChangeWord = "not_armed"
NO_PREDICTIONS: ChangeWord = "no_recent_predictions"
NO_LABELS: ChangeWord = "no_recent_labels"
ScoresWord = Literal["shifted", "none_seen", "unknown"]
Status = Literal["alarm", "watch", "ok", "insufficient_data"]
_NAMED = 3  # slices that a sentence names
LARGE_PSI = 1.0  # no shift of practical size is shown if the index has to exceed this
SHOWN_POINTS = 0.01  # a smaller change of the rate is not the subject of a sentence
BEYOND_CHANCE = 3.0  # standard errors of a change of the slope that is stated beside the level


@dataclass(frozen=True)
class CalibrationState:
    """What the word of calibration depends on."""

    word: Word  # as shown, after it has held on two cohorts
    judgement: Judgement  # of the recent cohorts
    tolerance: float  # allowed error
    selection: Selection = Selection(None)  # noqa: RUF009
    slices_off: Mapping[str, float] | None = None  # lower limit of the error of each that is off
    n_slices: int = 0  # slices judged
    is_since_start: bool = False  # whether no earlier cohort was good and no change was shown
    why_not: str | None = None  # why nothing is known
    since: int | None = None  # the cohort at which the word turned
    coverage_fell: bool = False  # whether the labelled share fell by 20 points
    period: tuple[int, int] | None = None  # start and end of the recent cohorts, in seconds
    is_since_change: bool = False  # whether they are those of an open change

    @property
    def is_off(self) -> bool:
        """Whether the model or one of its slices is off."""
        return self.word == OFF or bool(self.slices_off)

    @property
    def sentence(self) -> str:
        """The word in one sentence, with the slices that are off and the selection of the labels."""
        return " ".join([f"{self._own()}{self._slices()}.", *self._selected()])

    def _own(self) -> str:
        found, allowed = self.judgement, f"(allowed {size_text(self.tolerance)})"
        count = f"{found.n_units:,.0f}"
        if self.why_not is not None:
            return f"Not known: {self.why_not}"
        if found.limit is None:
            n = "labelled units since the change" if self.is_since_change else "recent labelled units"  # fmt: skip
            return f"Not known: there are {count if found.n_units else 'no'} {n}, and at least {MIN_UNITS:.0f} are needed"
        n = f"measured on {count} labelled units{period_text(self.period)}"
        size = f"{size_text(found.limit)} {allowed}, {n}"
        among = f" among the labelled {percent_text(self.selection.coverage)}" if self.selection.is_partial else ""  # fmt: skip
        if self.word in (GOOD, OFF) and found.word != self.word:
            held = f"Good before{among}" if self.word == GOOD else "Off before"
            now = {GOOD: "is at most", OFF: "is at least"}.get(found.word, "may be up to")
            return f"{held}; {self._since_change or 'now '}the error {now} {size}"
        if self.word == OFF:
            since = self._since_change or ("since the start, " if self.is_since_start else "")
            return f"Off {since}by at least {size}"
        if self.word == GOOD:
            return f"Good{among}: the error is at most {size}"
        if found.word != "unknown":
            least = "at least" if found.word == OFF else "at most"
            error = f"an error of {least} {size}"
            return f"Not known yet: the labels show {error}; the next labels have to confirm it"
        error = f"{size_text(found.error or 0.0)} (of a calibrated model at most {size_text(found.null or 0.0)})"
        start = f"The error since the change is {error}, and" if self.is_since_change else "Not known: the error"  # fmt: skip
        return f"{start} may be up to {size}; {labels_text(found.n_more)} would decide"

    @property
    def _since_change(self) -> str:
        return "since the change, " if self.is_since_change else ""

    def _slices(self) -> str:
        if not self.slices_off:
            return ""
        worst = sorted(self.slices_off.items(), key=lambda each: -each[1])
        named = ", ".join(f"{name} off" + (f" by at least {size_text(limit)}" if limit else "") for name, limit in worst[:_NAMED])  # fmt: skip
        return f"; {named} ({len(worst)} of {self.n_slices} slices)"

    def _selected(self) -> list[str]:
        bounds, coverage = self.selection.bounds, self.selection.coverage
        if bounds is None or not coverage:
            return []
        low, high = (size_text(each) for each in bounds)
        return [
            f"Only {percent_text(coverage)} of the units have a label: depending on the missing labels, the error is between {low} and {high}."
        ]


@dataclass(frozen=True)
class ChangeState:
    """What the word of change depends on; times in seconds since the epoch."""

    word: ChangeWord  # see `ChangeWord`
    n_units: float = 0.0  # labelled units since the change, or of all cohorts compared
    start: int | None = None  # start, earliest, latest: DATE with its range
    earliest: int | None = None
    latest: int | None = None
    sides: tuple[UnitTable, UnitTable] | None = None  # labelled units before and since the change
    is_binary: bool = False  # whether labels are positive, rather than correct
    is_of_slope: bool = False  # whether the slope changed most
    of_reference: bool = False  # whether live data differ from the reference from the first day
    # change of the rate that would show within 7 cohorts; None if none would
    smallest_points: float | None = None
    armed_at: int | None = None  # when the change is armed; None if it is, or will not be
    # end of the last predictions or labels, of the words about missing data
    last_at: int | None = None
    acknowledged_at: int | None = None  # of the last change
    cohort_s: int = 86_400  # length of a cohort
    since: int | None = None  # start of the first cohort compared
    # end of the evaluated part of a history that is still being evaluated
    evaluated_to: int | None = None
    why_not: str | None = None  # why no change can be seen at all
    # dated events of the model about DATE, each with its time
    events: tuple[tuple[str, float], ...] = ()

    @property
    def sentence(self) -> str:
        """The word in one sentence."""
        if self.word == CHANGED:
            return self._changed()
        if self.word in (NO_PREDICTIONS, NO_LABELS):
            what = "prediction" if self.word == NO_PREDICTIONS else "label"
            since = "so far" if self.last_at is None else f"since {self._day(self.last_at)}"
            return f"No {what} {since}: a change would not be seen."
        if self.word == NOT_ARMED:
            return self._not_armed()
        would = "" if self.smallest_points is None else f"; {self._points()} would show within {length_text(WITHIN * self.cohort_s)}"  # fmt: skip
        return f"No change is seen{self._compared()}{would}."

    def _compared(self) -> str:
        """Return which labels are compared."""
        since = "" if self.since is None else f" since {self._day(self.since)}"
        if self.acknowledged_at is not None:
            since += f" (the last one was acknowledged on {self._day(self.acknowledged_at)})"
        return f" in {self.n_units:,.0f} labelled units{since}"

    def _changed(self) -> str:
        n = f" ({self.n_units:,.0f} labelled units since)"
        if self.of_reference or self.start is None:
            return f"Live data differ from the reference{self._effect()}{n}."
        date = self._day(self.start)
        if (self.earliest, self.latest) != (self.start, self.start):
            date += f" ({self._day(self.earliest or self.start)} to {self._day(self.latest or self.start)})"
        near = ", ".join(f"{name} ({self._day(int(at_s))})" for name, at_s in self.events)
        return f"Changed about {date}{near and f', about the time of {near}'}{self._effect()}{n}."

    def _effect(self) -> str:
        """Return the size of the change in the rate of labels or the mean gap, or its direction if both are within chance."""
        if self.sides is None or not all(each.n_units for each in self.sides):
            return ""
        before, after = (each.correct.sum() / each.n_units for each in self.sides)
        beyond = max(SHOWN_POINTS, _chance(before, after, self.sides))
        also = self._also_slope()
        if abs(after - before) >= beyond:
            verb = "fell" if after < before else "rose"
            return f": {self._rate} {verb} from {percent_text(before)} to {percent_text(after)}{also}"  # fmt: skip
        earlier, now = ((s.correct - s.confidence).sum() / s.n_units for s in self.sides)
        if abs(now - earlier) >= beyond and not self.is_of_slope:
            return f": {self._rate} was {against_scores(earlier)} before, and is now {against_scores(now)}{also}"
        became = self._became()
        return became and f": scores {became}"

    def _also_slope(self) -> str:
        """Return that the slope changed, too, where it did beyond chance."""
        found = effects_of(self.sides or ()).along(1)
        chance = BEYOND_CHANCE * ratio(1.0, found.variance).sum() ** 0.5
        is_beyond = abs(np.diff(ratio(found.errors, found.variance), axis=0).sum()) > chance
        return f"; also, scores {became}" if is_beyond and (became := self._became()) else ""

    def _became(self) -> str:
        first, last = (recalibration(each) for each in self.sides or ())
        if first is None or last is None:
            return ""
        return f"became {'too extreme' if last.slope < first.slope else 'too cautious'}"

    @property
    def _rate(self) -> str:
        return "the rate of positive labels" if self.is_binary else "accuracy"

    def _points(self) -> str:
        return f"a change of {self._rate} by {100.0 * (self.smallest_points or 0.0):.1f} points"

    def _not_armed(self) -> str:
        if self.why_not is not None:
            return f"A change cannot be seen yet: {self.why_not}."
        if self.evaluated_to is not None:
            return f"No change is seen so far: the posted history is evaluated up to {self._day(self.evaluated_to)}, and the rest is being evaluated."
        least = f"only {self._points()} or more" if self.smallest_points else "none"
        more = "Smaller ones" if self.smallest_points else "A change"
        if self.armed_at is None:
            when = "would show with more labels a day, or longer cohorts (setting `alarm.bucket`)"
        else:
            when = f"would show from {self._day(self.armed_at)} on"
        return f"No change is seen{self._compared()}, but today {least} would show. {more} {when}."

    def _day(self, at_s: int) -> str:
        time = "" if self.cohort_s >= 86_400 else f" {datetime.fromtimestamp(at_s, UTC):%H:%M}"
        return f"{day_of(at_s)}{time}"


@dataclass(frozen=True)
class ScoresState:
    """The distribution of the scores, labelled or not: `shifted`, `none_seen` or `unknown`."""

    word: ScoresWord = "unknown"
    psi: float | None = None
    limit: float | None = None
    is_known: bool = False
    start: int | None = None
    expected: ExpectedAccuracy | None = None

    @classmethod
    def of(cls, shift: Shift | None, is_known: bool, start: int | None = None) -> ScoresState:
        """Return the state of a shift; `is_known` if calibration after it is known."""
        if shift is None:
            return cls()
        word: ScoresWord = "shifted" if shift.is_shifted else "none_seen"
        return cls(word, shift.psi, shift.limit, is_known, start)

    @property
    def sentence(self) -> str:
        """The word in one sentence, with the accuracy to expect of predictions without a label."""
        expected = [] if self.expected is None else [self._expected(self.expected)]
        return " ".join([self._shift(), *expected])

    @staticmethod
    def _expected(found: ExpectedAccuracy) -> str:
        low, high = found.interval
        return (
            f"Of the last 7 days, {found.n_unlabelled:,.0f} units have no label; their expected accuracy is "
            f"{100.0 * found.value:.1f} % ({100.0 * low:.1f} to {100.0 * high:.1f} %)."
        )

    def _shift(self) -> str:
        if self.word == "unknown":
            return "Too few predictions to compare the scores of days."
        size = f"population stability index {size_text(self.psi or 0.0)}, limit {size_text(self.limit or 0.0)}"
        if self.word == "none_seen" and (self.limit or 0.0) > LARGE_PSI:
            return f"Too few predictions a day to show a shift of the scores ({size})."
        if self.word == "none_seen":
            return f"The scores have not shifted ({size})."
        since = "" if self.start is None else f" about {day_of(self.start)}"
        shifted = f"The scores shifted{since} ({size})."
        unknown = "Without labels it is not known whether the model is still calibrated."
        return shifted if self.is_known else f"{shifted} {unknown}"


def status_of(calibration: CalibrationState, change: ChangeState, scores: ScoresState) -> Status:
    """Return the status derived from the words.

    >>> good = CalibrationState("good", Judgement("good", 0.01, 0.01, 0.01, 900.0), 0.02)
    >>> status_of(good, ChangeState("none_seen"), ScoresState())
    'ok'
    >>> status_of(good, ChangeState("no_recent_labels"), ScoresState())
    'insufficient_data'
    """
    if change.word == CHANGED:
        return "alarm"
    if calibration.is_off or scores.word == "shifted" or calibration.coverage_fell:
        return "watch"
    return "ok" if (calibration.word, change.word) == (GOOD, NONE_SEEN) else "insufficient_data"


FALL = 0.2  # of the labelled share
_LAST, _EARLIER = 3, 7  # cohorts


def coverage_fell(shares: Sequence[float]) -> bool:
    """Return whether the labelled share of the last 3 cohorts is 20 points below that of the earlier ones, at least 7.

    >>> coverage_fell([0.9] * 10), coverage_fell([0.9] * 10 + [0.6] * 3)
    (False, True)
    """
    earlier, last = shares[:-_LAST], shares[-_LAST:]
    if len(earlier) < _EARLIER:
        return False
    return sum(earlier) / len(earlier) - sum(last) / len(last) >= FALL


def _chance(before: float, after: float, sides: tuple[UnitTable, UnitTable]) -> float:
    """Return two standard errors of the difference of two rates."""
    variances = [
        rate * (1.0 - rate) / side.n_units
        for rate, side in zip((before, after), sides, strict=True)
    ]
    return float(2.0 * sum(variances) ** 0.5)
