"""Every parameter of a read that fits changes its result, or is refused with 422."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.calibrators import MAPS
from calibrant.core.errors import CalibrationInputError
from calibrant.results.calibration_map import calibration_map as fitted_map
from calibrant.results.temperature import temperature as fitted_temperature
from calibrant_server.workers.queries.kind import Inputs, kind_of
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import Window

CONFIG = ModelConfig("t", "m", "multiclass", 3, generation="g1", revision=1)
N, PATIENTS = 2000, 1600
# Other values than the defaults.
OF_MAPS = {
    "raters": "majority",
    "bins": 6,
    "binning": "equal_mass",
    "ci": 0.8,
    "class": "1",
    "weights": "unit",
    "include": "recommendation",
}
OF_TEMPERATURES = {
    "raters": "majority",
    "bins": 6,
    "min_count": 300.0,
    "ci": 0.8,
    "weights": "unit",
    "include": "curve",
}


@pytest.fixture(scope="module")
def inputs():
    """Three raters of predictions of patients of unequal sizes."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=(N, 3)) * 2
    chance = np.exp(true) / np.exp(true).sum(axis=1, keepdims=True)
    chosen = (chance.cumsum(axis=1)[:, None] < rng.random((N, 3, 1))).sum(axis=2).clip(0, 2)
    units = [f"u{int(PATIENTS * u**2)}" for u in rng.random(N)]
    columns = {"logits": true * 1.3 + [0.2, 0, 0], "labels": chosen.tolist(), "units": units}
    pane = Pane(CONFIG.spec())
    pane.fill_batch(Batch.from_columns(columns | {"ids": [f"i{i}" for i in range(N)]}).batch)
    return Inputs(CONFIG, Window(0, 10**9), merged=pane)


def _computed(kind, query, inputs, **given):
    asked = query.model_validate(given).resolved(CONFIG)
    return json.dumps(kind.compute(asked, inputs), sort_keys=True)


calibration_map, temperature = kind_of(fitted_map), kind_of(fitted_temperature)


def _fields(query):
    return {field.alias or name for name, field in query.model_fields.items()}


def _is_taken(method, name):
    if name == "class":
        return "class" in MAPS[method].scopes
    return name not in ("bins", "binning") or name in MAPS[method].options


def test_every_parameter_is_tried():
    assert _fields(calibration_map.query) == {"method", *OF_MAPS}
    assert _fields(temperature.query) == {"objective", *OF_TEMPERATURES}


@pytest.mark.parametrize("name", list(OF_MAPS))
@pytest.mark.parametrize("method", list(MAPS))
def test_a_parameter_of_a_map_changes_it_or_is_refused(inputs, method, name):
    kind, query = calibration_map, calibration_map.query
    shared = {"method": method, "include": "heldout"}
    plain = _computed(kind, query, inputs, **shared)
    other = shared | {name: OF_MAPS[name]}
    if _is_taken(method, name):
        assert plain != _computed(kind, query, inputs, **other)
        return
    with pytest.raises(CalibrationInputError) as caught:
        _computed(kind, query, inputs, **other)
    assert {each.pointer for each in caught.value.violations} == {f"/{name}"}


@pytest.mark.parametrize("name", list(OF_TEMPERATURES))
@pytest.mark.parametrize("objective", ["nll", "brier", "ece"])
def test_a_parameter_of_a_temperature_changes_it(inputs, objective, name):
    kind, query = temperature, temperature.query
    plain = _computed(kind, query, inputs, objective=objective)
    given = {"objective": objective, name: OF_TEMPERATURES[name]}
    assert plain != _computed(kind, query, inputs, **given)


def test_bins_that_the_grid_cannot_give_are_refused_before_the_window_is_read():
    asked = calibration_map.query(method="histogram", bins=7)
    with pytest.raises(CalibrationInputError, match="cannot give 7 equal-width bins"):
        asked.resolved(CONFIG)
