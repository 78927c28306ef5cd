"""Rows of sections 1 and 2: intervals, their widths, differences, and null references of tables."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.guarantees.block import Block
from benchmarks.validation.checks import CHECKS as CHECKS
from benchmarks.validation.settings import CONFUSED, Setting, Units

ERRORS = ("ece", "rmsce", "ace")
SOME = ("ece", "ace")
MEANS = ("brier", "nll", "accuracy")
MUST = ("ece", "rmsce", *MEANS)


def blocks() -> tuple[Block, ...]:
    """Return the rows of these sections, in the order of the table."""
    return (*_intervals(), *_widths(), *_differences(), *_nulls())


def _intervals() -> Iterator[Block]:
    """Section 1: coverage of at least .93 where an interval is given."""
    section, promise = "1 Intervals", 0.93
    for i, (shape, curve, n, slugs) in enumerate(
        (
            ("u-shaped", "calibrated", 100, SOME),
            ("u-shaped", "calibrated", 300, (*ERRORS, *MEANS)),
            ("u-shaped", "slope .6", 300, (*ERRORS, "adaptive_ece", "nll")),
            ("u-shaped", "slope .8", 2000, ("ece",)),
            ("confident", "calibrated", 300, SOME),
            ("confident", "slope .6", 300, (*ERRORS, *MEANS)),
            ("confident", "slope .6", 2000, ("ece", "debiased_ece")),
            ("uniform", "slope .8", 1000, ("rmsce",)),
            # Errors in one bin only: the noise of the other bins raises the estimate, and is no error.
            ("uniform", "one bin off by .3", 300, ("ece",)),
            ("uniform", "one bin off by .3", 2000, SOME),
            ("uniform", "one bin off by .3", 10_000, ("ece",)),
            ("u-shaped", "top bin off by .1", 2000, ("ece",)),
        )
    ):
        must = MUST if n >= 300 else ()
        yield Block(
            section, "coverage", Setting(shape, curve, n), slugs, promise, 100 + i, must=must
        )
    corner = Setting("corner", "flat", 3000)
    yield Block(section, "coverage", corner, ("adaptive_ece",), promise, 120)
    for i, (shape, curve) in enumerate((("u-shaped", "calibrated"), ("confident", "slope .6"))):
        weighted = Setting(shape, curve, 2500, weights=1.5)
        slugs = (*ERRORS, "nll")
        yield Block(section, "coverage", weighted, slugs, promise, 130 + i, must=MUST)
        for j, units in enumerate(
            (Units(100, 10, 0.7, True), Units(40, 25, 0.2), Units(200, 5, 0.5))
        ):
            dependent = Setting(shape, curve, units=units)
            must = MUST if j == 2 else ()
            yield Block(
                section,
                "coverage",
                dependent,
                ("ece",) if j == 1 else ("ece", "brier"),
                promise,
                140 + 10 * i + j,
                must=must,
            )
    # Few samples decide these means: few errors, or few heavy weights.
    for i, (n, slugs) in enumerate(((300, ("accuracy",)), (1000, MEANS), (5000, ("nll",)))):
        yield Block(section, "coverage", Setting("accurate", n=n), slugs, promise, 170 + i)
    heavy = Setting("u-shaped", n=1500, weights=1.5)
    yield Block(section, "coverage", heavy, MEANS, promise, 173)
    for i, (curve, n) in enumerate((("calibrated", 300), ("slope .6", 300), ("slope .8", 2000))):
        several = Setting(curve=curve, n=n, n_classes=10)
        slugs = ("ece", "classwise_ece", "brier" if i == 1 else "nll")
        yield Block(section, "coverage", several, slugs, promise, 160 + i, must=MUST)
    confused = Setting(curve=CONFUSED, n=2000, n_classes=10)
    yield Block(section, "coverage", confused, ("ece", "classwise_ece"), promise, 163, must=MUST)


def _widths() -> Iterator[Block]:
    """Section 1: mean width of at most 1.3 times that of an oracle's interval."""
    slugs = ("ece", "rmsce")
    settings = (
        Setting("u-shaped", "calibrated", 300),
        Setting("confident", "slope .6", 300),
        Setting("u-shaped", "slope .8", 2000),
        Setting("u-shaped", "calibrated", 2500, weights=1.5),
        Setting("confident", "slope .6", units=Units(200, 5, 0.5)),
        Setting(curve="slope .6", n=300, n_classes=10),
    )
    for i, setting in enumerate(settings):
        some = ("ece", "classwise_ece") if setting.n_classes > 2 else slugs
        yield Block("1 Widths", "width", setting, some, 1.3, 200 + i, at_least=False, runs=250)


