"""Computation of a query: its window, the state that its kind needs, its result. `workers/queries/serve.py` takes queries from the store.

The panes of a window are one state (`workers/queries/window_panes.py`). Results are cached in the store by state version: nothing is
invalidated; old versions are no longer requested.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

# `calibrant` loads scipy's subpackages on first use. A server loads them at start: the first query must not wait for them.
import scipy.fft
import scipy.interpolate
import scipy.optimize
import scipy.special  # noqa: F401
from pydantic import ValidationError
from redis.exceptions import RedisError

from calibrant.core.action_texts import of_slice
from calibrant.core.actions import next_request
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError
from calibrant_server.workers.alarm.words_of import AlarmSnapshot, read_snapshot
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries.ask import (
    CHANGING,
    DAMAGED,
    FAILED,
    GONE,
    OK,
    REJECTED,
    UNAVAILABLE,
    UNKNOWN,
    QueryRequest,
    Reply,
    Side,
)
from calibrant_server.workers.queries.kind import Against, Inputs, ResultKind, find_kinds
from calibrant_server.workers.queries.mapped_window import window_after
from calibrant_server.workers.queries.query import Query, SeriesQuery
from calibrant_server.workers.queries.versions import joined, with_records
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.queries.window_records import WindowRecords
from calibrant_server.workers.queries.window_state import (
    PanesDamaged,
    WindowChanging,
    WindowState,
)
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.file_store import FilesUnavailable
from calibrant_server.workers.store.model_config import ConfigReader, ModelConfig
from calibrant_server.workers.store.slice_names import is_sealed, plain_slice, sealed_slice
from calibrant_server.workers.store.windows import Window, rfc3339

log = logging.getLogger(__name__)


KINDS: dict[str, ResultKind[Any]] = find_kinds()


class Compute:
    """Computation of queries from the state in the store. One object may serve several threads."""

    def __init__(
        self, store: Store, numerics: Numerics, kinds: dict[str, ResultKind[Any]] | None = None
    ):
        self._store = store
        self._settings = store.settings
        self._numerics = numerics
        self.kinds = KINDS if kinds is None else kinds
        self._panes = WindowPanes(store, numerics)
        self._configs = ConfigReader(store.client, store.keys)

    def is_slow(self, request: QueryRequest) -> bool:
        """Return whether a result of this kind may take seconds."""
        kind = self.kinds.get(request.kind)
        if kind is None:
            return False
        try:
            return kind.is_slow(kind.query.model_validate(request.query))
        except ValidationError:
            return False

    def reply(self, request: QueryRequest) -> Reply:
        """Compute a result; errors are results too."""
        kind = self.kinds.get(request.kind)
        if kind is None:
            return _failed(UNKNOWN, "", f"there is no result kind {request.kind}")
        version = ""
        try:
            query = kind.query.model_validate(request.query)
            config = self._config(request.side.model)
            if config is None:
                return _failed(GONE, "", "the model is gone")
            state, inputs = self._inputs(kind, query, config, request)
            version = state.version
            if request.against is None:
                found = kind.compute(query, inputs)
            else:
                other = self._other(kind, query, request)
                version = joined(version, other.version)
                found = _compared(kind, query, inputs, other.inputs, request.against)
            if kind.query.needs.records:
                # Records are read piece by piece while others continue to be written.
                now = self._state(kind, query, config, request.side, inputs.of_alarm, False)
                found["consistent"] = now.version == state.version
            head = _head(config, request.side.slice, state) | {"state_version": version}
            document = _document(head, found, config)
            body = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
            return Reply(OK, version, body)
        except RedisError:
            raise
        except FilesUnavailable as error:
            return _failed(UNAVAILABLE, version, str(error))
        except WindowChanging as error:
            return _failed(CHANGING, version, str(error))
        except PanesDamaged as error:
            body = json.dumps({"detail": str(error), "panes": error.panes}).encode()
            return Reply(DAMAGED, version, body)
        except Exception as error:
            violations = getattr(error, "violations", None)
            if violations:
                body = json.dumps({"violations": [asdict(each) for each in violations]}).encode()
                return Reply(REJECTED, version, body)
            log.exception("query_not_computed kind=%s", request.kind)
            return _failed(FAILED, version, f"{type(error).__name__}: {error}")

    def _inputs(
        self, kind: ResultKind[Any], query: Query, config: ModelConfig, request: QueryRequest
    ) -> tuple[WindowState, Inputs]:
        """Return the window's state and the inputs of the kind."""
        needs, side = kind.query.needs, request.side
        alarm = self._alarm(config, side, query) if needs.alarm else None
        state = self._state(kind, query, config, side, alarm, request.against is not None)
        records = self._records(config, side.slice, state) if needs.records else None
        return state, Inputs(config, state.covered, state.merged, state.panes, alarm, records)

    def _other(self, kind: ResultKind[Any], query: Query, request: QueryRequest) -> _Other:
        """Return the state of the other side of a comparison."""
        side = request.other
        if side is None or request.against is None:
            raise ValueError("this result compares two windows")
        config = self._config(side.model)
        if config is None:
            detail = (
                "Received a comparison with a model that was deleted meanwhile. Name another one."
            )
            raise CalibrationInputError.at("/against", "unknown_model", detail)
        state = self._state(kind, query, config, side, None, True, is_other=True)
        reads_records = kind.query.needs.records and request.against.by in ("window", "model")
        records = self._records(config, side.slice, state) if reads_records else None
        inputs = Inputs(config, state.covered, state.merged, state.panes, of_records=records)
        return _Other(state.version, inputs)

    def _state(
        self,
        kind: ResultKind[Any],
        query: Query,
        config: ModelConfig,
        side: Side,
        alarm: AlarmSnapshot | None,
        compared: bool,
        is_other: bool = False,
    ) -> WindowState:
        """Return one side's panes, as the kind needs them."""
        wanted = kind.reads(query, compared)
        window, version = Window(*side.window), alarm.state.version if alarm else b""
        needs = kind.query.needs
        if needs.panes == "none":
            return self._panes.none(config, side.slice, window, version)
        if isinstance(query, SeriesQuery):
            check = query.check
            return self._panes.parts(config, side.slice, window, wanted, query.every_s, check)
        if needs.panes == "sides" and not is_other:
            last_s = needs.last_s
            return self._panes.sides(config, side.slice, window, wanted, last_s, version)
        read = self._panes.merged if needs.panes == "merged" else self._panes.each
        state = read(config, side.slice, window, wanted, version)
        return _recorded(state) if needs.records else state

    def _records(self, config: ModelConfig, slice_: str, state: WindowState) -> WindowRecords:
        partition = self._store.keys.partition_of(config.key)
        keys, node = self._store.keys.partition(partition), self._store.node(partition)
        return WindowRecords(node, keys, config, plain_slice(slice_), state.window, state.marks)

    def _config(self, model: str) -> ModelConfig | None:
        return self._configs.read(model)

    def _alarm(self, config: ModelConfig, side: Side, query: Query) -> AlarmSnapshot:
        """Return the state of the model's alarm, with the sealed panes that the kind needs."""
        partition = self._store.keys.partition_of(config.key)
        keys, node = self._store.keys.partition(partition), self._store.node(partition)
        scope = getattr(query, "scope", None)
        view = read_snapshot(node, keys, config, side.slice, Window(*side.window), scope)
        wanted = tuple(sorted(query.needs.changed))
        if not wanted:
            return view
        if view.detector is None:
            window = window_after(view, config.pane_s)
            read = partial(self._panes.merged, config, side.slice, window, wanted)
            return replace(view, unwatched=lambda: read().merged)
        windows = view.corrected()
        if windows is None:
            return view
        slice_ = sealed_slice(plain_slice(side.slice))
        corrected, later = (
            self._panes.merged(config, slice_, each, wanted).merged for each in windows
        )
        return replace(view, changed=(corrected, later))


