"""Reduced form of the guarantees: few runs of each promise, and a limit that a correct installation would miss in less than 1 of 100 random seeds.

Seeds are fixed: the same version gives the same counts, up to rounding of the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.validation.checks import (
    Counts,
    above_null,
    contradiction,
    coverage,
    difference_coverage,
    width,
)
from benchmarks.validation.settings import Setting, Units

SEED = 5
_DEPENDENT = Units(100, 10, 0.7, one_score=True)
# Fresh samples of the oracle, whose table of 2,000 would take most of the time.
_N_FRESH = 200


@dataclass(frozen=True)
class Promise:
    """One promise in one setting.

    Attributes
    ----------
    name : what is promised, in words
    setting : in words
    limit : of the measured number
    at_least : whether `limit` is a lower limit
    simulate : counts of a number of runs
    measure : the number, from the counts
    runs : how many
    """

    name: str
    setting: str
    limit: float
    at_least: bool
    simulate: Callable[[range], Counts]
    measure: Callable[[Counts], float]
    runs: int


@dataclass(frozen=True)
class PromiseOutcome:
    """The measured number of a promise, and whether it is within its limit."""

    promise: Promise
    measured: float

    @property
    def holds(self) -> bool:
        """Whether the number is within the limit; nan is not."""
        limit = self.promise.limit
        return self.measured >= limit if self.promise.at_least else self.measured <= limit


def outcome(promise: Promise) -> PromiseOutcome:
    """Simulate a promise."""
    counts = promise.simulate(range(promise.runs))
    return PromiseOutcome(promise, float(promise.measure(counts)))


def _share(slug: str, of: str = "given") -> Callable[[Counts], float]:
    """Return the share of the runs with an interval (or a null) in which it held; nan without any."""

    def share(counts: Counts) -> float:
        n = counts.get(f"{slug}/{of}", 0.0)
        return counts[f"{slug}/held"] / n if n else float("nan")

    return share


def _coverage(slug: str, setting: Setting, runs: int, limit: float) -> Promise:
    def measure(counts: Counts) -> float:
        """Return the covered share; nan if fewer than nine in ten runs have an interval."""
        given = counts.get(f"{slug}/given", 0.0)
        return counts[f"{slug}/held"] / given if given >= 0.9 * runs else float("nan")

    return Promise(
        f"95 % intervals of {slug} contain the true error", setting.text, limit, True,
        lambda some: coverage(setting, (slug,), SEED, some), measure, runs,
    )  # fmt: skip


def _contradiction(slug: str, setting: Setting) -> Promise:
    return Promise(
        f"no interval of {slug} excludes 0 where the null reference explains the value",
        setting.text, 0.0, False,
        lambda some: contradiction(setting, (slug,), SEED, some), _share(slug), 60,
    )  # fmt: skip


def _promises() -> tuple[Promise, ...]:
    overconfident = Setting(curve="slope .6", n_classes=10)
    pair = (overconfident, Setting(n_classes=10))
    small, wide = Setting("beta", n=100), Setting("beta", n=300)
    wrong = Setting("beta", "slope .6", units=Units(40, 500, 0.05))
    right = Setting("beta", units=Units(40, 25, 0.7))
    return (
        # In brackets the share of the first version. With a true share of .95, each limit is missed with a chance below 1 in 1,000.
        _coverage("ece", small, 100, 0.86),  # (.75)
        _coverage("ace", small, 100, 0.86),  # (.50)
        _coverage("classwise_ece", Setting(n=300, n_classes=10), 40, 0.80),  # (.39)
        _coverage("ece", Setting("beta", n=900, weights=1.5), 100, 0.86),  # (.60 at n = 500)
        _coverage("ece", Setting("beta", units=_DEPENDENT), 100, 0.86),  # (.81)
        _coverage("adaptive_ece", Setting("corner", "flat", 3000), 40, 0.80),  # (0)
        # Where the truth was placed along all observed gaps only: .57.
        _coverage("ece", Setting("uniform", "one bin off by .3", 2000), 60, 0.83),
        Promise(
            "95 % intervals of a difference of ece contain the true difference",
            " minus ".join(each.text for each in pair), 0.83, True,
            lambda some: difference_coverage(pair, ("ece",), SEED, some), _share("ece", "runs"), 60,
        ),  # (.82)
        *(_contradiction(slug, small) for slug in ("ece", "rmsce")),  # (.19)
        Promise(
            "a miscalibrated segmentation model is above its null reference",
            wrong.text, 1.0, True,
            lambda some: above_null(wrong, ("ece",), SEED, some), _share("ece"), 8,
        ),  # (0)
        # 7 % are promised; ten of sixty have a chance of 1 in 120.
        Promise(
            "a calibrated segmentation model is rarely above its null reference",
            right.text, 0.15, False,
            lambda some: above_null(right, ("ece",), SEED, some), _share("ece"), 60,
        ),
        Promise(
            "intervals of ece are hardly wider than those of an oracle",
            wide.text, 1.3, False,
            lambda some: width(wide, ("ece",), SEED, some, _N_FRESH),
            lambda counts: counts["ece/width"] / counts["ece/oracle"], 20,
        ),
    )  # fmt: skip


PROMISES = _promises()
