"""Panes of the site's model by day, as its export streams them.

The export is read twice: first only versions, which show what has changed, then the panes of some days. Memory holds the totals of at most
as many days as are asked for. Lines after the panes (samples, baselines, alarms) are not read.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from calibrant.client.federation.shared_panes import REMOVED
from calibrant.client.operations import Operation, model_path
from calibrant.core.pane import Pane
from calibrant.core.spec import PaneSpec

DAY_S = 86_400
Lines = Callable[[Operation[Any]], Iterator[Mapping[str, Any]]]


@dataclass
class SiteState:
    """What a site has of a model.

    Attributes
    ----------
    generation : another one if the model was deleted and made again
    sealed_to : cohorts before it are sealed, seconds since 1970
    versions : of each day with panes, by its start; changes with any pane of the day
    """

    generation: str = ""
    sealed_to: int = 0
    versions: dict[int, str] = field(default_factory=dict)


class ExportedPanes:
    """The live panes of one slice of a model.

    Parameters
    ----------
    lines : streams the lines of a request
    model : of the site
    slice_ : `key:value`, or "" for all rows
    pane_s : length of the model's panes; a day is at least as long
    """

    def __init__(self, lines: Lines, model: str, slice_: str, pane_s: int) -> None:
        self._lines, self._model, self._slice = lines, model, slice_
        self.day_s = max(DAY_S, pane_s)

    def state(self) -> SiteState:
        """Return which days there are, and their versions."""
        state, of_day = SiteState(), defaultdict(list)
        for line in self._until_panes_end():
            if line["type"] == "model":
                state.generation = line["configuration"]["generation"]
            elif line["type"] == "marks":
                state.sealed_to = int(line["marks"].get("sealed_to", 0))
            elif line["slice"] == self._slice:
                of_day[self._day(line)].append(f"{line['start']}:{line['version']}")
        for day, versions in of_day.items():
            text = "|".join(sorted(versions)).encode()
            state.versions[day] = blake2b(text, digest_size=16).hexdigest()
        return state

    def panes(self, days: Collection[int], spec: PaneSpec) -> Iterator[tuple[int, Pane]]:
        """Yield the panes of some days, each with its day; without rows and cases."""
        wanted = frozenset(days)
        for line in self._until_panes_end():
            if line["type"] == "pane" and line["slice"] == self._slice:
                day = self._day(line)
                if day in wanted:
                    yield day, Pane.from_parts(spec, _parts(line["packed"]))

    def _day(self, line: Mapping[str, Any]) -> int:
        start = int(line["start"])
        return start - start % DAY_S if self.day_s == DAY_S else start

    def _until_panes_end(self) -> Iterator[Mapping[str, Any]]:
        path, headers = model_path(self._model, "/export"), {"Accept": "application/x-ndjson"}
        operation: Operation[Any] = Operation("GET", path, dict, headers=headers)
        for line in self._lines(operation):
            if line["type"] not in ("model", "marks", "pane"):
                return
            yield line


def _parts(packed: Mapping[str, str]) -> dict[str, bytes]:
    """Return the accumulators of a pane; running totals of its sources are in its sums already."""
    return {
        name: base64.b64decode(value)
        for name, value in packed.items()
        if name not in REMOVED and not name.startswith("src:")
    }
