"""Metrics over each of the consecutive parts of a window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.core.pane import Pane
from calibrant_server.workers.queries.kind import Against, Inputs, ResultKind
from calibrant_server.workers.queries.kinds import metrics
from calibrant_server.workers.queries.kinds.metrics import MetricsQuery
from calibrant_server.workers.queries.metric_work import reject_costly_metrics
from calibrant_server.workers.queries.query import Needs, SeriesQuery
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import DatedPane, rfc3339


class MetricsSeriesQuery(MetricsQuery, SeriesQuery):
    """Which metrics, of parts of which length: a whole number of panes.

    Attributes
    ----------
    n_slices, is_compared : of the request that it is part of, for the bound of its work
    """

    kind: ClassVar[str] = "metrics_series"
    needs: ClassVar[Needs] = Needs(panes="parts")

    every_s: int
    n_slices: int = 1
    is_compared: bool = False

    def check(self, n_parts: int) -> None:
        reject_costly_metrics(
            "/every",
            self.listed,
            n_parts=n_parts,
            n_slices=self.n_slices,
            bins=self.bins,
            is_compared=self.is_compared,
        )


def compute(query: MetricsSeriesQuery, inputs: Inputs) -> Result:
    """One object per part that holds data, oldest first.

    Where panes have been merged into days, parts are no shorter than these, and their windows show it.
    """
    return _series(query, inputs, lambda begin, part: metrics.compute(query, part))


def compare(query: MetricsSeriesQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """Compare each part with the same part of the other model, or with the complete other window."""
    theirs = in_parts(other.panes, query.every_s)
    merged_other = None if against.by == "model" else merged(other.panes, other.config)

    def compared(begin: int, part: Inputs) -> Result:
        pane = merged(theirs.get(begin, []), other.config) if merged_other is None else merged_other
        return metrics.compare(query, part, replace(other, merged=pane), against)

    return _series(query, inputs, compared)


def _series(
    query: MetricsSeriesQuery, inputs: Inputs, make: Callable[[int, Inputs], Result]
) -> Result:
    parts, points = in_parts(inputs.panes, query.every_s), list[Result]()
    for begin, some in parts.items():
        part = replace(inputs, merged=merged(some, inputs.config))
        points.append({"window": ends_of(begin, query.every_s, some), **make(begin, part)})
    return {"every_s": query.every_s, "series": points}


def in_parts(panes: list[DatedPane], every_s: int) -> dict[int, list[DatedPane]]:
    """Panes by the beginning of the part that they belong to, oldest first."""
    found: dict[int, list[DatedPane]] = {}
    for each in sorted(panes, key=lambda each: each.start_s):
        found.setdefault(each.start_s // every_s * every_s, []).append(each)
    return found


def merged(panes: list[DatedPane], config: ModelConfig) -> Pane:
    """The merge of some panes, none included; it must not be changed."""
    if len(panes) == 1:
        only: Pane = panes[0].pane
        return only
    spec = panes[0].pane.spec if panes else config.spec()
    pane = Pane(spec)
    for each in panes:
        pane.merge(each.pane)
    return pane


def ends_of(begin: int, every_s: int, panes: list[DatedPane]) -> dict[str, str]:
    """The window of a part: at least `every_s`, and all of its panes."""
    begin_s = min(begin, panes[0].start_s)
    end_s = max(begin + every_s, *(each.start_s + each.length_s for each in panes))
    ends = (rfc3339(datetime.fromtimestamp(at, UTC)) for at in (begin_s, end_s))
    return dict(zip(("from", "to"), ends, strict=True))


KIND = ResultKind(
    MetricsSeriesQuery,
    compute,
    metrics.accumulators,
    compare,
    compared_accumulators=("sample",),
    is_slow=metrics.is_slow,
)
