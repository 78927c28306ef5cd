"""Metrics over each of the consecutive parts of a window.

Results of parts are cached in memory: a query of a window to which data were added computes only the parts that they belong to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import chain
from typing import ClassVar

from calibrant.core.documents import Result
from calibrant.core.pane import Pane
from calibrant.results.metric_work import reject_costly_metrics
from calibrant.results.metrics import metrics
from calibrant_server.workers.queries.kind import Against, Inputs, ResultKind, kind_of
from calibrant_server.workers.queries.query import Needs, SeriesQuery, declared_query
from calibrant_server.workers.store.lru_cache import LruCache
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.model_events import events_between
from calibrant_server.workers.store.windows import DatedPane, rfc3339

METRICS = kind_of(metrics)
# Results of parts as JSON, of about 3 kB each.
_known: LruCache[bytes, bytes] = LruCache(12 << 20, len)


class MetricsSeriesQuery(declared_query(metrics), SeriesQuery):  # type: ignore[misc]
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
            self.plain().listed,
            n_parts=n_parts,
            n_slices=self.n_slices,
            bins=self.bins,
            is_compared=self.is_compared,
        )


def compute(query: MetricsSeriesQuery, inputs: Inputs) -> Result:
    """One object per part that holds data, oldest first.

    Where panes have been merged into days, parts are no shorter than these, and their windows show it.
    """
    return _series(
        query, inputs, lambda begin, part: METRICS.compute(query, part), lambda begin: []
    )


def compare(query: MetricsSeriesQuery, inputs: Inputs, other: Inputs, against: Against) -> Result:
    """Compare each part with the same part of the other model, or with the complete other window."""
    theirs = in_parts(other.panes, query.every_s)
    merged_other = None if against.by == "model" else merged(other.panes, other.config)

    def others(begin: int) -> list[DatedPane]:
        return other.panes if merged_other is not None else theirs.get(begin, [])

    def compared(begin: int, part: Inputs) -> Result:
        pane = merged(theirs.get(begin, []), other.config) if merged_other is None else merged_other
        assert METRICS.compare is not None
        return METRICS.compare(query, part, replace(other, merged=pane), against)

    return _series(query, inputs, compared, others, [str(against), other.window.to_dict()])


def _series(
    query: MetricsSeriesQuery,
    inputs: Inputs,
    make: Callable[[int, Inputs], Result],
    others: Callable[[int], list[DatedPane]],
    against: object = None,
) -> Result:
    """Return the result of each part.

    Parameters
    ----------
    make : computes that of a part
    others, against : the other panes that it depends on, and how they are named
    """
    parts, points = in_parts(inputs.panes, query.every_s), list[Result]()
    length_s = inputs.window.to_s - inputs.window.from_s
    asked = json.dumps([query.to_dict(), against, inputs.seed, length_s], sort_keys=True).encode()
    for begin, some in parts.items():
        name = _name(asked, some, others(begin))
        known = None if name is None else _known.get(name)
        if known is not None:
            found: Result = json.loads(known)
        else:
            found = make(begin, replace(inputs, merged=merged(some, inputs.config)))
            if name is not None:
                _known.put(name, json.dumps(found, allow_nan=False).encode())
        points.append({"window": ends_of(begin, query.every_s, some), **found})
    found = {"every_s": query.every_s, "series": points}
    window = inputs.window
    events = events_between(inputs.config, window.from_s, window.to_s)
    return found | ({"events": events} if events else {})


def _name(asked: bytes, some: Iterable[DatedPane], others: Iterable[DatedPane]) -> bytes | None:
    """Return the name of the result of a part; None where the state of a pane is not known."""
    states = [[each.state for each in panes] for panes in (some, others)]
    if not all(chain.from_iterable(states)):
        return None
    of = b"".join(b"%d:%s" % (len(each), each) for each in (asked, *states[0], b"", *states[1]))
    return blake2b(of, digest_size=16).digest()


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
    METRICS.accumulators,
    compare,
    METRICS.compared_accumulators,
    METRICS.is_slow,
)
