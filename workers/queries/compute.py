"""Question → window → answer. `workers/queries/serve.py` takes questions from the store.

The panes of a window are one state (`workers/queries/window_panes.py`). Answers are kept in the store by state version: nothing is
invalidated, old versions are merely never asked for again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

# `calibrant` loads scipy's subpackages on first use. A server loads them at start: the first query must not wait for them.
import scipy.stats  # noqa: F401
from redis.exceptions import RedisError

from calibrant.core.actions import next_request
from calibrant.core.errors import CalibrationInputError
from calibrant.inference.seeds import SEED
from calibrant_server.workers.alarm.alarm_snapshot import AlarmView, read_view
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries import kinds
from calibrant_server.workers.queries.ask import (
    FAILED,
    GONE,
    OK,
    REFUSED,
    UNKNOWN,
    QueryRequest,
    Reply,
)
from calibrant_server.workers.queries.versions import READ_ALARM, READ_RECORDS, joined, with_records
from calibrant_server.workers.queries.window_panes import WindowPanes, WindowState
from calibrant_server.workers.queries.window_records import WindowRecords
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.registry import ModelConfig, read_configs
from calibrant_server.workers.store.watermarks import is_sealed, plain_slice, sealed_slice
from calibrant_server.workers.store.windows import Window, rfc3339

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnswerFunction:
    """One kind of answer.

    Attributes
    ----------
    compute : (pane, config, params, seed) -> JSON-able dict; with `by_pane` the first argument is a list of `Dated`, with
        `paired` a pair of panes (or lists), the second of what the question is asked against
    parts : (params) -> names of the accumulators it reads, or None for all
    reads_panes : the first argument is None where it reads none
    is_slow : (params) -> whether it may take seconds, so that quick answers shall not wait behind it
    sealed_parts : of the sealed panes since the alarm's baseline, which the alarm's view is to hold

    Kinds in `READ_ALARM` are given an `AlarmView` as a fifth argument, those in `READ_RECORDS` a `WindowRecords`; of these is
    told with `consistent` whether nothing changed while records were read.
    """

    compute: Callable[..., dict[str, Any]]
    parts: Callable[[dict[str, Any]], Iterable[str] | None] = lambda params: None
    by_pane: bool = False
    reads_panes: bool = True
    paired: bool = False
    sealed_parts: tuple[str, ...] = ()
    is_slow: Callable[[dict[str, Any]], bool] = lambda params: False


def find_answers() -> dict[str, AnswerFunction]:
    """The answers of the folder `workers/queries/kinds`: one module a kind, named as the kind.

    A module has `answer(pane, config, params, seed)`, and may have `parts(params)`, `is_slow(params)`, `BY_PANE = True`
    and `READS_PANES = False`.
    """
    found = {}
    for each in iter_modules(kinds.__path__):
        module = import_module(f"{kinds.__name__}.{each.name}")
        parts = getattr(module, "parts", lambda params: None)
        found[each.name] = AnswerFunction(
            module.answer,
            parts,
            getattr(module, "BY_PANE", False),
            getattr(module, "READS_PANES", True),
            getattr(module, "PAIRED", False),
            getattr(module, "SEALED_PARTS", ()),
            getattr(module, "is_slow", lambda params: False),
        )
    return found


ANSWERS: dict[str, AnswerFunction] = find_answers()


class Compute:
    """Answers questions from the state in the store. One object may serve several threads."""

    def __init__(
        self, store: Store, ground: Numerics, functions: dict[str, AnswerFunction] | None = None
    ):
        self._store = store
        self._settings = store.settings
        self._ground = ground
        self._functions = ANSWERS if functions is None else functions
        self._panes = WindowPanes(store, ground)

    def is_slow(self, question: QueryRequest) -> bool:
        """Whether an answer of this kind may take seconds."""
        function = self._functions.get(question.kind)
        return function is not None and function.is_slow(question.params)

    def answer(self, question: QueryRequest) -> Reply:
        """Compute an answer; errors are answers too."""
        function = self._functions.get(question.kind)
        if function is None:
            return _told(UNKNOWN, "", f"no answer is called {question.kind}")
        version = ""
        try:
            config = self._config(question.model)
            if config is None:
                return _told(GONE, "", "the model is gone")
            parts = function.parts(question.params)
            wanted = None if parts is None else tuple(sorted(set(parts)))
            window = Window(*question.window)
            view = self._alarm(config, question, window, function.sealed_parts)
            alarm = view.version if view else b""
            asked = (config, question.slice, window)
            if not function.reads_panes:
                state = self._panes.none(*asked, alarm)
            elif function.by_pane:
                state = self._panes.each(*asked, wanted, alarm)
            else:
                state = self._panes.merged(*asked, wanted, alarm)
            version = state.version
            subject = state.merged if state.merged is not None else state.panes
            if function.paired:
                other, theirs = self._other(question, wanted, function.by_pane)
                subject, version = (subject, other), joined(version, theirs)
                state = replace(state, version=version)
            given: list[Any] = [] if view is None else [view]
            reads_records = question.kind in READ_RECORDS
            if reads_records:
                state = _recorded(state)
                version = state.version
                given.append(self._records(config, question, state))
            told = function.compute(subject, config, question.params, SEED, *given)
            if reads_records:
                # Records are read piece by piece while others go on being written.
                now = _recorded(self._panes.merged(*asked, wanted, alarm))
                told["consistent"] = now.version == version
            body = json.dumps(
                _headed(config, question.slice, state, told),
                allow_nan=False,
                separators=(",", ":"),
            ).encode()
            return Reply(OK, version, body)
        except RedisError:
            raise
        except Exception as error:
            violations = getattr(error, "violations", None)
            if violations:
                body = json.dumps({"violations": [asdict(each) for each in violations]}).encode()
                return Reply(REFUSED, version, body)
            log.exception("the answer %s failed", question.kind)
            return _told(FAILED, version, f"{type(error).__name__}: {error}")

    def _other(
        self, question: QueryRequest, wanted: tuple[str, ...] | None, by_pane: bool
    ) -> tuple[Any, str]:
        """The pane (or list of `Dated`) that a question is asked against, and the version of its state."""
        if question.against is None:
            raise ValueError("this answer is of two windows")
        model, slice_, window = question.against
        config = self._config(model)
        if config is None:
            detail = "the model that is compared with is gone"
            raise CalibrationInputError.at("/against_model", "unknown_model", detail)
        read = self._panes.each if by_pane else self._panes.merged
        state = read(config, slice_, Window(*window), wanted)
        return state.merged if state.merged is not None else state.panes, state.version

    def _records(
        self, config: ModelConfig, question: QueryRequest, state: WindowState
    ) -> WindowRecords:
        partition = self._store.keys.partition_of(config.key)
        keys, node = self._store.keys.partition(partition), self._store.node(partition)
        return WindowRecords(node, keys, config, question.slice, state.window, state.marks)

    def _config(self, model: str) -> ModelConfig | None:
        partition = self._store.keys.partition_of(model)
        models = self._store.keys.partition(partition).models
        return read_configs(self._store.node(partition), models, [model]).get(model)

    def _alarm(
        self,
        config: ModelConfig,
        question: QueryRequest,
        window: Window,
        sealed_parts: tuple[str, ...],
    ) -> AlarmView | None:
        """What the store holds of the model's alarm, for the kinds of answers that rest on it."""
        if question.kind not in READ_ALARM:
            return None
        partition = self._store.keys.partition_of(config.key)
        keys, node = self._store.keys.partition(partition), self._store.node(partition)
        view = read_view(node, keys, config, question.slice, window, question.params)
        since = view.since_baseline(config)
        if since is None or not sealed_parts:
            return view
        wanted = tuple(sorted(sealed_parts))
        state = self._panes.merged(config, sealed_slice(plain_slice(question.slice)), since, wanted)
        return replace(view, sealed=state.merged)


