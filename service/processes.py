"""Several processes on one port: a parent that starts, restarts and stops them, and serves nothing itself.

The parent has loaded the code and has no threads, so a process is a fork of it: it starts in a fraction of a second, and
shares the loaded code's memory. With the embedded store, three more processes have the engine: one manages the store, merges and
sends webhooks; one computes fast queries, and one slow ones, so that a result waits neither for the
interpreter of the one that merges nor for that of a slow query. They start first and are stopped last. Where cores are
few, merging and slow queries have less of them (`BACKGROUND_NICE`).

All processes accept from the same sockets, so that no connection waits for a process that died.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from types import FrameType

from calibrant_server.service.engine import Board
from calibrant_server.workers.main import run, run_queries, run_reported
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.store_of_settings import (
    running_store_of,
    with_partitions_of_store,
)

POLL_S = 0.1
START_S = 120.0  # for the store to load its file, and for one process to start
STOP_S = 30.0  # longer than the service waits for responses in progress
# Pause before a restart: doubled by each death, until a process has lived long enough.
FIRST_PAUSE_S, MAX_PAUSE_S, STABLE_S = 0.2, 30.0, 60.0
EXIT_NOT_STARTED, EXIT_NOT_STOPPED = 3, 1
# Added to the nice value of the processes that merge and that compute slow queries. It only matters where cores are busy: then
# requests and fast queries come before them.
BACKGROUND_NICE = 10

N_OF_ENGINE = 3
log = logging.getLogger("service.processes")
_context = multiprocessing.get_context("fork")


@dataclass
class Child:
    """A process that is restarted when it ends.

    Attributes
    ----------
    number : its place on the board
    work : what it does
    """

    name: str
    number: int
    work: Callable[[], None]
    process: BaseProcess | None = None
    started_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    restart_at: float | None = None

    def start(self) -> None:
        """Start it, or start it again."""
        self.restart_at = None
        self.started_at = time.monotonic()
        process = _context.Process(target=_run, args=(self.work,), name=self.name)
        process.start()
        self.process = process
        log.info("service_process_started process=%s pid=%d", self.name, process.pid)

    @property
    def exit_code(self) -> int | None:
        """Exit code of a process that has ended; negative: the signal that ended it."""
        return None if self.process is None else self.process.exitcode

    def send(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.process is not None and self.process.pid is not None and self.exit_code is None:
            os.kill(self.process.pid, number)


def _run(work: Callable[[], None]) -> None:
    # Until the work sets handlers of its own: an interrupt at the terminal reaches all processes, and the parent orders the stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    work()


class Processes:
    """The processes of one service.

    Parameters
    ----------
    serve : serves as the process of a number, from 0
    n : how many serve
    engine : what further processes do, by name; empty: the engine runs elsewhere. They start one after the other
    board : on which a process notes that it runs
    sockets : of the port; closed at the stop
    on_end : called with the number of a process that has ended
    """

    def __init__(
        self,
        serve: Callable[[int], None],
        n: int,
        engine: Mapping[str, Callable[[], None]],
        board: Board,
        sockets: Sequence[socket.socket],
        on_end: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._engine = [Child(name, n + i, work) for i, (name, work) in enumerate(engine.items())]
        self._serving = [Child(f"http-{i}", i, lambda i=i: serve(i)) for i in range(n)]  # type: ignore[misc]
        self._board, self._sockets, self._on_end = board, sockets, on_end
        self._stops = False

    def run(self) -> int:
        """Run until SIGTERM or SIGINT; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        is_started = self._start_all()
        while is_started and not self._stops:
            for child in self._children:
                self._watch(child)
            time.sleep(POLL_S)
        is_stopped = self._stop_all()
        if not is_started and not self._stops:
            return EXIT_NOT_STARTED
        return 0 if is_stopped else EXIT_NOT_STOPPED

    @property
    def _children(self) -> list[Child]:
        return [*self._engine, *self._serving]

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stops = True

    def _start_all(self) -> bool:
        """Start the engine, then the others; return whether all run."""
        for group in (*([child] for child in self._engine), self._serving):
            for child in group:
                child.start()
            if not self._are_ready(group):
                return False
        return True

    def _are_ready(self, group: Sequence[Child]) -> bool:
        deadline = time.monotonic() + START_S
        while not self._stops:
            ended = [child for child in group if child.exit_code is not None]
            if ended:
                log.critical("service_process_not_started process=%s", ended[0].name)
                return False
            if all(self._board.runs(child.number) for child in group):
                return True
            if time.monotonic() > deadline:
                log.critical("service_not_started seconds=%g", START_S)
                return False
            time.sleep(POLL_S / 10)
        return False

    def _watch(self, child: Child) -> None:
        """Restart a process that has ended, after a pause."""
        now = time.monotonic()
        if child.exit_code is None:
            return
        if child.restart_at is None:
            self._board.note(child.number, runs=False)
            self._on_end(child.number)
            if now - child.started_at > STABLE_S:
                child.pause_s = FIRST_PAUSE_S
            child.restart_at = now + child.pause_s
            detail = (child.name, child.exit_code, child.pause_s)
            log.error("service_process_ended process=%s exit_code=%d restart_in_s=%g", *detail)
            child.pause_s = min(2 * child.pause_s, MAX_PAUSE_S)
        elif now >= child.restart_at:
            self._board.count_restart()
            child.start()

    def _stop_all(self) -> bool:
        """Stop those that serve, then the engine; return whether all ended by themselves."""
        for each in self._sockets:
            each.close()
        groups = [self._serving, *([child] for child in reversed(self._engine))]
        return all([self._end(group) for group in groups])

    def _end(self, group: Sequence[Child]) -> bool:
        for child in group:
            child.send(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for child in group:
            if child.process is not None:
                child.process.join(max(0.0, deadline - time.monotonic()))
        left = [child for child in group if child.process is not None and child.exit_code is None]
        for child in left:
            log.error("service_process_killed process=%s seconds=%g", child.name, STOP_S)
            child.send(signal.SIGKILL)
        return not left


def engine_works(settings: EngineSettings, board: Board) -> dict[str, Callable[[], None]]:
    """Return what the processes of the engine do, by name."""

    def started() -> EngineSettings:
        return with_partitions_of_store(running_store_of(settings))

    merging, nice = settings.replace(compute_threads=0), BACKGROUND_NICE
    slow_queries = partial(run_queries, queues="slow", nice=nice)
    works: list[tuple[str, Callable[..., None], Callable[[], EngineSettings]]] = [
        ("engine", partial(run, nice=nice), lambda: merging),
        ("queries", run_queries, started),
        ("slow-queries", slow_queries, started),
    ]
    return {
        name: partial(_run_engine, work, given, partial(board.note, board.n + i))
        for i, (name, work, given) in enumerate(works)
    }


def _run_engine(
    work: Callable[..., None],
    settings: Callable[[], EngineSettings],
    on_start: Callable[[], None],
) -> None:
    """Do this work until SIGTERM, or until the parent has died."""
    stop, parent = threading.Event(), os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def watch_parent() -> None:
        while not stop.wait(1.0):
            if os.getppid() != parent:
                stop.set()

    threading.Thread(target=watch_parent, name="parent-watch", daemon=True).start()
    sys.exit(run_reported(settings, stop, work, on_start=on_start))
