"""Side effects of a promotion: slices that get worse, a map of one slice, certain predictions, an alarm that cannot follow the map."""

from collections.abc import Sequence
from typing import Any

import orjson

from calibrant.core.errors import Violation
from calibrant.figures.numbers import counted, plain_numbers
from calibrant_server.service.engine import Connection
from calibrant_server.service.http.problems import MapNotBetter
from calibrant_server.service.reads.frozen_maps import formula_of
from calibrant_server.service.reads.known_slices import KnownSlices
from calibrant_server.service.reads.queries import ClockQuery
from calibrant_server.service.reads.read_query import ReadQuery
from calibrant_server.service.reads.service import ReadService
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.queries.kinds.map_on_slice import MapOnSliceQuery
from calibrant_server.workers.store.frozen_maps import FrozenMap
from calibrant_server.workers.store.model_config import LABEL_SLICE, ModelConfig

MAX_COMPARED = 64
# Of a promotion: the chance that a slice is called worse which is not.
LEVEL = 0.05
OF_SLICE = "of_slice"
Warnings = list[dict[str, str]]


def reject_map_of_slice(config: ModelConfig, version: FrozenMap) -> None:
    """Reject the promotion of a map of one slice: the current map applies to all predictions.

    Raises
    ------
    MapNotBetter
    """
    slice_ = version.get("slice")
    if not slice_:
        return
    number = version["version"]
    detail = (
        f"Version {number} was fitted to {slice_} only, and the current map applies to all predictions. {_apply(config, version)} "
        "Send override: true to promote it for all predictions anyway."
    )
    raise MapNotBetter(detail, errors=[Violation("/version", OF_SLICE, detail)])


def _apply(config: ModelConfig, version: FrozenMap) -> str:
    number = version["version"]
    path = f"/v1/models/{config.model}/calibration-map/apply?version={number}"
    return (
        f"Apply it to the predictions of {version['slice']} only: POST {path}, or "
        f"calibrant maps get {config.model} --version {number} and calibrant maps apply."
    )


async def warnings_of(
    connection: Connection,
    reads: ReadService,
    config: ModelConfig,
    before: FrozenMap | None,
    version: FrozenMap,
) -> Warnings:
    """Return what to know about a promotion, the most harmful first."""
    found = _of_slice(config, version)
    found += await _worse_slices(reads, config, before, version)
    found += _certain(version)
    return [*found, *await _blind(connection, config, version)]


def _warning(rule: str, detail: str) -> dict[str, str]:
    return {"pointer": "/version", "rule": rule, "detail": detail}


def _of_slice(config: ModelConfig, version: FrozenMap) -> Warnings:
    if not version.get("slice"):
        return []
    detail = f"This map was fitted to {version['slice']} only, and now applies to all predictions. {_apply(config, version)}"
    return [_warning(OF_SLICE, detail)]


async def _worse_slices(
    reads: ReadService, config: ModelConfig, before: FrozenMap | None, version: FrozenMap
) -> Warnings:
    """Return a warning for each slice that the map makes worse, by the labels since the start of the window that it was fitted to."""
    known = (await KnownSlices.of(reads.inbox, config)).names
    names = [each for each in known if not each.startswith(f"{LABEL_SLICE}:")]
    compared = names[:MAX_COMPARED]
    query = MapOnSliceQuery(
        current=None if before is None else formula_of(before),
        candidate=formula_of(version),
        raters=version.get("raters", "pooled"),
        ci=1.0 - LEVEL / max(1, len(compared)),
    )
    view = {"from": version["window"]["from"], "clock": version.get("clock", "event")}
    found = []
    for name in compared:
        read_query = ReadQuery(query, config, ClockQuery.model_validate(view | {"slice": name}))
        result = orjson.loads((await reads.result(read_query)).body)
        if result.get("is_worse"):
            found.append(_warning("slice_worse", _worse(name, result)))
    return found + _not_compared(names)


def _worse(name: str, result: dict[str, Any]) -> str:
    n, errors = counted(result["n_units"], "labelled unit"), [result["before"], result["after"]]
    measured = ""
    if None not in errors and errors[0] < errors[1]:
        first, then = plain_numbers(errors)
        measured = f" Its calibration error is {first} before the map and {then} after it."
    return (
        f"{name} gets worse ({n}).{measured} A map for all predictions does not suit every slice: check the others first, or "
        "fit one map per slice."
    )


def _not_compared(names: Sequence[str]) -> Warnings:
    if len(names) <= MAX_COMPARED:
        return []
    detail = f"Only the first {MAX_COMPARED} of {len(names):,} slices were compared before and after this map."
    return [_warning("slices_not_compared", detail)]


def _certain(version: FrozenMap) -> Warnings:
    if "certain_values" not in (version.get("warnings") or ()):
        return []
    detail = (
        "This map gives some predictions a probability of exactly 0 or 1. One wrong label of these makes the log loss infinite. Fit more "
        "labels, or a map with few parameters, such as platt."
    )
    return [_warning("certain_values", detail)]


async def _blind(connection: Connection, config: ModelConfig, version: FrozenMap) -> Warnings:
    """Return a warning if the drift alarm cannot follow a map of complete rows: predictions are sent without ids."""
    watched = config.label_horizon_s is not None and AlarmSettings.of(config).is_mapped
    if not watched or version.get("scope") != "full":
        return []
    tallies = await connection.inbox.tallies(config)
    if tallies.get("joined", 0) + tallies.get("pending", 0):
        return []
    detail = (
        "This map takes complete rows, the drift alarm bets on mapped scores (alarm.scores is mapped), and the model retains no "
        "prediction by id: cohorts without ids are skipped, so their drift is not detected. Send ids with predictions, "
        "promote a map of scope top_label, or set alarm.scores to raw."
    )
    return [_warning("alarm_blind", detail)]
