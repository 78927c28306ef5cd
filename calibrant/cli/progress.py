"""Progress bar on standard error, so that standard output has results only."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


class Progress:
    """One bar; `begin` starts a task, `step` names what it does now."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)

    def begin(self, what: str, steps: int | None) -> None:
        """Start a task of `steps` steps, None if their number is not known."""
        self._bar.update(self._task, description=what, total=steps, completed=0)

    def step(self, what: str) -> None:
        """Name the next step; the ones before it are done."""
        self._bar.update(self._task, description=what, advance=1)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()
