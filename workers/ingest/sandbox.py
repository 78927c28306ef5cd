"""Sandbox: reduces one entry at a time in a disposable process, where an entry may kill its reader.

An entry counts as a killer only after two deaths: a process dies of it, and then a new process dies of it again. The
process is spawned rather than forked, because the worker has threads and its memory would count against the limit.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import ModuleType

from calibrant.accumulators.sample import MAX_PANE_BYTES
from calibrant.core.errors import Violation
from calibrant.core.pane import Pane
from calibrant_server.workers.ingest import sandbox_child
from calibrant_server.workers.ingest.entries import IngestEntry
from calibrant_server.workers.ingest.posted_sums import Claim, LiftedSample
from calibrant_server.workers.ingest.reduce import (
    Numerics,
    Reduction,
    numerics_at,
    reduce_entry,
)
from calibrant_server.workers.store.keys import PaneKey
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.transient_errors import NO_VERDICT

DEATHS_THAT_PROVE = 2
START_S = 60.0
END_S = 5.0
READY = "ready"
_SPAWN = multiprocessing.get_context("spawn")
_starting = threading.Lock()


class EntryKills(RuntimeError):
    """Two processes died of an entry; the message says how."""


class ChildUnavailable(OSError):
    """The process cannot be started or used at present; this says nothing about an entry."""


class EntryRejected(RuntimeError):
    """The entry raised an ordinary error in the sandbox."""

    def __init__(self, kind: str, detail: str, violations: list[Violation]):
        super().__init__(detail)
        self.kind = kind
        self.violations = violations


class ChildDied(Exception):
    """The process died; the message says how."""


@dataclass(frozen=True)
class Reduced:
    """Reply: what an entry adds. Deltas are packed; `joined` tells that records by id are involved.

    Rows are replied as the delta of the pane of all rows. A reader that finds a slice in `touched` reduces the entry again.
    """

    n: int
    joined: bool
    touched: set[PaneKey]
    deltas: dict[PaneKey, bytes]
    claims: list[Claim]
    lifted: list[LiftedSample]


@dataclass(frozen=True)
class Rejected:
    """Reply: an ordinary error."""

    kind: str
    detail: str
    violations: list[Violation]


@dataclass(frozen=True)
class Exhausted:
    """Reply: the memory limit was reached, which counts as a death."""

    detail: str = "it needed more memory than allowed"


@dataclass(frozen=True)
class Unavailable:
    """Reply: the machine rejected a request of the process; no verdict."""

    detail: str


Reply = Reduced | Rejected | Exhausted | Unavailable


class DisposableReducer:
    """Reduces entries in a process that may die of them."""

    def __init__(self, numerics: Numerics, timeout_s: float, memory_bytes: int):
        self._numerics = numerics
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._running: tuple[SpawnProcess, Connection] | None = None

    def reduce(self, entry: IngestEntry, config: ModelConfig) -> tuple[Reduction, int]:
        """Reduce one entry.

        Raises
        ------
        EntryKills
            A process died of it, and a fresh one again.
        EntryRejected
            It raised an ordinary error.
        OSError
            The machine rejected a process or a pipe, here or in the process: no verdict.
        """
        deaths: list[str] = []
        while len(deaths) < DEATHS_THAT_PROVE:
            try:
                return self.read_reply(self._exchange(entry, config), entry)
            except ChildDied as death:
                deaths.append(str(death))
                self.close()
            except NO_VERDICT:
                # What is left in its connection belongs to no request.
                self.close()
                raise
        raise EntryKills(f"the process that reduces the entry died twice: {deaths[-1]}")

    def close(self) -> None:
        """End the process, if there is one."""
        running, self._running = self._running, None
        if running is not None:
            process, connection = running
            process.kill()
            process.join()
            process.close()
            connection.close()

    def child(self) -> tuple[SpawnProcess, Connection]:
        """Return the process, which has said that it is ready, and the connection to it."""
        if self._running is not None and not self._running[0].is_alive():
            # It ended between two entries: the next one had no part in it.
            self.close()
        if self._running is None:
            ours, theirs = _SPAWN.Pipe()
            arguments = (theirs, self._numerics.path, self._memory_bytes)
            process = _SPAWN.Process(target=sandbox_child.run, args=arguments, daemon=True)
            try:
                with theirs, _no_main_module():
                    process.start()
            except BaseException:
                ours.close()
                raise
            self._running = process, ours
            self._await_ready(*self._running)
        return self._running

    def _await_ready(self, process: SpawnProcess, connection: Connection) -> None:
        """Starting is not the entry's fault: it has a time limit of its own, and a failure is not a death."""
        try:
            if connection.poll(START_S) and connection.recv() == READY:
                return
        except (EOFError, OSError) as error:
            detail = f"the process that reduces entries did not start: {_end_of(process)}"
            raise ChildUnavailable(detail) from error
        raise ChildUnavailable("the process that reduces entries did not start")

    def _exchange(self, entry: IngestEntry, config: ModelConfig) -> Reply:
        process, connection = self.child()
        deadline = time.monotonic() + self._timeout_s
        # Also ends a process that stops in the middle of a message, for which `poll` would not wait.
        timer = threading.Timer(self._timeout_s, process.kill)
        timer.start()
        try:
            connection.send((entry, config))
            reply: Reply = connection.recv()
        except (EOFError, OSError) as error:
            if time.monotonic() >= deadline:
                raise ChildDied(f"it took longer than {self._timeout_s:g} s") from error
            process.join(END_S)
            if process.exitcode is None and not isinstance(error, EOFError):
                raise
            raise ChildDied(_end_of(process)) from error
        finally:
            timer.cancel()
            timer.join()
        return reply

    def read_reply(self, reply: Reply, entry: IngestEntry) -> tuple[Reduction, int]:
        """Return the reduction in a reply, and the number of predictions; raise what else it tells."""
        if isinstance(reply, Exhausted):
            raise ChildDied(reply.detail)
        if isinstance(reply, Unavailable):
            raise ChildUnavailable(reply.detail)
        if isinstance(reply, Rejected):
            raise EntryRejected(reply.kind, reply.detail, reply.violations)
        reduction = Reduction()
        reduction.has_ids = reply.joined
        for key, packed in reply.deltas.items():
            reduction.deltas[key] = self._numerics.pane.unpack(packed)
        reduction.lifted = list(reply.lifted)
        reduction.claims = [(entry.id, claim) for claim in reply.claims]
        reduction.touched = {*reply.touched, *reply.deltas, *(claim.pane for claim in reply.claims)}
        return reduction, reply.n


