"""The formulas of docs/examples, run in the language that they are written in, against `apply`."""

from __future__ import annotations

import json
import math
import re
import runpy
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit, softmax

from calibrant.calibrators import MAPS, Options, apply, fit
from calibrant.core.batch import Batch
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View
from tests.waiting import PATIENCE_S

FORMULAS = Path(__file__).parents[2] / "docs" / "examples"
ONE_SCORE = [slug for slug, method in MAPS.items() if method.is_of_scores or slug == "temperature"]
ROWS = [slug for slug, method in MAPS.items() if not method.is_of_scores]
CLASSES = [slug for slug, method in MAPS.items() if method.is_of_scores]
CASES = [(slug, "positive") for slug in ONE_SCORE] + [(slug, "full") for slug in ROWS]


def statements() -> dict[tuple[str, str], str]:
    """Every SQL statement by method and scope; those that name no scope are of one score."""
    found = {}
    text = (FORMULAS / "map_formulas.sql").read_text()
    for head, code in re.findall(r"^-- ([a-z_, ]*)(?::.*)?\n((?:(?!--).+\n)+)", text, re.MULTILINE):
        names = [word.strip() for word in head.split(",")]
        scope = names.pop() if names[-1] in ("full", "positive") else "positive"
        found |= {(name, scope): code for name in names}
    return found


def fitted(method: str, scope: str, **options: Any) -> tuple[dict[str, Any], Batch]:
    """A fit as it comes over the wire, and rows to map: plain ones, 0, 1, bin edges, what clip holds."""
    rng = np.random.default_rng(7)
    if scope == "full":
        z = rng.normal(size=(400, 4)) * 3
        labels = (softmax(z / 2, axis=1).cumsum(axis=1) > rng.random((400, 1))).argmax(axis=1)
        batch = Batch.from_columns({"logits": z, "labels": labels}).batch
        rows = np.vstack(
            [batch.probabilities[:40], np.eye(4), [[0.5, 0.5, 0, 0], [1e-14, 1 - 1e-14, 0, 0]]]
        )
        there = Batch.from_columns({"probabilities": rows}).batch
    else:
        p = np.clip(
            np.where(rng.random(900) < 0.2, np.round(rng.random(900), 2), rng.beta(0.6, 0.6, 900)),
            1e-9,
            1,
        )
        labels = (rng.random(900) < expit(0.6 * logit(np.clip(p, 1e-9, 1 - 1e-9)))).astype(int)
        batch = Batch.from_columns({"confidences": p, "labels": labels}).batch
        edges = np.concatenate([p[:60], [0.0, 1.0, 1e-14, 1 - 1e-14], np.arange(16) / 15])
        there = Batch.from_columns({"confidences": edges}).batch
    pane = Pane(PaneSpec(batch.task, batch.n_classes))
    pane.fill_batch(batch)
    answer = fit(method, View(pane, PaneQuery()), Options(**options), evaluate=False)
    return json.loads(json.dumps(answer, allow_nan=False)), there


def by_python(document: dict[str, Any], inputs: list[Any]) -> list[Any]:
    formulas = runpy.run_path(str(FORMULAS / "map_formulas.py"))
    return [formulas["recalibrate"](document, each) for each in inputs]


