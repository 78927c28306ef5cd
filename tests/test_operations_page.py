"""The operations page names every setting there is, as the code declares it, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from calibrant import kernel
from calibrant_server.service.settings import Settings
from calibrant_server.workers.settings import EngineSettings, variables
from scripts import settings_table

TEXT = settings_table.PAGE.read_text()


def test_the_table_is_that_of_the_settings() -> None:
    assert settings_table.page() == TEXT


def test_settings_are_named_and_no_others() -> None:
    read = variables(Settings).keys() | variables(EngineSettings).keys() | kernel.VARIABLES
    table = "".join(settings_table.rows())
    listed = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    assert listed == {name for name in read if name.startswith("CALIBRANT_")}
    assert set(re.findall(r"CALIBRANT_[A-Z_]+", TEXT)) <= listed


@pytest.mark.parametrize(
    "row",
    [
        "| `CALIBRANT_PORT`, `PORT` | 8000 | service | Port to listen on. |",
        "| `CALIBRANT_LEASE` | 4 s | both | ",
        "| `CALIBRANT_COLD_KEEP` | `PT10M` | workers | ",
        "| `CALIBRANT_RETAINED_BYTES` | 4 GiB | both | ",
        "| `CALIBRANT_TRUSTED_PROXIES` | `127.0.0.1,::1` | service | ",
        "| `CALIBRANT_CREATE_MODELS` | true | both | ",
    ],
)
def test_defaults_are_written_as_operators_write_them(row: str) -> None:
    assert any(each.startswith(row) for each in settings_table.rows())


def test_sizes_of_the_service_have_units_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALIBRANT_MAX_BODY_BYTES", "64MB")
    assert Settings().max_body_bytes == 64 << 20


@pytest.mark.parametrize("page", ["README.md", "docs/operations.md"])
def test_pages_that_start_the_service_say_whom_it_serves_without_keys(page: str) -> None:
    """Every user of a shared machine has all rights until there are keys."""
    text = (Path(__file__).parents[1] / page).read_text().replace("**", "")
    assert "every user of this machine" in text
