"""The two words of a model and the shift of its scores, each with one sentence and the number that decides; and the derived status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from calibrant.core.coverage_texts import fallen_text, missing_text
from calibrant.core.number_texts import (
    at_least,
    at_most,
    labels_text,
    percent_text,
    size_text,
    two_digits,
)
from calibrant.core.smallest_change import POINTS, TARGET, SmallestChange
from calibrant.core.time_texts import day_of, length_text, period_text
from calibrant.drift.calibration import (
    GOOD,
    MIN_UNITS,
    OFF,
    Judgement,
    Selection,
    Word,
)
from calibrant.drift.change_effect import ChangeEffect
from calibrant.drift.evaluation import WITHIN
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
    fall: tuple[float, float, int] | None = None  # of the labelled share, see `fall_of_coverage`
    period: tuple[int, int] | None = None  # start and end of the recent cohorts, in seconds
    is_since_change: bool = False  # whether they are those of an open change
    selected: tuple[int, int] | None = None  # period of the selection
    late: float | None = None  # share of predictions with labels after the horizon, None without
    counting: tuple[float, str] | None = None  # units of the cohorts that can count, and their time

    @property
    def is_off(self) -> bool:
        """Whether the model or one of its slices is off."""
        return self.word == OFF or bool(self.slices_off)

    @property
    def coverage_fell(self) -> bool:
        """Whether the labelled share fell by 20 points."""
        return self.fall is not None

    @property
    def sentence(self) -> str:
        """The word in a few sentences: what is off first, then what would decide, and the selection of the labels."""
        own, slices = self._own(), self._slices()
        if slices and self.word in (GOOD, OFF):
            own = f"{own.replace('Good', 'Good overall', 1)}; {slices}"
        elif slices:
            own = f"{slices}; over all predictions: {own[0].lower()}{own[1:]}"
        return " ".join([f"{own}.", *self._enough(), *self._coverage()])

    def _own(self) -> str:
        found, allowed = self.judgement, f"(allowed {size_text(self.tolerance)})"
        count = f"{found.n_units:,.0f}"
        if self.why_not is not None:
            return f"Not known: {self.why_not}"
        if found.limit is None:
            n = "labelled units since the change" if self.is_since_change else "recent labelled units"  # fmt: skip
            return f"Not known: there are {count if found.n_units else 'no'} {n}, and at least {MIN_UNITS:.0f} are needed"
        n = f"measured on {count} labelled units{period_text(self.period)}"
        size = f"{at_least(found.limit) if found.word == OFF else at_most(found.limit)} {allowed}, {n}"  # fmt: skip
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
        error = f"{size_text(found.error or 0.0)} (of a calibrated model at most {at_most(found.null or 0.0)})"
        start = f"The error since the change is {error}, and" if self.is_since_change else "Not known: the error"  # fmt: skip
        return f"{start} may be up to {size}; {self.decides}"

    @property
    def decides(self) -> str:
        """What would decide a word that is not known."""
        found = self.judgement
        if found.limit is None:
            return f"at least {MIN_UNITS:.0f} labelled units are needed"
        return labels_text(found.n_more, found.n_units, found.then)

    def _enough(self) -> list[str]:
        """Return that the cohorts that count will never have the labels that would decide."""
        found = self.judgement
        if self.word != "unknown" or found.word != "unknown" or None in (self.counting, found.limit):  # fmt: skip
            return []
        n, length = self.counting or (0.0, "")
        if found.n_more is not None and found.n_units + found.n_more <= n:
            return []
        return [f"Only the last {length} count, about {two_digits(n)} units: more labels a day or a larger tolerance would decide."]  # fmt: skip

    @property
    def _since_change(self) -> str:
        return "since the change, " if self.is_since_change else ""

    def _slices(self) -> str:
        if not self.slices_off:
            return ""
        worst = sorted(self.slices_off.items(), key=lambda each: -each[1])
        verb = "off" if self.word in (GOOD, OFF) else "is off"
        named = ", ".join(f"{name} {verb}" + (f" by at least {at_least(limit)}" if limit else "") for name, limit in worst[:_NAMED])  # fmt: skip
        return f"{named} ({len(worst)} of {self.n_slices} slices)"

    def _coverage(self) -> list[str]:
        bounds, coverage = self.selection.bounds, self.selection.coverage
        found = [] if self.fall is None else [fallen_text(*self.fall)]
        if bounds is None or not coverage:
            return found
        return [missing_text(1.0 - coverage, bounds, self.selected, self.late), *found]


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
    direction: str = "level"  # in which the change is clearest, of `DIRECTIONS`
    of_reference: bool = False  # whether live data differ from the reference from the first day
    smallest: SmallestChange | None = None  # that would show within 7 cohorts
    armed_at: int | None = None  # when the change is armed; None if it is, or will not be
    later: tuple[int, float] | None = None  # else, a time from which a smaller change would show
    last_at: int | None = None  # end of the last data, of the words about missing data
    acknowledged_at: float | None = None  # of the last change
    cohort_s: int = 86_400  # length of a cohort
    since: int | None = None  # start of the first cohort compared
    evaluated_to: int | None = None  # end of what is evaluated of a history so far
    why_not: str | None = None  # why no change can be seen at all
    events: tuple[tuple[str, float], ...] = ()  # of the model about DATE, each with its time

    @property
    def smallest_points(self) -> float | None:
        """Smallest change of the rate of labels that would show, as in the sentence."""
        return None if self.smallest is None else self.smallest.points

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
        return f"No change is seen{self._compared()}{self._would()}."

    def _compared(self) -> str:
        """Return which labels are compared."""
        since = "" if self.since is None else f" since {self._day(self.since)}"
        if self.acknowledged_at is not None:
            since += f" (the last one was acknowledged on {self._day(self.acknowledged_at)})"
        return f" in {self.n_units:,.0f} labelled units{since}"

    def _changed(self) -> str:
        n = f" ({self.n_units:,.0f} labelled units since)"
        if self.of_reference or self.start is None:
            return f"Live data differ from the reference{self._effect}{n}."
        date = self._day(self.start)
        if (self.earliest, self.latest) != (self.start, self.start):
            date += f" ({self._day(self.earliest or self.start)} to {self._day(self.latest or self.start)})"
        near = ", ".join(f"{name} ({self._day(int(at_s))})" for name, at_s in self.events)
        return f"Changed about {date}{near and f', about the time of {near}'}{self._effect}{n}."

    @property
    def _effect(self) -> str:
        found = None if self.sides is None else ChangeEffect(self.sides, self._rate, self.direction)
        return f": {found.text}" if found and found.text else ""

    @property
    def _rate(self) -> str:
        return "the rate of positive labels" if self.is_binary else "accuracy"

    def _would(self) -> str:
        """Return what would show, if the rule is armed: 5 points, or a temperature of 1.6."""
        found = self.smallest
        if found is None:
            return ""
        sizes = [] if found.points is None else [found.text(self._rate)]
        if found.points is None or found.points > POINTS:
            sizes.insert(0, f"scores that become too extreme ({TARGET})")
        return f"; {' or '.join(sizes)} would show within {length_text(WITHIN * self.cohort_s)}{self._other}"  # fmt: skip

    @property
    def _other(self) -> str:
        return self.smallest.other if self.smallest and self.is_binary else ""

    def _not_armed(self) -> str:
        if self.why_not is not None:
            return f"A change cannot be seen yet: {self.why_not}."
        if self.evaluated_to is not None:
            return f"No change is seen so far: the posted history is evaluated up to {self._day(self.evaluated_to)}, and the rest is being evaluated."
        start, found = f"No change is seen{self._compared()}, but", self.smallest
        if found is None or found.points is None:
            return f"{start} this is undecided: today none would show. {self._when()}"
        least = f"today only {found.text(self._rate)} or more would show{self._other}"
        return f"{start} smaller ones are undecided: {least}. {self._when()}"

    def _when(self) -> str:
        """Return from when a smaller change would show, or what it takes."""
        if self.armed_at is not None:
            return f"From {self._day(self.armed_at)} on, {100.0 * POINTS:.0f} points or a {TARGET} would show."
        if self.later is not None:
            at_s, points = self.later
            return f"From {self._day(at_s)} on, {100.0 * points:.1f} points would show; less needs more labels a day, or longer periods."
        return "It takes more labels a day, or longer periods."

    def _day(self, at_s: float) -> str:
        time = "" if self.cohort_s >= 86_400 else f" {datetime.fromtimestamp(at_s, UTC):%H:%M}"
        return f"{day_of(int(at_s))}{time}"


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
        quiet: ScoresWord = "none_seen" if shift.limit <= LARGE_PSI else "unknown"
        return cls(
            "shifted" if shift.is_shifted else quiet, shift.psi, shift.limit, is_known, start
        )

    @property
    def sentence(self) -> str:
        """The word in one sentence, with the accuracy to expect of predictions without a label."""
        expected = [] if self.expected is None else [self._expected(self.expected)]
        return " ".join([self._shift(), *expected])

    @staticmethod
    def _expected(found: ExpectedAccuracy) -> str:
        low, high = found.interval
        return (
            f"Of the last 7 days with predictions, {found.n_unlabelled:,.0f} units have no label; their expected accuracy is "
            f"{100.0 * found.value:.1f} % ({100.0 * low:.1f} to {100.0 * high:.1f} %)."
        )

    def _shift(self) -> str:
        if self.psi is None:
            return "Too few predictions to compare the scores of days."
        size = f"population stability index {size_text(self.psi)}, limit {size_text(self.limit or 0.0)}"
        if self.word == "unknown":
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
