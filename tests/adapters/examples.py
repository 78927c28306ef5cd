"""Runnable examples of `docs/adapters.md`, by the module that they import."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


def run_example(module: str) -> None:
    """Execute the example that imports from `module`."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [each for each in blocks if f"from {module} import" in each]
    exec(compile(found, str(PAGE), "exec"), {})
