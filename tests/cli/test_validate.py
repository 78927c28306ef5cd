"""`calibrant validate`: its checks find faults, and its page cannot be changed unnoticed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from calibrant.cli import validate
from calibrant.cli.site_validation import installation, operation
from calibrant.cli.site_validation.operation import KNOWN, KNOWN_TEMPERATURE, known_rows
from calibrant.cli.site_validation.results import FAIL, INFORMATION, PASS
from calibrant.validation import PROMISES
from tests.cli.command import Finished, runner

Run = Callable[..., Finished]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command with one promise: `tests/calibrant/test_guarantees.py` runs all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(operation, "PROMISES", PROMISES[-2:-1])
    (tmp_path / "key").write_text("k" * 32 + "\n")
    (tmp_path / "other").write_text("o" * 32)
    return runner(capsys)


def test_known_answers_are_those_of_plain_loops() -> None:
    probabilities, labels = known_rows()
    rows = list(zip(probabilities.tolist(), labels.tolist(), strict=True))
    bins = [[0.0, 0.0] for _ in range(15)]
    found = dict.fromkeys(KNOWN, 0.0)
    for row, label in rows:
        confidence = max(row)
        place = bins[max(math.ceil(confidence * 15) - 1, 0)]
        place[0] += confidence
        place[1] += row[label] == confidence
        found["brier"] += sum((p - (k == label)) ** 2 for k, p in enumerate(row))
        found["nll"] -= math.log(row[label])
        found["accuracy"] += row[label] == confidence
    found["ece"] = sum(abs(confidence - correct) for confidence, correct in bins)
    assert {name: value / len(rows) for name, value in found.items()} == pytest.approx(
        KNOWN, abs=1e-12
    )
    slope = 0.0
    for row, label in rows:
        tempered = [p ** (1 / KNOWN_TEMPERATURE) for p in row]
        mean = sum(t * math.log(p) for t, p in zip(tempered, row, strict=True)) / sum(tempered)
        slope += mean - math.log(row[label])
    # The derivative of the loss in 1/T, which is zero at the optimum; its own derivative is above 1 here.
    assert abs(slope / len(rows)) < 1e-6


def test_the_page_is_signed_and_verified(run: Run, tmp_path: Path) -> None:
    found = run("validate", "--signer", "Ann <Lee>", "--role", "physicist", "--key-file", "key")
    assert found.code == 0, found.out
    assert "files unchanged" in found.out and "Wrote validation.html" in found.out
    text = (tmp_path / "validation.html").read_text()
    assert (
        "Ann &lt;Lee&gt;" in text and "Passed: " in text and "does not prove which person" in text
    )
    content = json.loads((tmp_path / "validation.json").read_text())["content"]
    verdicts = {each["verdict"] for each in content["results"]}
    assert verdicts == {PASS, INFORMATION} and content["verdict"] == PASS
    assert {each["part"] for each in content["results"]} == {
        "installation",
        "operation",
        "performance",
    }
    for name in ("validation.html", "validation.json"):
        verified = run("validate", "--verify", name, "--key-file", "key")
        assert verified.code == 0 and "signed with this key" in verified.out
        assert "was not checked" in run("validate", "--verify", name).out
        wrong = run("validate", "--verify", name, "--key-file", "other")
        assert wrong.code == 1 and "not that of this key" in wrong.error


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("<td>physicist</td>", "<td>physician</td>", "does not show its contents"),
        ('"role": "physicist"', '"role": "physician"', "they were changed"),
    ],
)
def test_a_changed_page_is_found(
    run: Run, tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert run("validate", "--role", "physicist", "--key-file", "key").code == 0
    page = tmp_path / "validation.html"
    assert old in page.read_text()
    page.write_text(page.read_text().replace(old, new))
    found = run("validate", "--verify", page, "--key-file", "key")
    assert found.code == 1 and expected in found.error


def test_a_failed_check_ends_with_code_1(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(operation, "PROMISES", (replace(PROMISES[-2], limit=-1.0),))
    monkeypatch.setitem(KNOWN, "ece", KNOWN["ece"] + 1e-6)
    found = run("validate")
    assert found.code == 1
    results = json.loads((tmp_path / "validation.json").read_text())["content"]["results"]
    failed = [each["check"] for each in results if each["verdict"] == FAIL]
    assert len(failed) == 3 and all("ece" in each or "segmentation" in each for each in failed)
    assert "Failed: " in (tmp_path / "validation.html").read_text()


def test_a_changed_file_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = installation.digest
    monkeypatch.setattr(
        installation, "digest",
        lambda path, method: "changed" if path.name == "zstandard.pyi" or path.name == "__init__.pyi" else real(path, method),
    )  # fmt: skip
    found = {each.check: each for each in installation.installation_results(Path())}
    assert found["files of zstandard"].verdict == FAIL
    assert "missing or changed, such as" in found["files of zstandard"].measured


def test_keys_and_files_that_cannot_be_used_are_sentences(run: Run, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("secret")
    found = run("validate", "--key-file", "short")
    assert found.code == 1 and "expected at least 32" in found.error and "secret" not in found.error
    assert "cannot be read" in run("validate", "--key-file", "absent").error
    (tmp_path / "text.json").write_text("{}")
    assert "is no page or JSON" in run("validate", "--verify", "text.json").error
    assert not (tmp_path / "validation.html").exists()
    assert validate.FORMAT == 1