def _differences() -> Iterator[Block]:
    """Section 1: the same coverage of the difference of two windows."""
    slugs = ("ece", "nll")
    pairs = (
        (Setting("u-shaped", "slope .6", 300), Setting("u-shaped", "calibrated", 300)),
        (Setting("confident", "calibrated", 300), Setting("confident", "calibrated", 300)),
        (Setting("confident", "slope .6", 2000), Setting("confident", "slope .8", 2000)),
        (Setting(curve="slope .6", n=300, n_classes=10), Setting(n=300, n_classes=10)),
    )
    for i, pair in enumerate(pairs):
        yield Block("1 Differences", "difference", pair, slugs, 0.93, 300 + i)
    one_bin = tuple(Setting("uniform", "one bin off by .3", n) for n in (1000, 10_000))
    yield Block("1 Differences", "difference", one_bin, ("ece",), 0.93, 304)
    errors = (
        "rmsce",
        "adaptive_ece",
        "ks",
        "kuiper",
        "smooth_ece",
        "macro_ce",
        "corp_miscalibration",
        "calibration_loss",
    )
    against_none = tuple(Setting("confident", curve, 600) for curve in ("slope .6", "calibrated"))
    yield Block("1 Differences", "difference", against_none, errors, 0.93, 305)


def _nulls() -> Iterator[Block]:
    """Section 2: at most 7 % of calibrated models above `null_q95`, and power."""
    section, slugs = "2 Nulls", ("ece", "ace")
    for i, (shape, n) in enumerate((("u-shaped", 100), ("confident", 300), ("u-shaped", 2000))):
        yield Block(
            section,
            "above null",
            Setting(shape, n=n),
            (*slugs, "brier") if i == 1 else ("ece", "corp_miscalibration") if i == 2 else slugs,
            0.07,
            400 + i,
            at_least=False,
        )
    groups = (
        Units(40, 10, 0.1), Units(40, 25, 0.7), Units(40, 25, 0.7, True), Units(100, 10, 0.7, True),
        Units(100, 10, 0.7), Units(300, 5, 0.7, True),
    )  # fmt: skip
    for i, units in enumerate(groups):
        shape = ("u-shaped", "confident")[i % 2]
        some = slugs if i < 2 else ("ece",)
        yield Block(
            section, "above null", Setting(shape, units=units), some, 0.07, 410 + i, at_least=False
        )
    for i, (n_classes, n) in enumerate(((3, 1500), (10, 300))):
        several = Setting(n=n, n_classes=n_classes, scope="all")
        some = ("classwise_ece", "ece")
        yield Block(section, "above null", several, some, 0.07, 416 + i, at_least=False)
    for i, shape in enumerate(("beta", "u-shaped")):
        cases = Setting(shape, "slope .6", units=Units(40, 2000, 0.05))
        yield Block("2 Power", "above null", cases, ("ece",), 0.90, 420 + i, runs=300)
    yield Block(
        "2 Power", "above null", Setting("confident", "slope .6", units=Units(100, 10, 0.3)),
        ("ece",), 0.30, 430,
    )  # fmt: skip
    for i, (shape, n) in enumerate((("u-shaped", 100), ("confident", 300))):
        yield Block(
            "2 Contradictions", "contradiction", Setting(shape, n=n), ("ece",), 0.0,
            440 + i, at_least=False,
        )  # fmt: skip
