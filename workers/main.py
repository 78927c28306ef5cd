"""`python -m workers`: the engine in a process of its own."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import Any

# Matrices here are small, and threads of a linear algebra library would wait for each other on busy cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from redis.exceptions import RedisError

from calibrant import kernel
from calibrant_server.workers.engine import Engine
from calibrant_server.workers.logs import configure_logs
from calibrant_server.workers.memory import prepare_process
from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.properties import StoreMismatch
from calibrant_server.workers.store.server_files import EmbeddedServerError
from calibrant_server.workers.store.store_of_settings import store_of, with_partitions_of_store
from calibrant_server.workers.store.transient_errors import is_worth_repeating, store_message
from calibrant_server.workers.supervisor import Supervisor

__all__ = ["Engine", "main", "run"]

log = logging.getLogger(__name__)

PAUSE_S = 0.5
# EX_CONFIG, EX_UNAVAILABLE and EX_SOFTWARE of sysexits.h.
EXIT_SETTINGS, EXIT_NO_STORE, EXIT_STUCK = 78, 69, 70


def _exit_stuck(partition: int) -> None:
    """End the process: its supervisor restarts it, and no thread continues to spin."""
    log.critical("process_ends_stuck partition=%d", partition)
    os._exit(EXIT_STUCK)


def run(settings: EngineSettings, stop: threading.Event, **parts: Any) -> None:
    """Run the engine until `stop` is set."""
    with store_of(settings) as stored:
        supervisor = _started(stored, stop, on_stuck=_exit_stuck, on_mismatch=stop.set, **parts)
        if supervisor is None:
            return
        log.info("engine_started n_partitions=%d", supervisor.settings.partitions)
        log.info("panes_filled_by kernel=%s", kernel.status())
        stop.wait()
        supervisor.stop()
        if supervisor.mismatch is not None:
            raise supervisor.mismatch


def _started(settings: EngineSettings, stop: threading.Event, **parts: Any) -> Supervisor | None:
    """Start the threads, waiting for a store that is away; return None if stopped first.

    Without a limit: a worker that ended would only be started again. Until it has reached the store, health is red.
    """
    supervisor: Supervisor | None = None
    is_new = True
    while not stop.is_set():
        try:
            if supervisor is None:
                supervisor = Supervisor(with_partitions_of_store(settings), **parts)
            supervisor.start()
            return supervisor
        except RedisError as error:
            if not is_worth_repeating(error):
                raise
            if supervisor is not None:
                supervisor.store.state.failed(error)
            if is_new:
                log.warning("worker_waits_for_store error=%s", store_message(error))
            is_new = False
            stop.wait(PAUSE_S)
    return None


def main(**parts: Any) -> int:
    """Run the process with settings from the environment, until SIGTERM or SIGINT."""
    configure_logs()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    prepare_process()
    return run_reported(stop, **parts)


def run_reported(stop: threading.Event, **parts: Any) -> int:
    """Run the engine until `stop` is set; log why it cannot run, and return the exit code."""
    try:
        run(EngineSettings(), stop, **parts)
    except SettingsError as error:
        log.critical("worker_not_started error=%s", error)
        return EXIT_SETTINGS
    except (EmbeddedServerError, StoreMismatch, RedisError) as error:
        log.critical("worker_not_started error=%s", error)
        return EXIT_NO_STORE
    return 0


if __name__ == "__main__":
    sys.exit(main())
