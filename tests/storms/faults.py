"""Faults of one process of a deployment: kills, and stops that end. Whatever has ended is started again."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.end_to_end.deployment import Deployment
from tests.stores import StoreServer
from tests.storms.storm_thread import StormThread
from tests.waiting import eventually

KILL = "kill"
PAUSE_S = (0.5, 3.0)
DOWN_S = 1.0
# Processes are forked under it: the server of forks is shared.
STARTING = threading.Lock()


class FaultyProcess(StormThread):
    """Inflicts faults on one process, with pauses between, and restarts it as a supervisor would.

    Parameters
    ----------
    deployment, name : whose process
    faults : `kill`, or the seconds of a stop; in this order
    rng : of the pauses
    pause_s : shortest and longest pause
    """

    def __init__(
        self,
        deployment: Deployment,
        name: str,
        faults: list[str],
        rng: random.Random,
        pause_s: tuple[float, float] = PAUSE_S,
    ) -> None:
        super().__init__()
        self.deployment, self.name_, self.faults, self.rng = deployment, name, faults, rng
        self.pause_s = pause_s
        self.inflicted: Counter[str] = Counter()
        self.own_exits: Counter[str] = Counter()
        self.is_done = threading.Event()

    def work(self) -> None:
        try:
            for fault in self.faults:
                self._supervise(self.rng.uniform(*self.pause_s))
                self._inflict(fault)
                self.inflicted[fault] += 1
            self.is_done.set()
            while not self.may_end.is_set():
                self._supervise(0.2)
        finally:
            self.is_done.set()

    @property
    def is_private_store(self) -> bool:
        """Whether it is the embedded store, which the service itself starts again."""
        return self.name_ == "store" and not self.deployment.n_workers

    def _inflict(self, fault: str) -> None:
        pid = self._pid()
        if fault != KILL:
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(float(fault))
            finally:
                os.kill(pid, signal.SIGCONT)
            return
        if self.is_private_store:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        elif self.name_ == "store":
            self.deployment.kill("store")
            time.sleep(self.rng.uniform(0, DOWN_S))
            self.deployment.start("store")
        else:
            with STARTING:
                self.deployment.kill(self.name_)
            time.sleep(self.rng.uniform(0, DOWN_S))
            self._start()

    def _start(self) -> None:
        with STARTING:
            self.deployment.start(self.name_)

    def _supervise(self, seconds: float) -> None:
        """Wait; if the process ends by itself, start it again."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(0.1)
            if self.name_ == "store":
                continue
            with STARTING:
                code = self.deployment.processes[self.name_].poll()
            if code is not None:
                self.own_exits[f"{code}: {self._last_words()}"] += 1
                self._start()

    def _last_words(self) -> str:
        """Return the last events of its log, shortened; a process that ends must have named the reason."""
        lines = (self.deployment.directory / f"{self.name_}.log").read_text().splitlines()[-3:]
        return " | ".join(_event(line) for line in lines)

    def _pid(self) -> int:
        if self.is_private_store:
            return eventually(self._private_store_pid, pause_s=0.1)
        if self.name_ == "store":
            assert isinstance(self.deployment.store, StoreServer)
            return self.deployment.store.pid
        return self.deployment.processes[self.name_].pid

    def _private_store_pid(self) -> int:
        """Find the process that works in the directory of the embedded store; 0 if none does."""
        directory = str((self.deployment.directory / "data" / "store").resolve())
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if process.name.isdigit() and os.readlink(process / "cwd") == directory:
                    return int(process.name)
        return 0


def _event(line: str) -> str:
    try:
        return str(json.loads(line)["event"])[:200]
    except (ValueError, KeyError, TypeError):
        return line[:200]