def by_javascript(document: dict[str, Any], inputs: list[Any]) -> list[Any]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here")
    formulas = (FORMULAS / "map_formulas.js").read_text()
    script = f"{formulas}\nconsole.log(JSON.stringify({json.dumps(inputs)}.map((v) => recalibrate({json.dumps(document)}, v))));"
    done = subprocess.run(
        [node, "-"], input=script, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    return json.loads(done.stdout)


def by_sql(document: dict[str, Any], inputs: list[Any]) -> list[Any]:
    """In SQLite, which calls GREATEST and LEAST by other names; what leaves float64's range is an error, as in PostgreSQL."""
    parameters = document["parameters"]
    scope = "full" if document["scope"] == "full" else "positive"
    code = statements()[document["method"], scope]
    with closing(sqlite3.connect(":memory:")) as store:
        try:
            store.execute("SELECT LN(POWER(EXP(1), 2))")
        except sqlite3.OperationalError:
            pytest.skip("SQLite without mathematical functions")
        store.create_function("GREATEST", 2, max)
        store.create_function("LEAST", 2, min)
        store.create_function("EXP", 1, in_range(math.exp))
        store.create_function("POWER", 2, in_range(math.pow))
        tables(store, parameters)
        if isinstance(inputs[0], list):
            store.execute("CREATE TABLE predictions (id, class, p)")
            lines = [(i, k, p) for i, row in enumerate(inputs) for k, p in enumerate(row)]
            store.executemany("INSERT INTO predictions VALUES (?, ?, ?)", lines)
            found = {(i, k): p for i, k, p in store.execute(code, parameters_of(code, parameters))}
            return [[found[i, k] for k in range(len(row))] for i, row in enumerate(inputs)]
        store.execute("CREATE TABLE predictions (id, p)")
        store.executemany("INSERT INTO predictions VALUES (?, ?)", enumerate(inputs))
        found = dict(store.execute(code, parameters_of(code, parameters)).fetchall())
        return [found[i] for i in range(len(inputs))]


def in_range(function: Any) -> Any:
    def checked(*given: float) -> float:
        found = function(*given)
        if found == 0.0 and given[0] != 0.0:
            raise OverflowError("value out of range: underflow")
        return float(found)

    return checked


def parameters_of(code: str, parameters: dict[str, Any]) -> dict[str, float]:
    return {name: parameters[name] for name in re.findall(r":(\w+)", code)}


def tables(store: sqlite3.Connection, parameters: dict[str, Any]) -> None:
    """The parameters that are lists, as the heads of the blocks name their columns."""
    columns: dict[str, list[Any]] = {}
    if "x" in parameters:
        columns = {"x": parameters["x"], "y": parameters["y"]}
    elif "edges" in parameters:
        columns = {"upper": parameters["edges"][1:], "value": parameters["values"]}
    elif "slopes" in parameters:
        columns = {"slope": parameters["slopes"], "intercept": parameters["intercepts"]}
    elif "temperatures" in parameters:
        columns = {"temperature": parameters["temperatures"]}
    elif "matrix" in parameters:
        k = len(parameters["matrix"])
        columns = {"class": np.repeat(range(k), k).tolist(), "input": list(range(k)) * k}
        columns["weight"] = np.ravel(parameters["matrix"]).tolist()
        store.execute("CREATE TABLE map0 (class, intercept)")
        store.executemany("INSERT INTO map0 VALUES (?, ?)", enumerate(parameters["intercepts"]))
    if columns and "class" not in columns and not {"x", "upper"} & set(columns):
        columns["class"] = list(range(len(next(iter(columns.values())))))
    if columns:
        store.execute(f"CREATE TABLE map ({', '.join(columns)})")
        marks = ", ".join("?" * len(columns))
        store.executemany(f"INSERT INTO map VALUES ({marks})", zip(*columns.values(), strict=True))


RUN = {"python": by_python, "javascript": by_javascript, "sql": by_sql}


def test_every_map_is_written_in_every_language() -> None:
    assert set(statements()) == set(CASES)
    formulas = runpy.run_path(str(FORMULAS / "map_formulas.py"))
    listed = {(slug, "full") for slug in formulas["OF_ROWS"]}
    assert listed | {(slug, "positive") for slug in formulas["OF_SCORES"]} == set(CASES)


@pytest.mark.parametrize("language", RUN)
@pytest.mark.parametrize(("method", "scope"), CASES)
def test_the_written_formula_gives_what_apply_gives(language: str, method: str, scope: str) -> None:
    for options in ({}, {"centred": True}) if method == "isotonic" else ({},):
        answer, there = fitted(method, scope, **options)
        inputs = there.probabilities if scope == "full" else there.probabilities[:, 1]
        found = RUN[language](answer, inputs.tolist())
        assert np.abs(np.array(found) - apply(answer, there)).max() < 1e-12


@pytest.mark.parametrize("language", ["python", "javascript"])
@pytest.mark.parametrize("method", CLASSES)
def test_each_class_against_the_rest_gives_what_apply_gives(language: str, method: str) -> None:
    answer, there = fitted(method, "full")
    answer["parameters"]["classes"][2] = None
    found = np.array(RUN[language](answer, there.probabilities.tolist()))
    assert np.abs(found - apply(answer, there)).max() < 1e-12


@pytest.mark.parametrize("method", [slug for slug in ROWS if slug != "temperature"])
def test_of_a_binary_model_the_second_number_of_the_row_is_meant(method: str) -> None:
    answer, there = fitted(method, "positive")
    found = by_python({**answer, "scope": "full"}, there.probabilities.tolist())
    assert np.abs(np.array(found)[:, 1] - apply(answer, there)).max() < 1e-12


STEEP = [
    ("platt", "positive", {"slope": 726.0, "intercept": 3.0, "clip": 1e-12}),
    ("beta", "positive", {"a": 0.0, "b": 1452.0, "c": -1006.0, "clip": 1e-12}),
    ("temperature", "positive", {"temperature": 1 / 32}),
    ("temperature", "full", {"temperature": 1 / 32}),
    ("temperature", "full", {"temperature": 32.0}),
    ("class_temperature", "full", {"temperatures": [1 / 32, 1.0, 1 / 32], "clip": 1e-12}),
    (
        "vector",
        "full",
        {"slopes": [40.0, 1.0, 40.0], "intercepts": [1.0, -1.0, 0.0], "clip": 1e-12},
    ),
    (
        "dirichlet",
        "full",
        {"matrix": [[40, 0, 0], [0, 1, 0], [-9, 0, 9]], "intercepts": [0, 0, 0], "clip": 1e-12},
    ),
]


@pytest.mark.parametrize("language", RUN)
@pytest.mark.parametrize(("method", "scope", "steep"), STEEP)
def test_a_steep_map_leaves_no_range(
    language: str, method: str, scope: str, steep: dict[str, Any]
) -> None:
    """Scores far from where the labels change run into what an exponential cannot hold."""
    p = np.array([0.0, 1e-320, 1e-200, 1e-9, 0.1, 0.4999, 0.5001, 0.9, 1 - 2**-53, 1.0])
    columns = (
        {"confidences": p}
        if scope == "positive"
        else {"probabilities": np.stack([p, (1 - p) / 4, 0.75 * (1 - p)], axis=1)}
    )
    batch = Batch.from_columns(columns).batch
    fitted = {"method": method, "scope": scope, "class": None, "parameters": steep}
    inputs = batch.probabilities if scope == "full" else batch.probabilities[:, 1]
    found = RUN[language](fitted, inputs.tolist())
    assert np.abs(np.array(found) - apply(fitted, batch)).max() < 1e-12