class _Other(NamedTuple):
    version: str
    inputs: Inputs


def _compared(
    kind: ResultKind[Any], query: Query, inputs: Inputs, other: Inputs, against: Against
) -> Result:
    if kind.compare is None:
        raise CalibrationInputError.at(
            "/against",
            "not_comparable",
            f"Received against for {kind.name}, which is not compared. Omit it.",
        )
    return kind.compare(query, inputs, other, against)


def _recorded(state: WindowState) -> WindowState:
    """Return the state under the name of a state whose records are also read."""
    starts = (start_s for start_s, _ in state.spans)
    return replace(state, version=with_records(state.version, starts, state.marks))


def _failed(status: str, version: str, detail: str) -> Reply:
    return Reply(status, version, json.dumps({"detail": detail}).encode())


def _head(config: ModelConfig, slice_: str, state: WindowState) -> Result:
    """Return the common head of all results: model, slice, clock and window."""
    head: Result = {
        "model": config.model,
        "window": state.covered.to_dict(),
        "state_version": state.version,
    }
    if (name := plain_slice(slice_)) != "":
        head["slice"] = name
    return head | _clock(config, slice_, state)


def _document(head: Result, found: Result, config: ModelConfig) -> Result:
    """Return a result with its head. A recommendation names the request that carries it out.

    A map is fitted to the result's own window.
    """
    advice = found.get("recommendation")
    if not isinstance(advice, dict):
        return {**head, **found}
    slice_ = head.get("slice")
    advice = advice | {"reason": of_slice(advice["action"], advice["reason"], slice_)}
    is_binary = config.task == "binary"
    following = next_request(
        advice["action"], config.model, is_binary, head["window"], slice=slice_
    )
    if following is not None and "next" not in advice:
        advice |= {"next": following}
    return {**head, **found, "recommendation": advice}


def _clock(config: ModelConfig, slice_: str, state: WindowState) -> Result:
    """Describe the clock of a model with a label horizon, and whether all labels have had their time."""
    if config.label_horizon_s is None:
        return {}
    sealed_to = Window(0, state.marks.sealed_to).to_at if state.marks.sealed_to else None
    ends = max((start_s + length_s for start_s, length_s in state.spans), default=0)
    return {
        "clock": "sealed" if is_sealed(slice_) else "event",
        "sealed_to": None if sealed_to is None else rfc3339(sealed_to),
        "matured": ends <= state.marks.sealed_to if state.spans else None,
    }
