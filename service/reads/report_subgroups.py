"""Subgroups that a report lists: those with the most panes first, as many as one request may compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrant_server.service.engine import engine_errors
from calibrant_server.service.reads.operations import Access
from calibrant_server.service.reads.queries import unanswerable
from calibrant_server.service.reads.reports import ReportParameters, subgroup_query, work_of
from calibrant_server.service.reads.service import resolved
from calibrant_server.workers.queries.versions import panes_in
from calibrant_server.workers.store.model_config import ModelConfig

MAX_SUBGROUPS = 40
# Units of work of a report: its metrics, the panes of the window, and each subgroup with its panes. On a core that needs half a
# millisecond for a pane, a unit is about a millisecond.
MAX_WORK = 720
OF_A_METRIC_UNIT, OF_A_SUBGROUP = 2, 18
# The panes of the window are read first. Those of a subgroup are of the same rows.
PANES_OF_A_UNIT, SUBGROUP_PANES_OF_A_UNIT = 2.5, 4.0
# A pane of a merged day has sums, which take longer to read than a few rows.
PANES_OF_A_DAY = 2


@dataclass(frozen=True)
class ReportSubgroups:
    """Subgroups of a report.

    Attributes
    ----------
    listed : in the order of their names
    left_out : the others, those that would be next first
    """

    listed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


async def subgroups_of(
    read: Access, parameters: ReportParameters, config: ModelConfig
) -> ReportSubgroups:
    """Return the subgroups of a report: those that are requested, else the declared ones and those with data."""
    work = work_of(parameters, config)
    if parameters.slice is not None and parameters.subgroups is not None:
        detail = "Received slice and subgroups; a report of one slice has no subgroups. Leave one of them out."
        raise unanswerable("/subgroups", "subgroups_of_slice", detail)
    with engine_errors():
        stored = [name for name in await read.connection.inbox.slices(config) if name]
    known = sorted({*_declared(config), *stored})
    if parameters.slice is not None:
        _requested("slice", [parameters.slice], known)
        return ReportSubgroups()
    wanted = _requested("subgroups", parameters.subgroup_names, known)
    if wanted is None:
        with engine_errors():
            sizes = await read.connection.inbox.n_panes(config, known)
        by_size = sorted(zip(known, sizes, strict=True), key=lambda each: (-each[1], each[0]))
        wanted = [name for name, _ in by_size]
    left = float(MAX_WORK - OF_A_METRIC_UNIT * work)
    n_panes = {
        name: await _n_panes(read, parameters, config, name)
        for name in ("", *wanted[:MAX_SUBGROUPS])
    }
    left -= n_panes[""] / PANES_OF_A_UNIT
    costs = {name: n_panes[name] / SUBGROUP_PANES_OF_A_UNIT for name in wanted[:MAX_SUBGROUPS]}
    return divided(wanted, costs, left, in_given_order=parameters.subgroups is not None)


def divided(
    wanted: Sequence[str], costs: dict[str, float], max_work: float, in_given_order: bool
) -> ReportSubgroups:
    """Divide subgroups into those that fit in one report and the others.

    Parameters
    ----------
    costs : units of work of the panes of the first subgroups; 0 for those without data
    max_work : units of the subgroups together
    in_given_order : otherwise those with the most panes come first

    >>> divided(["a", "b", "c"], {"a": 10.0, "b": 150.0, "c": 100.0}, 220.0, in_given_order=False)
    ReportSubgroups(listed=('a', 'b'), left_out=('c',))
    """
    order = list(wanted[: len(costs)])
    if not in_given_order:
        order.sort(key=lambda name: -costs[name])
    listed: list[str] = []
    total, has_data = 0.0, False
    for name in order:
        after = total + OF_A_SUBGROUP + costs[name]
        if costs[name]:
            if after > max_work and has_data:
                continue
            total, has_data = after, True
        listed.append(name)
    chosen = set(listed)
    others = [name for name in (*order, *wanted[len(costs) :]) if name not in chosen]
    return ReportSubgroups(tuple(sorted(listed)), tuple(others))


async def _n_panes(
    read: Access, parameters: ReportParameters, config: ModelConfig, name: str
) -> int:
    """Return how many panes of a subgroup, or of all rows, a report reads; those of merged days count twice."""
    query = subgroup_query(parameters, config, name)
    with engine_errors():
        state = await read.connection.inbox.state(config, query.slice_name, query.query.needs)
    panes = panes_in(state.panes, resolved(query, state.marks))
    n_days = sum(state.marks.length(start, config.pane_s) > config.pane_s for start in panes)
    return len(panes) + (PANES_OF_A_DAY - 1) * n_days


def _declared(config: ModelConfig) -> list[str]:
    return [
        f"{key}:{value}" for key, values in (config.slices or {}).items() for value in values or ()
    ]


def _requested(parameter: str, names: list[str] | None, known: Sequence[str]) -> list[str] | None:
    """Return the requested subgroups, each once; reject an unknown one."""
    for name in names or ():
        if name not in known:
            some = ", ".join(known[:50]) or "none"
            raise unanswerable(
                f"/{parameter}",
                "undeclared_slice",
                f"Received subgroup {name!r}; expected some of the model's: {some}.",
            )
    return None if names is None else list(dict.fromkeys(names))
