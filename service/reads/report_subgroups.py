"""Subgroups that a report lists: those with the most panes first, as many as one request may compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrant_server.service.engine import engine_errors
from calibrant_server.service.reads.dependencies import ReadAccess
from calibrant_server.service.reads.queries import unanswerable
from calibrant_server.service.reads.reports import ReportParameters, subgroup_query, work_of
from calibrant_server.service.reads.service import resolved
from calibrant_server.workers.queries.versions import panes_in
from calibrant_server.workers.store.registry import ModelConfig

MAX_SUBGROUPS = 40
# Units of work of the metrics and the panes of subgroups together. A unit is about a millisecond of CPU.
MAX_WORK = 400
PANES_OF_A_UNIT = 10


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
    read: ReadAccess, parameters: ReportParameters, config: ModelConfig
) -> ReportSubgroups:
    """Return the subgroups of a report: those that are requested, else the declared ones and those with data."""
    work = work_of(parameters, config)
    if parameters.slice is not None:
        if parameters.subgroups is not None:
            detail = "Received slice and subgroups; a report of one slice has no subgroups. Leave one of them out."
            raise unanswerable("/subgroups", "subgroups_of_slice", detail)
        return ReportSubgroups()
    with engine_errors():
        stored = [name for name in await read.connection.inbox.slices(config) if name]
    known = sorted({*_declared(config), *stored})
    wanted = _requested(parameters.subgroup_names, known)
    if wanted is None:
        with engine_errors():
            sizes = await read.connection.inbox.n_panes(config, known)
        by_size = sorted(zip(known, sizes, strict=True), key=lambda each: (-each[1], each[0]))
        wanted = [name for name, _ in by_size]
    n_panes = {
        name: await _n_panes(read, parameters, config, name) for name in wanted[:MAX_SUBGROUPS]
    }
    max_panes = PANES_OF_A_UNIT * (MAX_WORK - work)
    return divided(wanted, n_panes, max_panes, in_given_order=parameters.subgroups is not None)


def divided(
    wanted: Sequence[str], n_panes: dict[str, int], max_panes: int, in_given_order: bool
) -> ReportSubgroups:
    """Divide subgroups into those that fit in one report and the others.

    Parameters
    ----------
    n_panes : panes in the window of the first subgroups
    max_panes : of the subgroups together
    in_given_order : otherwise those with the most panes come first

    >>> divided(["a", "b", "c"], {"a": 10, "b": 1_500, "c": 1_000}, 2_000, in_given_order=False)
    ReportSubgroups(listed=('a', 'b'), left_out=('c',))
    """
    order = list(wanted[: len(n_panes)])
    if not in_given_order:
        order.sort(key=lambda name: -n_panes[name])
    listed: list[str] = []
    total = 0
    for name in order:
        after = total + n_panes[name]
        if after > max_panes and total and n_panes[name]:
            continue
        listed.append(name)
        total = after
    chosen = set(listed)
    others = [name for name in (*order, *wanted[len(n_panes) :]) if name not in chosen]
    return ReportSubgroups(tuple(sorted(listed)), tuple(others))


async def _n_panes(
    read: ReadAccess, parameters: ReportParameters, config: ModelConfig, name: str
) -> int:
    """Return the number of panes of a subgroup in the window of the report."""
    query = subgroup_query(parameters, config, name)
    with engine_errors():
        state = await read.connection.inbox.state(config, query.slice_name, query.query.needs)
    return len(panes_in(state.panes, resolved(query, state.marks)))


def _declared(config: ModelConfig) -> list[str]:
    return [
        f"{key}:{value}" for key, values in (config.slices or {}).items() for value in values or ()
    ]


def _requested(names: list[str] | None, known: Sequence[str]) -> list[str] | None:
    """Return the requested subgroups, each once; reject an unknown one."""
    for name in names or ():
        if name not in known:
            some = ", ".join(known[:50]) or "none"
            raise unanswerable(
                "/subgroups",
                "undeclared_slice",
                f"Received subgroup {name!r}; expected some of the model's: {some}.",
            )
    return None if names is None else list(dict.fromkeys(names))
