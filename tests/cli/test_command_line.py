"""The command itself: extras, help, version, shell completion."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from io import StringIO

import pytest
from rich.console import Console

from calibrant.cli import main
from calibrant.cli.model_commands import status_table
from tests.cli.command import Finished
from tests.waiting import PATIENCE_S

Run = Callable[..., Finished]


def test_help_lists_every_command(run: Run) -> None:
    found = run("--help")
    assert found.code == 0
    for command in ("score", "fill", "doctor", "push", "watch", "maps", "set", "serve", "keys"):
        assert f"\n  {command} " in found.out
    assert run("--version").out.strip() == version("calibrant")


def test_names_of_models_are_never_cut() -> None:
    names = [f"tumour-site-north-segmentation-mlp-v{i}" for i in range(3)]
    console = Console(width=80, record=True, file=StringIO())
    word = {"word": "no_recent_predictions"}
    rows = [{"model": name, "calibration": word, "change": word} for name in names]
    console.print(status_table(rows))
    lines = console.export_text().splitlines()
    assert [name for name in names if any(line.startswith(f"{name} ") for line in lines)] == names


def test_a_status_that_is_not_computed_and_one_that_is_not_watched_are_named() -> None:
    """A model whose status was being computed read "unknown unknown unknown", and one without a horizon "Undecided"."""
    console, word = Console(width=120, record=True, file=StringIO()), {"word": "unknown"}
    late = {"model": "late", "status": None, "calibration": None, "change": None}
    plain = {"model": "plain", "status": "insufficient_data", "calibration": word, "change": word}
    console.print(status_table([late, plain, plain | {"label_horizon": "P7D"}]))
    _, first, second, third = console.export_text().splitlines()
    assert "Being computed" in first and "unknown" not in first
    assert "Not watched" in second and "Undecided" in third and "unknown" in third


def test_a_good_model_of_few_labelled_predictions_is_named_as_such() -> None:
    console, word = Console(width=120, record=True, file=StringIO()), {"word": "good"}
    rows = [{"model": "all", "calibration": word}]
    rows.append({"model": "verified", "calibration": word | {"bounds": [0.003, 0.43]}})
    console.print(status_table(rows))
    _, every, verified = console.export_text().splitlines()
    assert "good among the labelled" in verified and "among" not in every


def test_commands_of_the_server_keep_their_own_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in (["serve", "--help"], ["keys", "create", "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        assert f"usage: calibrant {arguments[0]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [("typer", ["score", "x.npy"], "cli"), ("rich", ["--help"], "cli"), ("fastapi", ["serve"], "server")],
)  # fmt: skip
def test_a_missing_extra_is_named(missing: str, arguments: list[str], extra: str) -> None:
    """In a process of its own, where the package cannot be imported."""
    code = f"import sys; sys.modules[{missing!r}] = None; from calibrant.cli import main; main({arguments!r})"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert found.returncode == 1
    assert f"pip install 'calibrant[{extra}]'" in found.stderr
    assert f"(in a clone: pip install '.[{extra}]')" in found.stderr
    assert f"package {missing!r}" in found.stderr and "Traceback" not in found.stderr


def test_the_shell_completes_commands_and_options() -> None:
    completing = {
        "_CALIBRANT_COMPLETE": "complete_bash",
        "COMP_WORDS": "calibrant sc",
        "COMP_CWORD": "1",
    }
    found = subprocess.run(
        [sys.executable, "-c", "from calibrant.cli import main; main()"],
        env=os.environ | completing,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert found.stdout.split() == ["score"]