@contextmanager
def _no_main_module() -> Iterator[None]:
    """Hide the main module while a process is spawned: it would load it, and a script may have no guard."""
    with _starting:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _end_of(process: SpawnProcess) -> str:
    process.join(END_S)
    code = process.exitcode
    if code is None:
        return "it closed its connection"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def reply_to(entry: IngestEntry, config: ModelConfig, numerics: Numerics) -> Reply:
    """Reduce one entry, in the sandbox."""
    reduction = Reduction()
    try:
        n = reduce_entry(entry, config, numerics, reduction)
        reduction.close(numerics)
        reduction.changes(numerics)
        deltas = {key: new.pane(numerics, MAX_PANE_BYTES) for key, new in reduction.rows.items()}
        lifted = reduction.lifted + _lifted(deltas, numerics)
        return Reduced(
            n,
            reduction.has_ids,
            reduction.touched,
            {key: delta.pack() for key, delta in (deltas | reduction.deltas).items()},
            [claim for _, claim in reduction.claims],
            lifted,
        )
    except MemoryError:
        return Exhausted()
    except NO_VERDICT as error:
        return Unavailable(f"{type(error).__name__}: {error}"[:500])
    except Exception as error:
        violations = list(getattr(error, "violations", []))
        return Rejected(type(error).__name__, str(error)[:500], violations)


def serve(connection: Connection, numerics_path: str, memory_bytes: int) -> None:
    """Limit this process, report that it is ready, and reply to requests until the connection ends."""
    numerics = numerics_at(numerics_path)
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    connection.send(READY)
    while True:
        try:
            entry, config = connection.recv()
        except EOFError:
            return
        connection.send(reply_to(entry, config, numerics))


def _lifted(deltas: dict[PaneKey, Pane], numerics: Numerics) -> list[LiftedSample]:
    """Take the samples of panes of all rows out of them."""
    if not numerics.keeps_samples:
        return []
    found = [
        LiftedSample.of(pane, [key])
        for key, pane in deltas.items()
        if pane.keeps("sample") and not pane.sample.is_empty
    ]
    for pane in deltas.values():
        pane.drop_sample()
    return found
