"""`scope="class:NAME"`: the class by its name, wherever its index is taken; a name that is a number is a name."""

from __future__ import annotations

import math

import numpy as np
import pytest

import calibrant as cal

RNG = np.random.default_rng(8)
P = RNG.dirichlet([1, 1, 1], 300)
Y = RNG.integers(0, 3, 300)
NAMES = ["cat", "Zürich / Nord", "0"]
OWN = {"labels": [NAMES[each] for each in Y], "classes": NAMES}


def ece_of(class_index: int) -> float:
    bins: dict[int, float] = {}
    for p, label in zip(P[:, class_index], Y, strict=True):
        place = max(math.ceil(p * 15), 1)
        bins[place] = bins.get(place, 0.0) + float(label == class_index) - p
    return sum(map(abs, bins.values())) / len(P)


@pytest.mark.parametrize("class_index", range(3))
def test_metrics_and_tables(class_index: int) -> None:
    scope, own = f"class:{NAMES[class_index]}", ece_of(class_index)
    assert cal.ece(P, **OWN, scope=scope).value == pytest.approx(own, abs=1e-12)
    assert cal.reliability(P, **OWN, scope=scope).ece == pytest.approx(own, abs=1e-12)
    found = cal.evaluate(P, metrics=f"brier,ece(scope={scope})", **OWN)
    assert found[f"ece(scope=class:{class_index})"].value == pytest.approx(own, abs=1e-12)
    other = P[:, [1, 2, 0]]
    compared = cal.compare(P, other, OWN["labels"], "ece", classes=NAMES, scope=scope)
    assert compared["ece"].first.value == pytest.approx(own, abs=1e-12)


def test_maps_curves_and_peers() -> None:
    by_name, by_index = (
        [
            cal.fit_map(P, labels, classes=names, scope=scope, method="platt").to_dict(),
            cal.decision_curve(P, labels, classes=names, scope=scope).to_dict(),
            cal.compat(P, labels, "netcal", classes=names, scope=scope),
        ]
        for labels, names, scope in (
            (OWN["labels"], NAMES, "class:cat"),
            (Y, None, "class:0"),
        )
    )
    assert by_name == by_index


@pytest.mark.parametrize("scope", ["class:cow", "class:7", "class:"])
def test_another_class_is_refused_with_the_names(scope: str) -> None:
    with pytest.raises(cal.CalibrationInputError, match="expected one of the model: cat"):
        cal.ece(P, **OWN, scope=scope)
