"""The fixed list of rows: promise, setting, runs and seed.

A module `rows_*.py` of this folder has `blocks()`, its rows, and `CHECKS`, the functions that count. It is discovered here. Seeds differ
from those that constants were chosen with. Blocks marked `full` run with `FULL=1` only.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks.guarantees.block import Block
from benchmarks.validation.checks import Check


@cache
def _modules() -> tuple[ModuleType, ...]:
    names = sorted(path.stem for path in Path(__file__).parent.glob("rows_*.py"))
    return tuple(import_module(f"benchmarks.guarantees.{name}") for name in names)


def blocks() -> tuple[Block, ...]:
    """Return every block of the table, by section."""
    found = [block for module in _modules() for block in module.blocks()]
    return tuple(sorted(found, key=lambda block: block.section.split()[0]))


def checks() -> dict[str, Check]:
    """Return every function that counts, by name."""
    return {name: check for module in _modules() for name, check in module.CHECKS.items()}
