"""How far a simulated day is, and what its parts took: files that the next start continues from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks.fleet_day.deployment import Reading

HOUR = 60


@dataclass(frozen=True)
class Part:
    """Some minutes of one hour that were measured together.

    Attributes
    ----------
    used : counters, of these minutes only
    levels : at their end
    """

    first: int
    last: int
    used: Reading
    levels: Reading

    @property
    def n_minutes(self) -> int:
        """Minutes with a batch of each model."""
        return self.last - self.first


class Progress:
    """Progress in a directory.

    Parameters
    ----------
    fleet : what the directory is for; another fleet needs another directory
    """

    def __init__(self, directory: Path, fleet: dict[str, Any]):
        directory.mkdir(parents=True, exist_ok=True)
        self._minute, self._parts = directory / "minute", directory / "parts.jsonl"
        described = directory / "fleet.json"
        if not described.exists():
            described.write_bytes(orjson.dumps(fleet))
        self.fleet = orjson.loads(described.read_bytes())
        if {**self.fleet, "start_s": 0} != {**fleet, "start_s": 0}:
            raise SystemExit(f"{directory} has another fleet, {self.fleet}; choose another --in")

    @property
    def minute(self) -> int:
        """The next minute; 0 if nothing was sent yet."""
        return int(self._minute.read_text()) if self._minute.exists() else 0

    def sent(self, minute: int) -> None:
        """Record that the batches of a minute were accepted."""
        self._minute.write_text(str(minute + 1))

    def add(self, part: Part) -> None:
        """Record what a part took."""
        line = {"first": part.first, "last": part.last, "used": part.used, "levels": part.levels}
        with self._parts.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")

    @property
    def parts(self) -> list[Part]:
        """What was measured, in order."""
        if not self._parts.exists():
            return []
        return [Part(**orjson.loads(line)) for line in self._parts.read_bytes().splitlines()]
