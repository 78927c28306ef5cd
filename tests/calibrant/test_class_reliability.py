"""The reliability diagrams of all classes in one figure."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal
from calibrant.core.errors import CalibrationInputError

pytest.importorskip("matplotlib", reason="figures need matplotlib")

from calibrant.figures.reliability import draw_class_reliability


def tables(n_classes: int) -> list[cal.ReliabilityTable]:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(n_classes), 500)
    labels = (p.cumsum(axis=1) > rng.random((500, 1))).argmax(axis=1)
    return [cal.reliability(p, labels, scope=f"class:{k}") for k in range(n_classes)]


def test_each_class_has_a_panel_with_its_points() -> None:
    given = tables(5)
    figure = draw_class_reliability(given, classes=list("abcde"))
    panels = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title()[-1] for axes in panels] == list("abcde")
    for axes, table in zip(panels, given, strict=True):
        drawn = np.concatenate([np.asarray(each.get_offsets()) for each in axes.collections[-2:]])
        filled = ~np.isnan(table.bin_confidence)
        assert set(np.round(drawn[:, 0], 9)) == set(np.round(table.bin_confidence[filled], 9))


def test_too_many_panels_are_refused() -> None:
    with pytest.raises(CalibrationInputError, match="expected 1 to 36"):
        draw_class_reliability([])


def test_labels_have_their_names() -> None:
    given = {"car": tables(2)[1], "a$b$ / ü": tables(2)[0].to_dict()}
    figure = draw_class_reliability(given)
    assert [axes.get_title() for axes in figure.axes] == list(given)
