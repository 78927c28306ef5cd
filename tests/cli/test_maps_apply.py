"""`calibrant maps apply`: columns are those of the map's classes, whatever their order in the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import calibrant as cal
from tests.cli.command import Finished

Run = Callable[..., Finished]
RNG = np.random.default_rng(5)
NAMES = ["cat", "dog", "owl"]
P = RNG.dirichlet(np.ones(3), 400)
Y = np.array([RNG.choice(3, p=p) for p in P**1.5 / (P**1.5).sum(axis=1, keepdims=True)])
MAP = cal.fit_map(P, Y, method="platt")


@pytest.fixture
def map_file(tmp_path: Path) -> Path:
    path = tmp_path / "map.json"
    path.write_text(json.dumps(json.loads(MAP.to_json()) | {"classes": NAMES}))
    return path


def applied(run: Run, map_file: Path, columns: list[str], order: list[int]) -> Finished:
    scores = map_file.with_name("scores.csv")
    rows = [",".join(map(repr, row)) for row in P[:, order].tolist()]
    scores.write_text("\n".join([",".join(columns), *rows]))
    return run("maps", "apply", map_file, scores, "-o", map_file.with_name("p.npy"))


@pytest.mark.parametrize(
    ("columns", "order"),
    [
        (["cat", "dog", "owl"], [0, 1, 2]),
        (["owl", "cat", "dog"], [2, 0, 1]),
        (["p_dog", "p_owl", "p_cat"], [1, 2, 0]),
        (["p0", "p1", "p2"], [0, 1, 2]),
    ],
)
def test_columns_are_matched_with_the_classes(
    run: Run, map_file: Path, columns: list[str], order: list[int]
) -> None:
    done = applied(run, map_file, columns, order)
    assert done.code == 0, done.error
    np.testing.assert_allclose(np.load(map_file.with_name("p.npy")), MAP(P), atol=1e-15)


@pytest.mark.parametrize("columns", [["red", "green", "blue"], ["p1", "p2", "p3"]])
def test_columns_of_other_classes_are_refused(run: Run, map_file: Path, columns: list[str]) -> None:
    done = applied(run, map_file, columns, [0, 1, 2])
    assert (
        done.code == 1 and "expected those of the map's classes: 'cat', 'dog', 'owl'" in done.error
    )
