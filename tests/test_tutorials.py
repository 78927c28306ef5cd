"""The tutorials, from an empty folder: every command is run, every file is made, every output is compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.deployment import Deployment
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
BLOCK = re.compile(
    r'^```(sh|python|text)(?: title="([\w.]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL
)
INSTALL = re.compile(
    r"(?:mkdir -p \w+ && cd \w+\n)?python3 -m venv \.venv && \. \.venv/bin/activate\npip install '\.\./calibrant\[([\w,]+)\]'\n"
)
SERVICE = "127.0.0.1:8000"
NUMBER = r"(?<![\w.])\d[\d,]*(?:\.\d+)?"
# What differs from run to run, or from machine to machine.
VARIES = (
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\d{1,2} [A-Z][a-z]{2} \d{4}", "DATE"),
    (r"in \d+\.\d s, peak memory \d+\.\d+ GB", "in TIME, peak memory SIZE"),
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(page.read_text())]


def comparable(output: str) -> tuple[str, list[float]]:
    """Return the text without numbers, and the numbers."""
    for pattern, word in VARIES:
        output = re.sub(pattern, word, output)
    numbers = [float(each.replace(",", "")) for each in re.findall(NUMBER, output)]
    words = re.sub(NUMBER, "#", output)
    # The width of a column follows its numbers.
    return re.sub(r"\s+", " ", words).strip(), numbers


def walk(page: Path, folder: Path, port: int | None = None) -> list[tuple[str, str]]:
    """Do what the page says, and return what it shows and what was printed."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CALIBRANT_URL": f"http://127.0.0.1:{port}",
    }
    printed, compared = "", []
    installed, *steps = blocks(page)
    assert INSTALL.fullmatch(installed.text)
    for step in steps:
        text = step.text.replace(SERVICE, f"127.0.0.1:{port}") if port else step.text
        text = text.replace("../calibrant/", f"{ROOT}/")
        if step.language == "text":
            compared.append((text, printed))
        elif step.language == "python":
            assert f"`{step.title}`:\n\n```python" in page.read_text(), "the page names the file"
            (folder / step.title).write_text(text)
        elif text == "calibrant serve\n":
            assert port, "the test starts the service"
        else:
            done = subprocess.run(
                ["bash", "-ec", text], cwd=folder, env=environment, capture_output=True, text=True,
                timeout=5 * PATIENCE_S,
            )  # fmt: skip
            assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
            printed = done.stdout
    return compared


def expect_as_shown(compared: list[tuple[str, str]], tolerance: float) -> None:
    assert compared
    for shown, printed in compared:
        words, numbers = comparable(shown)
        found_words, found_numbers = comparable(printed)
        assert found_words == words, printed
        assert found_numbers == pytest.approx(numbers, rel=tolerance, abs=tolerance), printed


@pytest.mark.parametrize("name", ["researcher", "hospital"])
def test_a_tutorial_without_a_service_runs_as_shown(name: str, tmp_path: Path) -> None:
    compared = walk(FOLDER / f"{name}.md", tmp_path)
    # The last bit of a recalibrated probability differs between processors, and with it the resampled interval.
    of_a_map = [pair for pair in compared if "Temperature(" in pair[0]]
    expect_as_shown([pair for pair in compared if pair not in of_a_map], 1e-9)
    if name == "researcher":
        expect_as_shown(of_a_map, 0.01)
    report = (tmp_path / "report.html").read_text()
    assert report.count("data:image/svg+xml") >= 2


def test_the_tutorial_of_a_service_runs_as_shown(tmp_path: Path) -> None:
    """Resampled numbers depend on the days of the data; cohorts are sealed each second, not each minute."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with Deployment(tmp_path, CALIBRANT_HOUSEKEEPING="1") as deployment:
        compared = walk(FOLDER / "platform.md", folder, deployment.port)
    expect_as_shown(compared, 0.02)


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_each_tutorial_installs_known_extras(page: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    found = INSTALL.search(page.read_text())
    assert found and set(found[1].split(",")) <= set(extras)
    assert f"pip install 'calibrant[{found[1]}]'" in page.read_text()
