"""Readers of a manifest, one by one, against their voxels."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

import calibrant as cal
from calibrant.cli.imaging.region import automatic_region
from tests.cli.test_manifest import ABSENT, BAD, SPACING, Run, cases, voxels

__all__ = ["cases"]
NAMES = ["reader_1", "reader_2", "reader_3"]
Region = tuple[np.ndarray, dict[str, np.ndarray]]


def regions() -> dict[str, Region]:
    """Return the probabilities and the readers' masks in each region."""
    found = {}
    for i in range(1, 13):
        name = f"case-{i:02}"
        p, readers = voxels(i)
        readers = readers[:2] if name in ABSENT else readers
        inside = automatic_region(p, readers.sum(axis=0).astype(np.uint8), SPACING)
        marked = {NAMES[r]: mask[inside] for r, mask in enumerate(readers)}
        if name != BAD:
            found[name] = p[inside].astype(float), marked
    return found


def dice(one: np.ndarray, two: np.ndarray) -> float:
    return 2 * (one & two).sum() / (one.sum() + two.sum())


def test_each_reader_is_compared_with_the_others_and_the_model(
    cases: Path, run: Run, tmp_path: Path
) -> None:
    """The report of three readers had no line of a reader."""
    output, page = tmp_path / "numbers.json", tmp_path / "report.html"
    arguments = ("score", "--manifest", cases, "--roi", "auto", "--work", tmp_path / "work")
    assert run(*arguments, "-o", output).code == 0
    assert run(*arguments, "-o", page).code == 0
    by_name = {each["name"]: each for each in json.loads(output.read_text())["readers"]}
    assert list(by_name) == NAMES
    text = page.read_text()
    for name, found in by_name.items():
        mine = [(p, marked) for p, marked in regions().values() if name in marked]
        given = np.concatenate([marked[name] for _, marked in mine])
        assert found["n_ratings"] == len(given)
        error = cal.ece(np.concatenate([p for p, _ in mine]), given.astype(int)).value
        assert found["metrics"]["ece"]["value"] == pytest.approx(error, abs=1e-9)
        overlap = np.mean([dice(p >= 0.5, marked[name]) for p, marked in mine])
        assert found["metrics"]["dice"]["value"] == pytest.approx(overlap, abs=1e-9)
        equal = [
            marked[name] == other
            for _, marked in mine
            for each, other in marked.items()
            if each != name
        ]
        assert found["agreement"] == pytest.approx(np.concatenate(equal).mean(), abs=1e-12)
        assert f">{name}<" in text and "Reader by reader: Dice" in text
    for one, two in combinations(NAMES, 2):
        both = [each for _, each in regions().values() if one in each and two in each]
        overlap = np.mean([dice(each[one], each[two]) for each in both])
        kappa = cohen_kappa_score(
            *(np.concatenate([each[name] for each in both]) for name in (one, two))
        )
        for a, b in ((one, two), (two, one)):
            assert by_name[a]["dice"][b] == pytest.approx(overlap, abs=1e-12)
            assert by_name[a]["kappa"][b] == pytest.approx(kappa, abs=1e-12)
