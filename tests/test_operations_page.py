"""The operations page names every setting there is with its default, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from calibrant_server.service.settings import Settings
from calibrant_server.workers.settings import NAMES, EngineSettings, parse_size

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
    of_the_door = {f"CALIBRANT_{name.upper()}" for name in Settings.model_fields}
    of_the_engine = {name for name in NAMES if name.startswith("CALIBRANT_")}
    documented = names_in("".join(names for names, _ in ROWS))
    assert documented == of_the_door | of_the_engine
    assert names_in(PAGE.read_text()) <= documented


@pytest.mark.parametrize(("names", "documented"), ROWS)
def test_defaults_are_those_of_the_code(names: str, documented: str) -> None:
    for name in names_in(names):
        if name in NAMES:
            field, convert = NAMES[name]
            default = getattr(EngineSettings(), field)
            text = documented.removesuffix(" s")
            assert default is None if documented in IN_WORDS else convert(text) == default
        field = name.removeprefix("CALIBRANT_").lower()
        if field in Settings.model_fields:
            default = Settings.model_fields[field].default
            assert default is not PydanticUndefined
            assert default is None if documented in IN_WORDS else agrees(default, documented)


def agrees(default: object, documented: str) -> bool:
    if isinstance(default, bool) or not isinstance(default, int | float):
        return str(default).lower() == documented
    return default == (parse_size(documented) if "MiB" in documented else float(documented))
