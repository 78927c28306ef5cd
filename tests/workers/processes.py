"""Worker processes to be killed."""

from __future__ import annotations

import signal
import sys
import time

from calibrant_server.workers import main, supervisor
from calibrant_server.workers.ingest.partition_loop import PartitionLoop
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.script import scripts
from tests.forking import ForkedProcess
from tests.waiting import PATIENCE_S
from tests.workers.driving import QUICK, FreeLeases
from tests.workers.ledger import ledger_ground

TOKEN_CHECK = "if current ~= ARGV[1] then return {0, current} end"


class ForgetfulLoop(PartitionLoop):
    """A mutant: does not ask what became of a batch id."""

    def _add(self, group, items):
        look_up = self._reader.look_up

        def forget(found):
            look_up(found)
            for item in found:
                item.record = None

        self._reader.look_up = forget
        try:
            super()._add(group, items)
        finally:
            self._reader.look_up = look_up


def without_token_check() -> dict[str, str]:
    """Scripts of a mutant: every commit is accepted, whatever its token."""
    text = scripts()["commit"]
    assert TOKEN_CHECK in text
    return {**scripts(), "commit": text.replace(TOKEN_CHECK, "")}


class EverybodysLeases(FreeLeases):
    """Every worker holds every partition, all the time."""

    def __init__(self, store, on_stuck=None):
        self.name = "everybody"

    def beat(self):
        pass

    leave = beat


class WorkerProcess:
    """A worker in a process of its own, started again as often as it dies."""

    def __init__(self, settings, mode="", constants=()):
        self._settings = settings
        self._constants = [
            (module.__name__, name, value) for module, name, value in (*QUICK, *constants)
        ]
        self._mode = mode
        self._process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self._process.kill()
        self._process.wait()

    def start(self):
        """Begin (again)."""
        kept = self._settings.model_dump(mode="json")
        self._process = ForkedProcess(work, self._mode, kept, self._constants)

    def signal(self, number):
        """Send a signal."""
        self._process.send_signal(number)

    def kill_and_start(self):
        """kill -9, and a new one."""
        self._process.kill()
        self._process.wait()
        self.start()

    def keep_alive_until(self, condition, seconds=PATIENCE_S):
        """Start it again whenever it dies, until something holds; returns how often it died."""
        deadline, deaths = time.monotonic() + seconds, 0
        while not condition():
            assert time.monotonic() < deadline, f"not done after {deaths} deaths"
            if self._process.poll() is not None:
                deaths += 1
                self.start()
            time.sleep(0.02)
        return deaths

    def terminate(self):
        """End it in good order; returns its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=PATIENCE_S)


def work(mode: str, kept: dict, constants: list) -> int:
    """The process."""
    settings = EngineSettings(**kept)
    for module, name, value in constants:
        assert hasattr(sys.modules[module], name)
        setattr(sys.modules[module], name, value)
    parts = {}
    if "no-lease" in mode:
        supervisor.Leases = EverybodysLeases  # type: ignore[attr-defined]
    if "no-token" in mode:
        parts["script_texts"] = without_token_check()
    if "no-dedupe" in mode:
        parts["loop"] = ForgetfulLoop
    main.EngineSettings = lambda: settings  # type: ignore[attr-defined]
    numbers = Numerics() if "real" in mode else ledger_ground()
    return main.main(numbers=numbers, **parts)
