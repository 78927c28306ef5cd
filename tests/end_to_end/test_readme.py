"""The README's commands, run as they stand, answer as the README shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE_S

README = (Path(__file__).parents[2] / "README.md").read_text()
SHOWN = re.findall(r"```sh\n(curl .*?)```\n```json\n(.*?)```", README, re.DOTALL)
OF_THE_MOMENT = {"window", "state_version"}


def compare(shown: Any, found: Any, path: str = "") -> None:
    """What is shown is there; numbers as near as rounding."""
    if isinstance(shown, dict):
        for name, value in shown.items():
            if name not in OF_THE_MOMENT:
                compare(value, found[name], f"{path}/{name}")
    elif isinstance(shown, float):
        assert found == pytest.approx(shown, rel=1e-6), path
    elif isinstance(shown, list):
        assert len(shown) == len(found), path
        for i, (one, other) in enumerate(zip(shown, found, strict=True)):
            compare(one, other, f"{path}/{i}")
    else:
        assert shown == found, path


def output(command: str) -> str:
    run = ["bash", "-c", command]
    return subprocess.run(
        run, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_answer_as_shown(embedded):
    assert len(SHOWN) == 4
    for command, shown in SHOWN:
        here = command.replace("127.0.0.1:8000", f"127.0.0.1:{embedded.port}")
        found = output(here)
        # On a busy machine the answer says that something was not computed in time, and to send the same again.
        while "not computed in time" in found:
            found = output(here)
        compare(json.loads(shown), json.loads(found))
