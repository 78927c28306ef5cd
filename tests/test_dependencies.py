"""Every dependency has its reason, and every reason a dependency."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(requirements: list[Any]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", each)[0] for each in requirements if isinstance(each, str)}


def declared() -> dict[str, set[str]]:
    groups = PROJECT["dependency-groups"].values()
    return {
        "At run time": names(PROJECT["project"]["dependencies"]),
        "For demo, tests and checks": set().union(*(names(group) for group in groups)),
    }


@pytest.mark.parametrize("heading", declared())
def test_reasons_match_dependencies(heading: str) -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([a-z][^|]*) \|", section, re.MULTILINE)
    assert {name for row in rows for name in row.split(", ")} == declared()[heading]


@pytest.mark.parametrize("lock", ["run", "dev"])
def test_locks_hold_what_is_declared(lock: str) -> None:
    locked = set(
        re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / f"{lock}.txt").read_text(), re.M)
    )
    wanted = declared()["At run time"]
    if lock == "dev":
        groups = PROJECT["dependency-groups"]
        wanted = wanted.union(*(names(groups[name]) for name in ("demo", "test", "check")))
    assert wanted <= locked


def test_a_service_installs_nothing_for_tests() -> None:
    locked = (ROOT / "requirements" / "run.txt").read_text()
    assert "pytest" not in locked
    assert "scikit-learn" not in locked
