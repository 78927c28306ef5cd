"""Maps of all classes by a map of each class against the rest."""

from __future__ import annotations

import json

import numpy as np
import pytest

import calibrant as cal
from calibrant.calibrators import MAPS, fit
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import MAX_CLASS_TABLES
from calibrant.core.view import View
from tests.calibrant.map_rows import many_classes, pane_of

METHODS = [slug for slug, method in MAPS.items() if method.is_of_scores]


def rows(n: int = 1500, n_classes: int = 4, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities twice as sharp as the labels."""
    rng = np.random.default_rng(seed)
    z = 3.0 * rng.normal(size=(n, n_classes))
    power = np.exp(z - z.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True), (z / 2 + rng.gumbel(size=z.shape)).argmax(1)


def pooled(score: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    """The isotonic fit at each row, by pooling neighbours until none decreases."""
    blocks: list[list[float]] = []
    order = np.argsort(score, kind="stable")
    for value in outcome[order]:
        blocks.append([float(value), 1.0])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (a, m), (b, n) = blocks[-2:]
            blocks[-2:] = [[(a * m + b * n) / (m + n), m + n]]
    fitted = np.empty(len(score))
    fitted[order] = np.repeat([each[0] for each in blocks], [int(each[1]) for each in blocks])
    return fitted


def test_isotonic_is_the_fit_of_each_class_divided_by_their_sum() -> None:
    p, y = rows(600)
    naive = np.column_stack([pooled(p[:, k], y == k) for k in range(4)])
    total = naive.sum(axis=1, keepdims=True)
    naive = np.where(total > 0, naive / np.where(total > 0, total, 1.0), 0.25)
    assert np.abs(cal.fit_map(p, y, method="isotonic")(p) - naive).max() < 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_mapped_rows_can_be_scored(method: str) -> None:
    p, y = rows()
    fitted = cal.fit_map(p, y, method=method)
    mapped = fitted(p)
    assert fitted.scope == "full" and mapped.shape == p.shape
    assert np.abs(mapped.sum(axis=1) - 1.0).max() < 1e-12
    assert float(cal.ece(mapped, y)) < 0.4 * float(cal.ece(p, y))
    assert fitted.before is not None and fitted.after is not None and fitted.heldout is not None
    assert fitted.before["ece"] == pytest.approx(float(cal.ece(p, y)), abs=1e-12)
    # Scores within rounding of an edge of equal mass may change their bin.
    rounding = 1e-3 if method == "scaling_binning" else 1e-9
    assert fitted.after["ece"] == pytest.approx(float(cal.ece(mapped, y)), abs=rounding)
    assert fitted.heldout["after"]["brier"] < fitted.heldout["before"]["brier"]


@pytest.mark.parametrize("method", METHODS)
def test_the_map_of_the_top_label_is_there_by_its_name(method: str) -> None:
    p, y = rows()
    fitted = cal.fit_map(p, y, method=method, scope="top_label")
    assert fitted.scope == "top_label" and fitted(p).shape == (len(p),)


@pytest.mark.parametrize("method", METHODS)
def test_of_state_it_is_close_to_that_of_rows(method: str) -> None:
    p, y = rows(3000)
    by_rows = cal.fit_map(p, y, method=method)
    found = fit(method, View(Pane.fill(p, y), PaneQuery()))
    json.dumps(found, allow_nan=False)
    assert found["scope"] == "full" and found["heldout_reason"] is None
    mapped = type(by_rows).from_dict(found)(p)
    assert np.abs(mapped - by_rows(p)).mean() < (0.02 if method == "histogram" else 0.01)


def test_a_class_without_a_map_keeps_its_probability() -> None:
    p, y = rows()
    fitted = cal.fit_map(p, np.where(y == 2, 0, y), method="platt").to_dict()
    assert fitted["classes_as_sent"]["2"]["reason"] == "one_class"
    assert fitted["parameters"]["classes"][2] is None and "classes_as_sent" in fitted["warnings"]


def test_where_state_lacks_cells_of_the_classes_the_map_is_of_the_top_label() -> None:
    batch = many_classes(600, MAX_CLASS_TABLES + 1)
    found = fit("platt", View(pane_of(batch), PaneQuery()))
    assert found["scope"] == "top_label"
    assert found["fallback_of"]["scope"] == "full"
    assert found["fallback_of"]["reason"] == "class_not_kept"
    assert fit("platt", View(pane_of(batch), PaneQuery(), batch))["scope"] == "full"


def test_rows_whose_classes_are_all_mapped_to_zero_are_uniform() -> None:
    steps = {"edges": [0.0, 0.5, 1.0], "values": [0.0, 1.0]}
    document = {"method": "histogram", "scope": "full", "class": None, "parameters": {"classes": [steps] * 3}}  # fmt: skip
    mapped = cal.CalibrationMap.from_dict(document | {"digest": None, "n": 0})
    assert mapped([[0.4, 0.3, 0.3], [0.2, 0.2, 0.6]]).tolist() == [[1 / 3] * 3, [0.0, 0.0, 1.0]]
    with pytest.raises(CalibrationInputError, match="classes"):
        mapped([[0.1, 0.2, 0.3, 0.4]])


def test_the_curves_of_the_classes_are_drawn() -> None:
    pytest.importorskip("matplotlib")
    p, y = rows()
    axes = cal.fit_map(p, y, method="beta").plot()
    labels = [line.get_label() for line in axes.get_lines()]
    assert len([each for each in labels if str(each).startswith("class")]) == 4, labels
