"""The table of settings in docs/operations.md, from the fields and the texts after them. Called by `make names`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_settings import BaseSettings

from calibrant.core.durations import duration_of
from calibrant_server.service.settings import Settings
from calibrant_server.workers.settings import EngineSettings, variables

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
TABLE = "| Variable | Default | Who | Meaning |\n|---|---|---|---|\n"
OF_WORKERS = {"parked", "sample", "compact", "cold", "held", "housekeeping", "pane", "smtp"}
OF_WORKERS |= {"webhook_ca", "public_url"}
OF_BOTH = {"cold_url"}
# They are read where the kernel is loaded.
KERNEL = (
    "| `CALIBRANT_KERNEL` | none | both | `baseline`: the compiled kernel uses no AVX2. The results are the same. "
    "The log and `GET /version` report the variant. |\n"
    "| `CALIBRANT_THREADS` | the processors that the process may use | library | Threads of one metric of a large array "
    "(from 131,073 rows with one label each). Results do not depend on it. |\n"
)
SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def page() -> str:
    """Return the text of the page with the table of today's settings."""
    before, _, after = PAGE.read_text().partition(TABLE)
    return before + TABLE + "".join(rows()) + after[after.index("\n\n") + 1 :]


def rows() -> Iterator[str]:
    """Yield the rows: settings that the engine reads, those of the kernel, then those of the service alone."""
    yield from _rows(EngineSettings, frozenset())
    yield KERNEL
    yield from _rows(Settings, EngineSettings.model_fields.keys())


def _rows(settings: type[BaseSettings], others: Any) -> Iterator[str]:
    texts = _texts(settings)
    names: dict[str, list[str]] = {}
    for variable, field in variables(settings).items():
        names.setdefault(field, []).append(f"`{variable}`")
    for field in (each for each in names if each not in others):
        default = _default(field, settings.model_fields[field].default)
        who = "service" if settings is Settings else _who(field)
        yield f"| {', '.join(names[field])} | {default} | {who} | {texts[field]} |\n"


def _who(field: str) -> str:
    of_workers = {field, field.partition("_")[0]} & OF_WORKERS and field not in OF_BOTH
    return "workers" if of_workers else "both"


def _texts(settings: type[BaseSettings]) -> dict[str, str]:
    """Return the text after each field."""
    [tree] = ast.parse(inspect.getsource(settings)).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            found[ast.unparse(field.target)] = " ".join(ast.literal_eval(text.value).split())
    return found


def _default(field: str, value: Any) -> str:
    """Return a default as an operator writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"
    if not isinstance(value, int | float):
        return f"`{value}`"
    if field.endswith("_s"):
        return f"`{duration_of(int(value))}`" if value >= 600 else f"{value:g} s"
    return _size(int(value)) if "bytes" in field else f"{value}"


def _size(value: int) -> str:
    return next(
        (f"{value // size} {unit}" for size, unit in SIZES if value and value % size == 0),
        str(value),
    )
