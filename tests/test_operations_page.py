"""The operations page names every setting there is with its default, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from calibrant import kernel
from calibrant.core.durations import parse_duration
from calibrant_server.service.settings import Settings
from calibrant_server.workers.settings import EngineSettings, parse_size, variables

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
TABLE = PAGE.read_text().split("## Settings\n")[1].split("\n## ")[0]
ROWS = [
    (names, default.strip("`"))
    for names, default in re.findall(r"^\| (`CALIBRANT_[^|]+) \| ([^|]+) \|", TABLE, re.MULTILINE)
]
IN_WORDS = {"none", "from the package", "a quarter of the memory limit"}


def names_in(text: str) -> set[str]:
    return set(re.findall(r"CALIBRANT_[A-Z_]+", text))


def test_settings_table_is_complete() -> None:
    read = variables(Settings).keys() | variables(EngineSettings).keys() | kernel.VARIABLES
    documented = names_in("".join(names for names, _ in ROWS))
    assert documented == {name for name in read if name.startswith("CALIBRANT_")}
    assert names_in(PAGE.read_text()) <= documented


@pytest.mark.parametrize(("names", "documented"), ROWS)
def test_defaults_are_those_of_the_code(names: str, documented: str) -> None:
    for name in names_in(names):
        for settings in (EngineSettings, Settings):
            if name in variables(settings):
                default = settings.model_fields[variables(settings)[name]].default
                assert default is not PydanticUndefined
                assert default is None if documented in IN_WORDS else agrees(default, documented)


def agrees(default: object, documented: str) -> bool:
    if isinstance(default, bool) or not isinstance(default, int | float):
        text = ",".join(default) if isinstance(default, tuple) else str(default)
        return text.lower() == documented
    text = documented.removesuffix(" s")
    if text.startswith("P"):
        return default == parse_duration(text)
    return default == (parse_size(text) if text.endswith("B") else float(text))
