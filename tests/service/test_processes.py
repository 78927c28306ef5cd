"""The parent of several processes, with processes that do little; `tests/end_to_end/test_several_processes.py` has real ones."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from calibrant_server.service import processes
from calibrant_server.service.engine import Board
from calibrant_server.service.http.connections import MAX_CONNECTIONS
from calibrant_server.service.processes import EXIT_NOT_STARTED, EXIT_NOT_STOPPED, Processes
from calibrant_server.service.reads.observation import process_series
from calibrant_server.service.settings import MIB, Settings
from calibrant_server.service.startup import CannotListen, bound_to, connection_limit
from tests.forking import ForkedProcess
from tests.waiting import PATIENCE_S, eventually


def idle(board: Board, number: int) -> None:
    """Run until stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    board.note(number)
    while True:
        time.sleep(0.02)


def parent_of_idle(folder: str) -> int:
    """Two processes and an engine."""

    board = Board(2, 1)

    def serve(number: int) -> None:
        Path(folder, f"{number}-{os.getpid()}").touch()
        idle(board, number)

    return Processes(serve, 2, {"engine": lambda: idle(board, 2)}, board, []).run()


def pids(folder: Path, number: int) -> list[int]:
    return [int(each.name.partition("-")[2]) for each in folder.glob(f"{number}-*")]


def test_a_process_that_ends_is_restarted(tmp_path):
    parent = ForkedProcess(parent_of_idle, str(tmp_path))
    eventually(lambda: pids(tmp_path, 0) and pids(tmp_path, 1))
    (first,) = pids(tmp_path, 1)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(pids(tmp_path, 1)) == 2)
    assert len(pids(tmp_path, 0)) == 1
    parent.terminate()
    assert parent.wait(PATIENCE_S) == 0
    for pid in (*pids(tmp_path, 0), *pids(tmp_path, 1)):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def parent_of_failing() -> int:
    board = Board(2)
    return Processes(lambda number: sys.exit(number), 2, {}, board, []).run()


def test_a_process_that_cannot_start_ends_the_service():
    assert ForkedProcess(parent_of_failing).wait(PATIENCE_S) == EXIT_NOT_STARTED


def parent_of_stubborn(folder: str) -> int:
    processes.STOP_S = 0.2

    def serve(number: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(folder, f"{number}-{os.getpid()}").touch()
        board.note(number)
        time.sleep(PATIENCE_S)

    board = Board(1)
    return Processes(serve, 1, {}, board, []).run()


def test_a_process_that_does_not_stop_is_killed(tmp_path):
    parent = ForkedProcess(parent_of_stubborn, str(tmp_path))
    eventually(lambda: pids(tmp_path, 0))
    parent.terminate()
    assert parent.wait(PATIENCE_S) == EXIT_NOT_STOPPED


def test_bounds_are_divided_among_the_processes():
    part = Settings(processes=2, max_streams=5).part_of_process()
    assert (part.max_bytes_in_hand, part.max_streams) == (128 * MIB, 3)
    assert connection_limit(2) <= MAX_CONNECTIONS // 2
    many = Settings(processes=16).part_of_process()
    assert many.max_bytes_in_hand == 96 * MIB, "one largest body, sent and decompressed"
    assert Settings().part_of_process() == Settings()


def test_a_port_of_another_service_is_found_before_it_is_shared():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CannotListen):
            bound_to("127.0.0.1", taken.getsockname()[1])


def test_the_board_is_truthful():
    board = Board(2, 3)
    board.note(2)
    board.note(3)
    assert not board.is_engine_alive, "two of its three processes"
    for number in (0, 1, 4):
        board.note(number)
    board.count_restart()
    assert board.is_engine_alive
    values = {m.name: m.samples[0].value for m in process_series(board)}
    assert values == {"calibrant_service_processes": 2, "calibrant_service_process_restarts": 1}
    board.note(2, runs=False)
    assert not board.is_engine_alive and Board(1).is_engine_alive
    assert next(process_series(None)).samples[0].value == 1
