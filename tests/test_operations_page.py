"""The operations page names every setting there is, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

from service.settings import Settings
from workers.settings import _NAMES

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"


def test_settings_table_is_complete() -> None:
    text = PAGE.read_text()
    table = text.split("## Settings\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"`(CALIBRANT_[A-Z_]+)`", table))
    of_the_door = {f"CALIBRANT_{name.upper()}" for name in Settings.model_fields}
    of_the_engine = {name for name in _NAMES if name.startswith("CALIBRANT_")}
    assert documented == of_the_door | of_the_engine
    assert set(re.findall(r"CALIBRANT_[A-Z_]+", text)) <= documented
