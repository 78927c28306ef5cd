"""Rows of every other metric that returns an interval or a null reference, at four sizes, with one rater, three raters and units.

One simulation serves all metrics of a setting. `skce` has no true value here: its interval describes a kernel of the run's own sample.
`rows_cases` has metrics over cases.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.guarantees.block import Block
from benchmarks.validation.checks import CHECKS as CHECKS
from benchmarks.validation.settings import Setting, Units

SIZES = (50, 150, 600, 3000)
GAPS = (
    "ece", "rmsce", "ace", "mce", "lp_ece", "debiased_ece", "adaptive_ece", "classwise_ece", "all_label_ece", "ece_sweep",
    "overconfidence_error", "kde_ece", "smooth_ece", "ks", "kuiper", "corp_miscalibration",
)  # fmt: skip
MEANS = ("accuracy", "brier", "nll", "auc", "macro_ce", "squared_loss")
PARTS = ("calibration_loss", "corp_discrimination", "corp_uncertainty")
INTERVALS = (*GAPS, *MEANS, *PARTS)
OF_RISKS = ("oe_ratio", "calibration_intercept", "calibration_slope", "net_benefit", "aurc")
OF_RARE_ERRORS = (
    *MEANS,
    *OF_RISKS,
    "corp_discrimination",
    "corp_uncertainty",
    "l2_ece_squared",
    "ece",
)
OF_RATERS = (
    "ece", "classwise_ece", "adaptive_ece", "ks", "brier", "nll", "dist_ce", "ent_ce", "rank_cs", "calibration_loss",
    "disagreement_ce", "disagreement_loss", "epistemic_loss", "irreducible_loss",
)  # fmt: skip
OF_UNITS = ("ece", "rmsce", "mce", "classwise_ece", "ks", "kde_ece", "brier", "accuracy", "auc")
TESTS = (
    "canonical_ce",
    "hosmer_lemeshow",
    "nixon_ace",
    "tace",
    "skce",
    "spiegelhalter_z",
    "uce",
    "zhang_kde_ece",
    "l2_ece_squared",
)
NULLS = (*GAPS, "accuracy", "brier", *TESTS)
NULLS_OF_RATERS = ("ece", "classwise_ece", "nixon_ace", "skce", "canonical_ce")
NULLS_OF_UNITS = ("ece", "rmsce", "mce", "classwise_ece", "brier", "accuracy")
RUNS = 3000


def blocks() -> tuple[Block, ...]:
    """Return the rows of the catalogue."""
    return (*_intervals(), *_nulls())


def _intervals() -> Iterator[Block]:
    section = "1 Intervals of every metric"
    for i, n in enumerate(SIZES):
        one = Setting("confident", "slope .6", n)
        yield Block(
            section, "coverage", one, (*INTERVALS, "l2_ece_squared"), 0.93, 500 + i, runs=RUNS
        )
        risks = Setting("beta", "slope .6", n)
        yield Block(section, "coverage", risks, OF_RISKS, 0.93, 560 + i, runs=RUNS)
        several = Setting(curve="slope .6", n=n, n_classes=3, raters=3)
        yield Block(section, "coverage", several, OF_RATERS, 0.93, 510 + i, runs=RUNS)
    for i, n in enumerate((600, 3000)):
        accurate = Setting("accurate", "slope .6", n)
        yield Block(section, "coverage", accurate, OF_RARE_ERRORS, 0.93, 590 + i, runs=RUNS)
    for i, n in enumerate((50, 150, 300)):
        units = Setting("confident", "slope .6", units=Units(n, 10, 0.6))
        yield Block(section, "coverage", units, OF_UNITS, 0.93, 520 + i, runs=RUNS)
        risks = Setting("beta", "slope .6", units=Units(n, 10, 0.6))
        yield Block(section, "coverage", risks, OF_RISKS, 0.93, 570 + i, runs=RUNS)


def _nulls() -> Iterator[Block]:
    section = "2 Nulls of every metric"
    for i, n in enumerate(SIZES):
        one = Setting("confident", n=n)
        yield Block(section, "above null", one, NULLS, 0.07, 530 + i, at_least=False, runs=RUNS)
        risks = Setting("beta", n=n)
        yield Block(
            section, "above null", risks, ("ici", "aurc"), 0.07, 580 + i, at_least=False, runs=RUNS
        )
        several = Setting(n=n, n_classes=3, raters=3)
        yield Block(
            section,
            "above null",
            several,
            NULLS_OF_RATERS,
            0.07,
            540 + i,
            at_least=False,
            runs=RUNS,
        )
    for i, n in enumerate((50, 150, 300)):
        units = Setting("confident", units=Units(n, 10, 0.6))
        yield Block(
            section, "above null", units, NULLS_OF_UNITS, 0.07, 550 + i, at_least=False, runs=RUNS
        )
