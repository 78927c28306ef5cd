"""Processes that are forked from one that has imported everything: they start in milliseconds, not in seconds of CPU.

The processes are as real as those of `python -m service`: they can be killed, stopped and restarted, and share nothing
with the test. `test_processes`, the README's commands and the demo start the documented commands themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PRELOADED = (
    "calibrant_server.service.main",
    "calibrant_server.service.app",
    "calibrant_server.workers.main",
    "tests.workers.processes",
)


@cache
def _context() -> ForkServerContext:
    # The server of forks skips a module that is not there, and each process would import everything itself.
    assert all(find_spec(name) for name in PRELOADED)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


class ForkedProcess:
    """A process that calls a function, with as much of the interface of `subprocess.Popen` as the tests use.

    Parameters
    ----------
    target, args : what it calls; the exit code is what that returns, 0 for None
    environment : its environment variables, all of them
    directory : its working directory
    log : where its output goes
    """

    def __init__(
        self,
        target: Callable[..., int | None],
        *args: Any,
        environment: dict[str, str] | None = None,
        directory: Path = ROOT,
        log: Path = Path(os.devnull),
    ) -> None:
        given = (target, args, dict(environment or os.environ), str(directory), str(log))
        self._process = _context().Process(target=_run, args=given)
        before = os.environ.get("PYTHONPATH")
        # The server of forks starts with the first process, and must find this package wherever pytest was started.
        os.environ["PYTHONPATH"] = str(ROOT)
        try:
            self._process.start()
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise TimeoutError(f"process {self.pid} has not ended after {timeout:g} s")
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def run_module(name: str) -> None:
    """Do in a forked process what `python -m name` does."""
    sys.argv = [name]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run(
    target: Callable[..., int | None],
    args: tuple[Any, ...],
    environment: dict[str, str],
    directory: str,
    log: str,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    with open(log, "ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    sys.exit(target(*args))
