"""Question → window → answer. `workers/serving.py` takes questions from the store.

The panes of a window are read together with their versions, so that they are one state; only the parts that the answer
reads are fetched. Decoded panes and merged windows are kept by version, answers in the store by state version: nothing
is invalidated, old versions are merely never asked for again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from math import isqrt
from pkgutil import iter_modules
from typing import Any

from redis.exceptions import RedisError

from calibrant.errors import CalibrationInputError
from workers import answers
from workers.alarm.view import AlarmView, read_view
from workers.filling import Ground
from workers.questions import FAILED, OK, REFUSED, UNKNOWN, Question, Reply
from workers.recent import Recent
from workers.state.keys import SOURCE_FIELD, PaneKey
from workers.state.marks import Marks, fields_of, is_sealed, plain_slice
from workers.state.registry import ModelConfig, read_configs
from workers.store import Store
from workers.versions import READ_ALARM, joined, name_state, panes_in, seed_of
from workers.windows import Dated, Window, rfc3339

log = logging.getLogger(__name__)
_TRIES = 20
_PANES_A_RUN = 256
_PANE_OVERHEAD_BYTES = 2000


@dataclass(frozen=True)
class AnswerFunction:
    """One kind of answer.

    Attributes
    ----------
    compute : (pane, config, params, seed) -> JSON-able dict; with `by_pane` the first argument is a list of `Dated`, with
        `paired` a pair of panes, the second of what the question is asked against
    parts : (params) -> names of the accumulators it reads, or None for all
    reads_panes : the first argument is None where it reads none
    is_slow : (params) -> whether it may take seconds, so that quick answers shall not wait behind it

    Kinds in `READ_ALARM` are given an `AlarmView` as a fifth argument.
    """

    compute: Callable[..., dict[str, Any]]
    parts: Callable[[dict[str, Any]], Iterable[str] | None] = lambda params: None
    by_pane: bool = False
    reads_panes: bool = True
    paired: bool = False
    is_slow: Callable[[dict[str, Any]], bool] = lambda params: False


def find_answers() -> dict[str, AnswerFunction]:
    """The answers of the folder `workers/answers`: one module a kind, named as the kind.

    A module has `answer(pane, config, params, seed)`, and may have `parts(params)`, `is_slow(params)`, `BY_PANE = True`
    and `READS_PANES = False`.
    """
    found = {}
    for each in iter_modules(answers.__path__):
        module = import_module(f"{answers.__name__}.{each.name}")
        parts = getattr(module, "parts", lambda params: None)
        found[each.name] = AnswerFunction(
            module.answer,
            parts,
            getattr(module, "BY_PANE", False),
            getattr(module, "READS_PANES", True),
            getattr(module, "PAIRED", False),
            getattr(module, "is_slow", lambda params: False),
        )
    return found


ANSWERS: dict[str, AnswerFunction] = find_answers()


@dataclass(frozen=True)
class State:
    """The panes of a window as one state, oldest first, and the window as its boundaries are now."""

    version: str
    panes: list[Dated]
    window: Window
    marks: Marks


class Compute:
    """Answers questions from the state in the store. One object may serve several threads."""

    def __init__(
        self, store: Store, ground: Ground, functions: dict[str, AnswerFunction] | None = None
    ):
        self._store = store
        self._settings = store.settings
        self._ground = ground
        self._functions = ANSWERS if functions is None else functions
        self._panes: Recent[Any, Any] = Recent(self._settings.pane_cache_bytes)
        self._windows: Recent[Any, Any] = Recent(self._settings.window_cache_entries)
        self._neighbourhoods: Recent[Any, Any] = Recent(2 * self._settings.window_cache_entries)

    def is_slow(self, question: Question) -> bool:
        """Whether an answer of this kind may take seconds."""
        function = self._functions.get(question.kind)
        return function is not None and function.is_slow(question.params)

    def answer(self, question: Question) -> Reply:
        """Compute an answer; errors are answers too."""
        function = self._functions.get(question.kind)
        if function is None:
            return _told(UNKNOWN, "", f"no answer is called {question.kind}")
        version = ""
        try:
            config = self._config(question.model)
            if config is None:
                return _told(UNKNOWN, "", "the model is gone")
            parts = function.parts(question.params)
            wanted = None if parts is None else tuple(sorted(set(parts)))
            window = Window(*question.window)
            view = self._alarm(config, question, window)
            alarm = view.version if view else b""
            if function.reads_panes:
                state = self._state(config, question.slice, window, wanted, alarm)
            else:
                state = self._versions_alone(config, question.slice, window, alarm)
            version = state.version
            by_pane = function.by_pane or not function.reads_panes
            subject = state.panes if by_pane else self._merged(config, state, wanted)
            if function.paired:
                other, theirs = self._other(question, wanted)
                subject, version = (subject, other), joined(version, theirs)
                state = replace(state, version=version)
            given = [] if view is None else [view]
            told = function.compute(subject, config, question.params, seed_of(version), *given)
            body = json.dumps(
                _headed(config, question.slice, state, told),
                allow_nan=False,
                separators=(",", ":"),
            ).encode()
            return Reply(OK, version, body)
        except RedisError:
            raise
        except Exception as error:
            offences = getattr(error, "offences", None)
            if offences:
                body = json.dumps({"offences": [asdict(each) for each in offences]}).encode()
                return Reply(REFUSED, version, body)
            log.exception("the answer %s failed", question.kind)
            return _told(FAILED, version, f"{type(error).__name__}: {error}")

    def _other(self, question: Question, wanted: tuple[str, ...] | None) -> tuple[Any, str]:
        """The pane that a question is asked against, and the version of its state."""
        if question.against is None:
            raise ValueError("this answer is of two windows")
        model, slice_, window = question.against
        config = self._config(model)
        if config is None:
            detail = "the model that is compared with is gone"
            raise CalibrationInputError.at("/against_model", "unknown_model", detail)
        state = self._state(config, slice_, Window(*window), wanted)
        return self._merged(config, state, wanted), state.version

    def _config(self, model: str) -> ModelConfig | None:
        partition = self._store.keys.partition_of(model)
        models = self._store.keys.partition(partition).models
        return read_configs(self._store.node(partition), models, [model]).get(model)

    def _alarm(self, config: ModelConfig, question: Question, window: Window) -> AlarmView | None:
        """What the store holds of the model's alarm, for the kinds of answers that rest on it."""
        if question.kind not in READ_ALARM:
            return None
        partition = self._store.keys.partition_of(config.key)
        keys, node = self._store.keys.partition(partition), self._store.node(partition)
        return read_view(node, keys, config, question.slice, window, question.params)

    def _versions_alone(
        self, config: ModelConfig, slice_: str, window: Window, alarm: bytes
    ) -> State:
        """The name of the state, and no pane."""
        partition = self._store.keys.partition_of(config.key)
        keys = self._store.keys.partition(partition)
        with self._store.node(partition).pipeline(transaction=True) as pipe:
            pipe.hgetall(keys.versions(config.key, config.generation, slice_))
            pipe.hmget(keys.marks(config.key, config.generation), fields_of(slice_))
            found, values = pipe.execute()
        marks = Marks.read(values)
        whole = marks.widened(window)
        version = name_state(config, slice_, whole, panes_in(found, whole), marks, alarm)
        return State(version, [], whole, marks)

    def _state(
        self,
        config: ModelConfig,
        slice_: str,
        window: Window,
        wanted: tuple[str, ...] | None,
        alarm: bytes = b"",
    ) -> State:
        """The panes of a window, all as they were at one moment.

        Read in runs; each run brings the versions of all panes along, and whatever has changed since it was read is
        read again, until everything held is of the versions that came with the last run.
        """
        partition = self._store.keys.partition_of(config.key)
        keys, node = self._store.keys.partition(partition), self._store.node(partition)
        versions_key = keys.versions(config.key, config.generation, slice_)
        marks_key = keys.marks(config.key, config.generation)
        asked = window
        with node.pipeline(transaction=True) as pipe:
            pipe.hgetall(versions_key)
            pipe.hmget(marks_key, fields_of(slice_))
            found, values = pipe.execute()
        marks = Marks.read(values)
        window = marks.widened(asked)
        versions = panes_in(found, window)
        held: dict[int, tuple[bytes, Any]] = {}
        for _ in range(_TRIES + len(versions) // _PANES_A_RUN):
            missing = []
            for start, version in versions.items():
                if start not in held or held[start][0] != version:
                    pane = self._panes.get(
                        (config.key, config.generation, slice_, start, version, wanted)
                    )
                    if pane is None:
                        missing.append(start)
                    else:
                        held[start] = (version, pane)
            if not missing:
                panes = [
                    Dated(start, marks.length(start, config.pane_s), held[start][1])
                    for start in versions
                ]
                name = name_state(config, slice_, window, versions, marks, alarm)
                return State(name, panes, window, marks)
            with node.pipeline(transaction=True) as pipe:
                pipe.hgetall(versions_key)
                pipe.hmget(marks_key, fields_of(slice_))
                for start in missing[:_PANES_A_RUN]:
                    _read_parts(
                        pipe,
                        keys.pane(PaneKey(config.key, config.generation, slice_, start)),
                        wanted,
                    )
                found, values, *replies = pipe.execute()
            marks = Marks.read(values)
            window = marks.widened(asked)
            versions = panes_in(found, window)
            for start, reply in zip(missing, replies, strict=False):
                if start in versions:
                    pane, weight = self._decode(config, reply, wanted)
                    version = versions[start]
                    pane_id = (config.key, config.generation, slice_, start, version, wanted)
                    held[start] = (version, self._panes.put(pane_id, pane, weight))
        raise RuntimeError("the window changed faster than it could be read")

    def _decode(
        self, config: ModelConfig, reply: Any, wanted: tuple[str, ...] | None
    ) -> tuple[Any, int]:
        """A pane, and the bytes it was packed in."""
        if wanted is None:
            named = {name.decode(): value for name, value in reply.items()}
            parts = {
                name: value for name, value in named.items() if not name.startswith(SOURCE_FIELD)
            }
        else:
            parts = {
                name: value for name, value in zip(wanted, reply, strict=True) if value is not None
            }
        pane = self._ground.pane.from_parts(self._ground.spec(config), parts, only=wanted)
        return pane, sum(map(len, parts.values())) + _PANE_OVERHEAD_BYTES

    def _merged(self, config: ModelConfig, state: State, wanted: Any) -> Any:
        """The merge of the panes. Answers must not change it: it is kept.

        Panes are merged in neighbourhoods and these with each other, because usually one pane has changed and the merges of
        all other neighbourhoods are still at hand.
        """
        if (kept := self._windows.get((state.version, wanted))) is not None:
            return kept
        merged = self._ground.window(self._ground.spec(config))
        size = max(2, isqrt(len(state.panes)))
        merged.merge_all(
            [
                self._neighbourhood(config, state.panes[first : first + size], wanted)
                for first in range(0, len(state.panes), size)
            ]
        )
        return self._windows.put((state.version, wanted), merged)

    def _neighbourhood(self, config: ModelConfig, panes: list[Dated], wanted: Any) -> Any:
        """The merge of a few panes. Panes are told apart as objects: a changed pane is decoded anew."""
        name = (wanted, tuple(id(each.pane) for each in panes))
        kept = self._neighbourhoods.get(name)
        if kept is not None:
            return kept[0]
        merged = self._ground.window(self._ground.spec(config))
        merged.merge_all([each.pane for each in panes])
        # The panes are kept along with their merge, so that no other object can come to have their identity.
        self._neighbourhoods.put(name, (merged, panes))
        return merged


def _read_parts(pipe: Any, name: str, wanted: tuple[str, ...] | None) -> None:
    if wanted is None:
        pipe.hgetall(name)
    else:
        pipe.hmget(name, wanted)


def _told(status: str, version: str, detail: str) -> Reply:
    return Reply(status, version, json.dumps({"detail": detail}).encode())


def _headed(
    config: ModelConfig, slice_: str, state: State, told: dict[str, Any]
) -> dict[str, Any]:
    """What every answer starts with: of which model, slice, clock, window and state it is.

    A window without a beginning begins where its data do.
    """
    window = state.window
    if window.from_s == 0 and state.panes:
        window = Window(state.panes[0].start_s, window.to_s)
    head = {"model": config.model, "window": window.to_dict(), "state_version": state.version}
    if (name := plain_slice(slice_)) != "":
        head["slice"] = name
    return head | _clock(config, slice_, state) | told


def _clock(config: ModelConfig, slice_: str, state: State) -> dict[str, Any]:
    """Where labels are waited for: which clock it is, and whether all that were waited for have had their time."""
    if config.label_horizon_s is None:
        return {}
    sealed_to = Window(0, state.marks.sealed_to).to_at if state.marks.sealed_to else None
    ends = max((each.start_s + each.length_s for each in state.panes), default=0)
    return {
        "clock": "sealed" if is_sealed(slice_) else "event",
        "sealed_to": None if sealed_to is None else rfc3339(sealed_to),
        "matured": ends <= state.marks.sealed_to if state.panes else None,
    }
