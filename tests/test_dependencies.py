"""Every dependency has its reason, and every reason a dependency."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "assurance.md").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]


def names(requirements: list[Any]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", each)[0] for each in requirements if isinstance(each, str)}


LIBRARY = names(PROJECT["project"]["dependencies"])
SERVER = LIBRARY | names(EXTRAS["server"])
DEVELOPMENT = set().union(*(names(group) for group in PROJECT["dependency-groups"].values()))


def rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"### {heading}\n")[1].split("\n### ")[0]
    found = re.findall(r"^\| ([a-z].*) \|$", section, re.MULTILINE)
    return [row.split(" | ") for row in found]


@pytest.mark.parametrize(
    ("heading", "declared"),
    [("Library", LIBRARY), ("Demo, tests and checks", DEVELOPMENT)],
)
def test_reasons_match_dependencies(heading: str, declared: set[str]) -> None:
    assert {name for row in rows(heading) for name in row[0].split(", ")} == declared


def test_reasons_match_extras() -> None:
    declared = {(extra, name) for extra, needs in EXTRAS.items() for name in names(needs)}
    given = {(extra, row[0]) for row in rows("Extras") for extra in row[1].split(", ")}
    assert given == declared


def test_the_library_needs_three_packages() -> None:
    assert {"numpy", "scipy", "zstandard"} == LIBRARY


def test_the_client_needs_at_most_five_more() -> None:
    assert len(names(EXTRAS["client"]) - LIBRARY) <= 5


@pytest.mark.parametrize("lock", ["run", "dev"])
def test_locks_hold_what_is_declared(lock: str) -> None:
    locked = set(
        re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / f"{lock}.txt").read_text(), re.M)
    )
    wanted = SERVER
    if lock == "dev":
        groups = PROJECT["dependency-groups"]
        wanted = wanted.union(*(names(groups[name]) for name in ("demo", "test", "check")))
        wanted = wanted.union(*(names(EXTRAS[name]) for name in ("plot", "arrow", "ipc", "client")))
    assert wanted <= locked


def test_a_service_installs_nothing_for_tests() -> None:
    locked = (ROOT / "requirements" / "run.txt").read_text()
    assert "pytest" not in locked
    assert "scikit-learn" not in locked
