"""Every option of every calibration map changes the map, or is refused by name."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import calibrant as cal
from calibrant.calibrators import MAPS, Options, apply, fit
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.core.view import View
from tests.calibrant.map_rows import binary, many_classes, pane_of, scores_and_labels

# Another value of each option than its default. The temperature to which maps shrink is computed, never given by a caller.
OTHER = {
    "bins": 6,
    "binning": "equal_mass",
    "centred": True,
    "regularisation": 10.0,
    "knots": 9,
    "shrunk": False,
}
GIVEN = [each.name for each in fields(Options) if each.name != "temperature"]


def _arguments(method):
    if "top_label" in MAPS[method].scopes:
        return scores_and_labels(2000, slope=0.95, intercept=0.02)
    batch = many_classes(1500, 3, raters=1)
    return batch.probabilities, batch.ratings.class_index


@pytest.mark.parametrize("option", GIVEN)
@pytest.mark.parametrize("method", list(MAPS))
def test_an_option_changes_the_map_or_is_refused(method, option):
    rows, labels = _arguments(method)
    if option not in MAPS[method].options:
        with pytest.raises(CalibrationInputError) as caught:
            cal.fit_map(rows, labels, method=method, **{option: OTHER[option]})
        assert f"/{option}" in {each.pointer for each in caught.value.violations}
        return
    plain, other = (
        cal.fit_map(rows, labels, method=method, **given).to_dict()
        for given in ({}, {option: OTHER[option]})
    )
    assert plain["parameters"] and plain["parameters"] != other["parameters"]
    assert other["options"][option] == OTHER[option]


@pytest.mark.parametrize("bins", [1, 5, 10, 15, 20, 60])
@pytest.mark.parametrize("raw", [False, True])
def test_histogram_binning_has_the_bins_that_it_names(bins, raw):
    p, y = scores_and_labels(3000)
    batch = binary(p, y)
    view = View(pane_of(batch), PaneQuery(), batch if raw else None)
    fitted = fit("histogram", view, Options(bins=bins))
    place = np.clip(np.ceil(p * bins).astype(int) - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    rate = np.bincount(place, y, bins) / np.maximum(counts, 1)
    wanted = np.where(counts > 0, rate, (np.arange(bins) + 0.5) / bins)
    assert fitted["n_bins"] == fitted["options"]["bins"] == bins
    np.testing.assert_allclose(fitted["parameters"]["values"], wanted, atol=1e-12)
    np.testing.assert_allclose(apply(fitted, batch), wanted[place], atol=1e-12)


def test_bins_that_the_grid_cannot_give_are_refused():
    view = View(pane_of(binary(*scores_and_labels(200))), PaneQuery())
    with pytest.raises(CalibrationInputError, match="cannot give 7 equal-width bins"):
        fit("histogram", view, Options(bins=7))
