"""Scenarios of users: a function per row, which returns what was measured and whether the goal holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from benchmarks.drift.days import (
    Days,
    Floats,
    autoregressive,
    normal_logits,
    simulate,
    tables,
    tempered,
    weekly,
    yearly_sine,
)
from benchmarks.drift.detector import (
    NEVER,
    RUN_LENGTH,
    armed_after,
    calibration_words,
    first_change,
    has_bounds,
)
from calibrant.drift.unit_tables import DRIFT_BINS
from calibrant.drift.unlabelled_scores import shift_of

YEAR = 365
STATED = YEAR / RUN_LENGTH
ACCEPTED = 0.285


@dataclass(frozen=True)
class Measured:
    """Text of a row, and whether its goal holds."""

    text: str
    holds: bool


Run = Callable[[np.random.Generator, int], Measured]


@dataclass(frozen=True)
class Scenario:
    """A row of the table: `run(rng, n_runs)` measures it."""

    name: str
    goal: str
    run: Run


def scenarios() -> Iterator[Scenario]:
    """Return the rows in order."""
    yield from _delays()
    yield from _start()
    yield from _false_alarms()
    yield from _calibration()
    yield from _without_labels()


def _delays() -> Iterator[Scenario]:
    yield Scenario("T = 2.0 from day 30", "median ≤ 3 days, 99 % within 7", _tempered_by(2.0, (0.5, 3), (0.99, 7)))  # fmt: skip
    yield Scenario("T = 1.6 from day 30", "median ≤ 5, 95 % ≤ 10, 99 % ≤ 21", _tempered_by(1.6, (0.5, 5), (0.95, 10), (0.99, 21)))  # fmt: skip
    yield Scenario("T = 1.33 from day 30 of 120", "median ≤ 15, 90 % within 42", _tempered_by(1.33, (0.5, 15), (0.9, 42), n_days=120))  # fmt: skip
    yield Scenario("T = 1.6 from day 30, 50 a day", "median ≤ 21", _tempered_by(1.6, (0.5, 21), n_days=120, per_day=50))  # fmt: skip
    yield Scenario("accuracy −4.5 points, real scores", "19 of 20 within 12 days", _real_scores)
    yield Scenario("scores of 0 and 1, error .1 % → 88 %", "≤ 2 days", partial(_certain, 0.999, 0.12))  # fmt: skip
    yield Scenario("a tree, accuracy .65 → .32", "≤ 2 days", partial(_certain, 0.65, 0.32))


def _start() -> Iterator[Scenario]:
    yield Scenario(".96 → .71 on day 7, no reference", "99 of 100 within 3 sealed days", partial(_early, 0.71))  # fmt: skip
    yield Scenario(".96 → .91 on day 7 of 14", "not_armed", partial(_early, 0.91))
    yield Scenario("30 days of reference, T = 2.0 on the first live day", "95 % within 5 days", _tempered_by(2.0, (0.95, 5)))  # fmt: skip
    yield Scenario("the same, the reference as one block", "(reported)", _block)
    yield Scenario("an equal block, day effects .2, 60 days", "≤ stated rate (reported)", _equal_block)  # fmt: skip
    yield Scenario("wrong from the first day (ECE .3)", "off from the second day; changed ≤ stated rate in 60 days", _wrong)  # fmt: skip
    yield Scenario("fortnights × 30 unchanged models", "≤ stated rate + 2 errors", _fortnights)


def _false_alarms() -> Iterator[Scenario]:
    year = partial(_year, STATED)
    yield Scenario("a year, no effect", "≤ .100", year)
    yield Scenario("a year, 20 a day", "≤ .100", partial(year, per_day=20))
    yield Scenario("a year, prevalence 1 %", "≤ .100", partial(year, scores=normal_logits(1.0, -5.0)))  # fmt: skip
    yield Scenario("a year, prevalence 1 %, 20 a day", "≤ .100", partial(year, scores=normal_logits(1.0, -5.0), per_day=20))  # fmt: skip
    yield Scenario("a year, weekday effects", "≤ .100", partial(year, effects=lambda rng, n: weekly(n, YEAR)))  # fmt: skip
    yield Scenario("a year, clusters of 5 as units", "≤ .100", partial(year, copies=5))
    accepted = partial(_year, ACCEPTED)
    for sd in (0.1, 0.2, 0.4):
        effects = partial(_ar, sd=sd, correlation=0.8)
        yield Scenario(f"a year, AR(.8) day effects {sd}", "≤ .285", partial(accepted, effects=effects))  # fmt: skip
    yield Scenario("a year, independent day effects .4", "≤ .285", partial(accepted, effects=partial(_ar, sd=0.4)))  # fmt: skip
    yield Scenario("a year, sine .1", "≤ .285", partial(accepted, effects=partial(_sine, size=0.1)))
    yield Scenario("a year, sine .2 that scores do not follow", "changed is right", partial(_year, 1.0, effects=partial(_sine, size=0.2)))  # fmt: skip


def _calibration() -> Iterator[Scenario]:
    yield Scenario("calibrated, daily for a year", "ever off ≤ 5 %", partial(_ever_off, 0.0, 0.05))
    yield Scenario("exactly at the tolerance, daily for a year", "ever off ≤ 20 %", partial(_ever_off, 0.02, 0.2))  # fmt: skip
    yield Scenario("labels missing by class", "never good without bounds", partial(_selected, "class"))  # fmt: skip
    yield Scenario("coverage 40 % by score", "never good without bounds", partial(_selected, "score"))  # fmt: skip


def _without_labels() -> Iterator[Scenario]:
    yield Scenario("scores shift without labels (PSI ≥ .2)", "watch within 3 days", _shifted)
    yield Scenario("scores do not shift, a year", "≤ 1 false watch", partial(_unshifted, 0.0))
    yield Scenario("scores differ by weekday, a year", "≤ 1 false watch", partial(_unshifted, 0.5))


def _delay_text(days: NDArray[np.floating], goals: tuple[tuple[float, float], ...]) -> Measured:
    """Quantiles of delays in days from the first changed day, counting it; with Monte-Carlo errors of the shares."""
    n = len(days)
    early = float((days < 1).mean())
    late = days[days >= 1]
    at = [float(np.quantile(late, q, method="higher")) for q in (0.5, 0.95, 0.99, 1.0)]
    shares = [(limit, float((late <= limit).mean())) for _, limit in goals]
    numbers = " / ".join("—" if value > NEVER / 2 else f"{value:.0f}" for value in at)
    parts = [f"{share:.3f} ± {_error(share, n):.3f} ≤ {limit:.0f}" for limit, share in shares]
    text = f"median / 95 % / 99 % / longest {numbers}; {', '.join(parts)}; before {early:.3f}"
    holds = all(np.quantile(late, q) <= limit for q, limit in goals) and early <= 0.02
    return Measured(text, bool(holds))


def _error(share: float, n: int) -> float:
    return float(np.sqrt(max(share * (1.0 - share), 1.0 / n) / n))


def _rate_text(share: float, n: int, limit: float, more: str = "") -> Measured:
    error = _error(share, n)
    return Measured(f"{share:.4f} ± {error:.4f}{more}", share <= limit + 2.0 * error)


def _tempered_by(
    temperature: float, *goals: tuple[float, float], n_days: int = 60, per_day: int = 200
) -> Run:
    """Outcomes less extreme than the scores from day 30 on."""

    def run(rng: np.random.Generator, n_runs: int) -> Measured:
        days = simulate(rng, n_runs, n_days, tempered(temperature, 30), per_day=per_day)
        return _delay_text(first_change(days) - 29.0, goals)

    return run


def _real_scores(rng: np.random.Generator, n_runs: int) -> Measured:
    """A network on breast-cancer data of which the inputs get noise that costs 4.5 points of accuracy from day 30 on."""
    network, inputs, labels = _network()
    noise = [_noise_of(network, inputs, labels, accuracy) for accuracy in (0.957, 0.912)]
    sums = np.zeros((4, n_runs, 60, DRIFT_BINS))
    for day in range(60):
        rows = rng.integers(0, len(inputs), (n_runs, 200))
        seen = inputs[rows.ravel()]
        seen = seen + noise[day >= 30] * rng.normal(size=seen.shape)
        p = network.predict_proba(seen)[:, 1].reshape(rows.shape)
        sums[:, :, day] = tables(p, labels[rows].astype(np.float64), np.ones(rows.shape, bool))
    return _delay_text(first_change(Days(*sums)) - 29.0, ((0.95, 12),))


@lru_cache(maxsize=1)
def _network() -> tuple[MLPClassifier, Floats, Floats]:
    """Return a network with the standardised inputs and labels of the half that it has not seen."""
    inputs, labels = load_breast_cancer(return_X_y=True)
    seen, unseen, own, others = train_test_split(
        inputs, labels, test_size=0.5, random_state=0, stratify=labels
    )
    scaler = StandardScaler().fit(seen)
    network = MLPClassifier((32,), max_iter=300, alpha=1.0, random_state=0)
    return network.fit(scaler.transform(seen), own), scaler.transform(unseen), others


def _noise_of(network: MLPClassifier, inputs: Floats, labels: Floats, accuracy: float) -> float:
    """Return the standard deviation of the noise that lowers the accuracy to a value."""
    rng, many = np.random.default_rng(0), np.tile(inputs, (40, 1))
    noise, target = rng.normal(size=many.shape), np.tile(labels, 40)
    low, high = 0.0, 8.0
    for _ in range(20):
        middle = (low + high) / 2.0
        is_right = network.predict(many + middle * noise) == target
        low, high = (middle, high) if is_right.mean() > accuracy else (low, middle)
    return low


def _certain(before: float, after: float, rng: np.random.Generator, n_runs: int) -> Measured:
    """Scores of exactly 1 with an accuracy that changes on day 30."""
    rate = partial(_accuracy, before=before, after=after, at=30)
    days = simulate(rng, n_runs, 60, rate, lambda rng, shape, day: np.ones(shape))
    return _delay_text(first_change(days) - 29.0, ((0.99, 2),))


def _accuracy(p: Floats, day: int, before: float, after: float, at: int) -> Floats:
    return np.full(p.shape, after if day >= at else before)


def _confident(rng: np.random.Generator, shape: tuple[int, int], day: int) -> Floats:
    """Confidences of a good classifier of several classes, on average .94."""
    return np.asarray(expit(np.abs(rng.normal(3.9, 2.0, shape))))


def _early(accuracy: float, rng: np.random.Generator, n_runs: int) -> Measured:
    """A fortnight of a model without a reference: accuracy .96, other from day 7 on."""
    days = simulate(rng, n_runs, 14, partial(_less_accurate, accuracy=accuracy), _confident)
    delay = first_change(days.before(12)) - 6.0
    if accuracy < 0.8:
        return _delay_text(delay, ((0.99, 3),))
    changed = float((delay < 100).mean())
    n_armed = np.mean([armed_after(days, run, 7).armed_in == 0 for run in range(min(n_runs, 50))])
    points = armed_after(days, 0, 7).smallest().points
    could = "nothing" if points is None else f"{100 * points:.0f} points or more"
    text = f"changed {changed:.3f} ± {_error(changed, n_runs):.3f}, armed on day 7 {n_armed:.2f}; would show {could}"
    return Measured(text, bool(changed <= 0.05 and n_armed <= 0.05))


def _less_accurate(p: Floats, day: int, accuracy: float) -> Floats:
    """Outcomes .02 more frequent than the confidence before day 7; later fewer in proportion to 1.2 less the confidence."""
    right = np.minimum(p + 0.02, 1.0)
    if day < 7:
        return right
    room = 1.2 - right
    return np.asarray(np.clip(right - (right.mean() - accuracy) * room / room.mean(), 0.0, 1.0))


def _block(rng: np.random.Generator, n_runs: int) -> Measured:
    days = simulate(rng, n_runs, 60, tempered(2.0, 30))
    block = days.before(30).effects.total
    live = Days(*(each[:, 30:] for each in (*days.columns[:3], days.occupancy)))
    return _delay_text(first_change(live, block=block) + 1.0, ((0.95, 7),))


def _equal_block(rng: np.random.Generator, n_runs: int) -> Measured:
    days = simulate(rng, n_runs, 90, effects=autoregressive(rng, n_runs, 90, 0.2))
    live = Days(*(each[:, 30:] for each in (*days.columns[:3], days.occupancy)))
    alarmed = float((first_change(live, block=days.before(30).effects.total) < NEVER).mean())
    return _rate_text(alarmed, n_runs, 60.0 / RUN_LENGTH)


def _wrong(rng: np.random.Generator, n_runs: int) -> Measured:
    days = simulate(rng, n_runs, 60, lambda p, day: 0.35 + 0.3 * p, normal_logits(4.0))
    off, _ = calibration_words(days)
    changed = float((first_change(days) < NEVER).mean())
    second = float(off[:, 1].mean())
    text = f"off on day 2: {second:.3f}; changed {changed:.4f} ± {_error(changed, n_runs):.4f}"
    stated = 60.0 / RUN_LENGTH
    return Measured(text, second == 1.0 and changed <= stated + 2.0 * _error(stated, n_runs))


def _fortnights(rng: np.random.Generator, n_runs: int) -> Measured:
    """Models of 30 kinds: any sharpness, any lasting error."""
    alarms = 0
    for kind in range(30):
        scores = normal_logits(0.5 + 0.2 * kind, (-2.0, 0.0, 3.0)[kind % 3])
        error = (0.7, 1.0, 1.5, 3.0, 1.0)[kind % 5]
        alarms += int(
            (first_change(simulate(rng, n_runs, 14, tempered(error), scores)) < NEVER).sum()
        )
    n, stated = 30 * n_runs, 14.0 / RUN_LENGTH
    a_year = 30 * STATED
    return _rate_text(
        alarms / n, n, stated, f" (stated {stated:.4f}; 30 models: {a_year:.1f} a year)"
    )


def _ar(rng: np.random.Generator, n_runs: int, sd: float, correlation: float = 0.0) -> Floats:
    return autoregressive(rng, n_runs, YEAR, sd, correlation)


def _sine(rng: np.random.Generator, n_runs: int, size: float) -> Floats:
    return yearly_sine(rng, n_runs, YEAR, size)


def _year(
    limit: float,
    rng: np.random.Generator,
    n_runs: int,
    effects: Callable[[np.random.Generator, int], Floats] | None = None,
    **settings: Any,
) -> Measured:
    shifts = None if effects is None else effects(rng, n_runs)
    days = simulate(rng, n_runs, YEAR, effects=shifts, **settings)
    return _rate_text(float((first_change(days) < NEVER).mean()), n_runs, limit)


def _ever_off(gap: float, limit: float, rng: np.random.Generator, n_runs: int) -> Measured:
    """Outcomes nearer to one half than the scores by a gap that makes the error exactly the tolerance."""
    truth = lambda p, day: np.where(p > 0.5, p - gap, p + gap)  # noqa: E731
    days = simulate(rng, n_runs, YEAR, truth)
    off, good = calibration_words(days)
    shown = f"; good on {good[:, 28:].mean():.2f} of days from day 28"
    return _rate_text(float(off.any(axis=1).mean()), n_runs, limit, shown)


def _selected(kind: str, rng: np.random.Generator, n_runs: int) -> Measured:
    """Labels of positives missing more often, or labels of low scores missing, which leaves 40 %."""
    known = {
        "class": lambda rng, p, y: rng.random(p.shape) < np.where(y > 0, 0.85, 0.999),
        "score": lambda rng, p, y: rng.random(p.shape) < np.where(p > 0.5, 0.75, 0.05),
    }[kind]
    days = simulate(rng, n_runs, 60, known=known)
    _, good = calibration_words(days)
    runs = range(min(n_runs, 100))
    bare = [good[run, day] and not has_bounds(days, run, day) for run in runs for day in range(60)]
    return Measured(f"good without bounds {np.mean(bare):.4f} of days, good {good.mean():.2f}", not any(bare))  # fmt: skip


def _shifted(rng: np.random.Generator, n_runs: int) -> Measured:
    days = simulate(rng, n_runs, 45, scores=normal_logits(shift=1.0, at=30)).occupancy
    delay = np.full(n_runs, float(NEVER))
    for run in range(n_runs):
        delay[run] = next((day - 29 for day in range(20, 45) if _watches(days[run, : day + 1])), NEVER)  # fmt: skip
    return _delay_text(delay, ((0.95, 3),))


def _unshifted(by_weekday: float, rng: np.random.Generator, n_runs: int) -> Measured:
    scores = lambda rng, shape, day: expit(rng.normal(by_weekday * (day % 7 >= 5), 2.0, shape))  # noqa: E731
    n_runs = min(n_runs, 40)
    days = simulate(rng, n_runs, YEAR, scores=scores).occupancy
    times = [[_watches(days[run, : day + 1]) for day in range(YEAR)] for run in range(n_runs)]
    starts = float(np.mean([np.sum(np.diff(each, prepend=False) & each) for each in times]))
    return Measured(f"{starts:.3f} watches a year", starts <= 1.0)


def _watches(occupancy: Floats) -> bool:
    found = shift_of(occupancy, [day % 7 for day in range(len(occupancy))])
    return found is not None and found.is_shifted
