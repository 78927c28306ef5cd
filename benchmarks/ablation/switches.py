"""Each fast path of the product, and what takes its place when it is switched off: the general path, with the same results.

The product has no switch of its own. A name that no longer exists is an error, so a path that is deleted takes its row along.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_SERVER, _LIBRARY = "calibrant_server.", "calibrant."


def _constant(value: Any) -> Callable[[Any], Any]:
    """Return what makes, of any function, one that returns a value."""
    return lambda _: lambda *args, **named: value


def _gains_by_fit(weight: Any, rate: Any, score: Any) -> Any:
    """Return the gains by a fit to each row of rates, in one call of scipy per row of weights."""
    from calibrant.metrics.corp import _lost_by_fit

    return _lost_by_fit(weight, rate, score, "brier")


@dataclass(frozen=True)
class Switch:
    """A fast path.

    Attributes
    ----------
    scenario : function of `benchmarks.ablation.scenarios` in which a user would gain
    replaced : `module:Class.name` or `module:name`, and what makes its replacement of it
    environment : variables of the service without the path
    """

    what: str
    scenario: str
    replaced: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


SWITCHES = {
    "grouped-appends": Switch(
        "batches that arrive together appended by one script",
        "small_posts",
        {"workers.ingest.append_groups:MAX_BATCHES": lambda _: 1},
    ),
    "shared-commits": Switch(
        "10 to 30 ms of waiting for small batches to share a commit",
        "small_posts",
        {"workers.ingest.partition_loop:shared_s": _constant(0.0)},
    ),
    "state-cache": Switch(
        "tails, panes and samples of the last commits cached in memory",
        "posts_in_turn",
        {"workers.ingest.state_cache:StateCache.put": _constant(None)},
    ),
    "merged-windows": Switch(
        "merges of the last windows cached in memory",
        "reads_after_a_batch",
        {"workers.queries.window_panes:WindowPanes._merge_of": _constant(None)},
    ),
    "series-parts": Switch(
        "metrics of the parts of a series cached in memory",
        "series_after_a_batch",
        {"workers.queries.kinds.metrics_series:_known.get": _constant(None)},
    ),
    "pane-versions": Switch(
        "versions of the panes of a slice cached in the service",
        "polls",
        {"workers.queries.versions:Versions._known": _constant(None)},
    ),
    "merged-parts": Switch(
        "merges of the parts of a window cached in memory",
        "read_after_a_batch",
        {"workers.queries.window_merges:WindowMerges._keep": _constant(None)},
    ),
    "small-batches": Switch(
        "small JSON bodies with a short check instead of all rules",
        "small_posts",
        {"service.ingest.small_bodies:small_batch": _constant(None)},
    ),
    "direct-routes": Switch(
        "batches handled before the router",
        "small_posts",
        {"service.reads.direct:DirectRoutes.find": _constant(None)},
    ),
    "isotonic-gains": Switch(
        "recalibration of resampled curves, all in one call of the kernel",
        "score",
        {"calibrant.metrics.corp:brier_gains": lambda _: _gains_by_fit},
    ),
    "json-columns": Switch(
        "large JSON bodies read in C",
        "large_posts",
        {
            "service.ingest.columns:json_columns.read": _constant(None),
            "service.ingest.columns:json_columns.read_lines": _constant(None),
        },
    ),
}


def switch_off(name: str) -> None:
    """Replace a fast path in this process."""
    for (owner, attribute), made in zip(
        places(name), SWITCHES[name].replaced.values(), strict=True
    ):
        setattr(owner, attribute, made(getattr(owner, attribute)))


def places(name: str) -> list[tuple[Any, str]]:
    """Return what a fast path replaces: the owner of each attribute, and its name.

    Raises
    ------
    AttributeError, ModuleNotFoundError
        The product no longer has it.
    """
    found = []
    for place in SWITCHES[name].replaced:
        module, _, path = place.partition(":")
        *owners, attribute = path.split(".")
        owner: Any = importlib.import_module(
            module if module.startswith(_LIBRARY) else _SERVER + module
        )
        for each in owners:
            owner = getattr(owner, each)
        getattr(owner, attribute)
        found.append((owner, attribute))
    return found


def main() -> None:
    """Serve without the fast path that the first argument names."""
    from calibrant_server.service.main import main as serve

    if name := sys.argv[1]:
        switch_off(name)
    serve()


if __name__ == "__main__":
    main()
