from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def figure_of(name: str) -> Callable[..., Any] | None:
    """Return the function `draw_NAME` of the file NAME of this folder; None if there is none."""
    module = f"{__name__}.{name}"
    if find_spec(module) is None:
        return None
    found: Callable[..., Any] = getattr(import_module(module), f"draw_{name}")
    return found