def _recorded(state: WindowState) -> WindowState:
    """The same under the name of a state whose records are read too."""
    starts = (start_s for start_s, _ in state.spans)
    return replace(state, version=with_records(state.version, starts, state.marks))


def _told(status: str, version: str, detail: str) -> Reply:
    return Reply(status, version, json.dumps({"detail": detail}).encode())


def _headed(
    config: ModelConfig, slice_: str, state: WindowState, told: dict[str, Any]
) -> dict[str, Any]:
    """What every answer starts with: of which model, slice, clock, window and state it is.

    A window without a beginning begins where its data do.
    """
    window = state.window
    if window.from_s == 0 and state.spans:
        window = Window(state.spans[0][0], window.to_s)
    head = {"model": config.model, "window": window.to_dict(), "state_version": state.version}
    if (name := plain_slice(slice_)) != "":
        head["slice"] = name
    advice = told.get("recommendation")
    if isinstance(advice, dict):
        told = {**told, "recommendation": _with_next(advice, told, config, window, name)}
    return head | _clock(config, slice_, state) | told


def _with_next(
    advice: dict[str, Any], told: dict[str, Any], config: ModelConfig, window: Window, slice_: str
) -> dict[str, Any]:
    """Return a recommendation with the request that carries it out: on the window, or on what followed a change."""
    view: dict[str, Any] = {"slice": slice_ or None}
    since = told.get("effect_since")
    if since is None:
        span = window.to_dict()
        since, view["to"] = span["from"], span["to"]
    is_binary = config.task == "binary"
    following = next_request(advice["action"], config.model, is_binary, since, **view)
    return advice if following is None else {**advice, "next": following}


def _clock(config: ModelConfig, slice_: str, state: WindowState) -> dict[str, Any]:
    """Where labels are waited for: which clock it is, and whether all that were waited for have had their time."""
    if config.label_horizon_s is None:
        return {}
    sealed_to = Window(0, state.marks.sealed_to).to_at if state.marks.sealed_to else None
    ends = max((start_s + length_s for start_s, length_s in state.spans), default=0)
    return {
        "clock": "sealed" if is_sealed(slice_) else "event",
        "sealed_to": None if sealed_to is None else rfc3339(sealed_to),
        "matured": ends <= state.marks.sealed_to if state.spans else None,
    }
