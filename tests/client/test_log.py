"""The background log: it never waits, stays within its memory, and knows the outcome of every row."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import numpy as np
import pytest

import calibrant as cal
from calibrant.client.errors import ServiceError, ServiceUnreachable
from calibrant.client.operations import Operation
from calibrant.client.outbox import MIN_BYTES
from calibrant.client.results import Receipt
from calibrant.client.row_log import LogOptions, RowLog
from tests.client.service import Service, problem
from tests.ports import reserved_port
from tests.waiting import PATIENCE_S, eventually

N_CALLS = 4000


class Wire:
    """A transport that does what a test says; `sent` has every request."""

    def __init__(self, respond: Callable[[Operation[Any]], Any] | None = None) -> None:
        self.sent: list[Operation[Any]] = []
        self.respond = respond or (lambda operation: accepted(1))

    def __call__(self) -> Wire:
        return self

    def once(self, operation: Operation[Any]) -> Any:
        self.sent.append(operation)
        return self.respond(operation)

    def close(self) -> None:
        pass


def accepted(n: int, rejected: int = 0) -> Receipt:
    errors = [{"pointer": "/labels/0", "rule": "class_range", "detail": "no"}] * rejected
    return Receipt.from_dict({"accepted": n, "rejected": rejected, "errors": errors})


@pytest.fixture
def blocked() -> Iterator[tuple[Wire, threading.Event]]:
    """A transport that blocks until the test ends."""
    release, reached = threading.Event(), threading.Event()

    def block(operation: Operation[Any]) -> Receipt:
        reached.set()
        release.wait(PATIENCE_S)
        return accepted(1)

    yield Wire(block), reached
    release.set()


def consistent(log: RowLog) -> None:
    found = log.statistics
    assert found.logged == (
        found.acknowledged + found.rejected + found.n_dropped + found.pending
    ), found


def test_a_blocked_sender_costs_the_caller_no_time(blocked):
    wire, reached = blocked
    log = RowLog("m", LogOptions(max_bytes=MIN_BYTES, linger=0.0), wire)
    row, seconds = np.array([[0.7, 0.2, 0.1]]), []
    log.log({"probabilities": row, "labels": [0]})
    assert reached.wait(PATIENCE_S)
    for i in range(N_CALLS):
        before = time.thread_time()
        log.log({"probabilities": row, "labels": [0], "ids": [f"p{i}"], "slices": {"site": ["A"]}})
        seconds.append(time.thread_time() - before)
    assert sorted(seconds)[int(0.999 * N_CALLS) - 1] <= 1e-3
    found = log.statistics
    assert found.dropped["full"] > 0 and found.pending > 0
    consistent(log)
    # Whatever the sender is blocked in, it holds no lock of the log.
    lock = log._outbox._changed
    assert lock.acquire(blocking=False)
    lock.release()
    assert log._sender._starting.acquire(blocking=False)
    log._sender._starting.release()
    assert not log.close(timeout=0.0)


def test_no_lock_is_held_while_something_is_sent():
    held: list[bool] = []

    def look(operation: Operation[Any]) -> Receipt:
        free = log._outbox._changed.acquire(blocking=False)
        held.append(not free)
        if free:
            log._outbox._changed.release()
        return accepted(1)

    log = RowLog("m", LogOptions(linger=0.0), Wire(look))
    for _ in range(5):
        log.log({"probabilities": [0.5], "labels": [1]})
        assert log.flush(PATIENCE_S)
    assert held == [False] * 5
    assert log.close(PATIENCE_S)


@pytest.mark.parametrize("n_rows", [1, 1000])
def test_memory_stays_within_its_bound(blocked, n_rows):
    wire, reached = blocked
    max_bytes = 2 * MIN_BYTES
    log = RowLog("m", LogOptions(max_bytes=max_bytes, linger=0.0), wire)
    rng = np.random.default_rng(0)
    rows = rng.random((n_rows, 10)).astype(np.float32)
    gc.collect()
    tracemalloc.start()
    try:
        while not log.statistics.dropped:
            ids = [f"prediction-{i}" for i in range(n_rows)]
            log.log({"probabilities": rows, "labels": [[1, 2]] * n_rows, "ids": ids})
        assert reached.wait(PATIENCE_S)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= max_bytes
    # The bound counts what is there, not several times that.
    assert peak >= max_bytes / 8
    log.close(timeout=0.0)


def test_the_caller_may_change_its_arrays():
    with Service() as service:
        log = service.log(linger=PATIENCE_S)
        row = np.array([0.25])
        log.log({"probabilities": row, "labels": [1]})
        row[0] = 0.75
        assert log.flush(PATIENCE_S)
        assert service.bodies[0]["probabilities"] == [0.25]


def test_calls_become_one_batch_with_the_times_of_the_calls():
    with Service() as service:
        log = service.log(linger=PATIENCE_S)
        before = datetime.now(UTC)
        log.log({"probabilities": [[0.5, 0.5]], "labels": [0], "slices": {"site": ["A"]}})
        log.log(
            {
                "probabilities": [[0.1, 0.9]] * 2,
                "labels": [[0, 1], None],
                "slices": {"site": ["B", "C"]},
            }
        )
        assert log.flush(PATIENCE_S)
        (body,) = service.bodies
        assert body["probabilities"] == [[0.5, 0.5], [0.1, 0.9], [0.1, 0.9]]
        assert body["labels"] == [0, [0, 1], None]
        assert body["slices"] == {"site": ["A", "B", "C"]}
        times = [datetime.fromisoformat(each) for each in body["event_times"]]
        assert before <= times[0] <= times[1] == times[2] <= datetime.now(UTC)


def test_every_kind_of_column_arrives():
    at = datetime(2026, 11, 20, 9, tzinfo=UTC)
    with Service() as service:
        log = service.log()
        log.log(
            {
                "logits": np.array([[1, 2], [3, 4]], np.float32),
                "label_counts": [[1, 0], [0, 2]],
                "weights": (1, 0.5),
                "units": np.array(["u1", "u2"]),
                "event_times": [at, "2026-11-20T10:00:00Z"],
            }
        )
        log.log(
            {
                "probabilities": np.array([0.5, np.nan]),
                "labels": np.array([1.0, np.nan]),
                "ids": ["a", "b"],
                "event_times": np.array(["2026-11-20", "2026-11-21"], "datetime64[D]"),
            }
        )
        log.log({"probabilities": [0.5], "labels": [np.int64(1)]})
        assert log.flush(PATIENCE_S)
        first, second, third = service.bodies
        assert first["logits"] == [[1, 2], [3, 4]] and first["weights"] == [1, 0.5]
        assert first["label_counts"] == [[1, 0], [0, 2]] and first["units"] == ["u1", "u2"]
        assert first["event_times"] == ["2026-11-20T09:00:00Z", "2026-11-20T10:00:00Z"]
        # Only the row that is no number is rejected, by the service.
        assert second["probabilities"] == [0.5, None] and second["labels"] == [1, None]
        assert second["event_times"][0] == "2026-11-20T00:00:00.000000Z"
        assert third["labels"] == [1]


@pytest.mark.parametrize(
    "columns",
    [
        {"labels": [1]},
        {"probabilities": [0.5, 0.6], "labels": [1]},
        {"probabilities": "ab", "labels": [0, 1]},
        {"probabilities": object(), "labels": [1]},
        {"probabilities": [[0.5], [0.2, 0.8]], "labels": [0, 1]},
        {"probabilities": [[[0.5]]], "labels": [0]},
        {"probabilities": [0.5], "labels": 1},
        {"probabilities": [0.5], "labels": [1], "slices": ["site"]},
        # A time without a zone was taken as local time.
        {"probabilities": [0.5], "labels": [1], "event_times": [datetime(2026, 11, 20, 9)]},
    ],
)
def test_invalid_calls_raise_nothing_and_are_counted(columns):
    log = RowLog("m", LogOptions(), Wire())
    assert log.log(columns) == 0
    found = log.statistics
    assert found.rejected == found.logged > 0 and found.last_error
    log.close(0.0)


def test_a_batch_is_repeated_with_its_id_and_bytes():
    with Service() as service:
        service.script = [
            problem(429, {"Retry-After": "0"}),
            problem(503, {"Retry-After": "0"}),
            "disconnect",
            (200, {}, b"<html>a proxy</html>"),
            problem(500),
        ]
        log = service.log()
        log.log({"probabilities": [0.5], "labels": [1]})
        assert log.flush(PATIENCE_S)
        assert len(service.raw) == 6 and len(set(service.raw)) == 1
        assert log.statistics.acknowledged == 1


def test_retry_after_is_obeyed():
    with Service() as service:
        service.script = [problem(429, {"Retry-After": "1"})]
        log = service.log()
        log.log({"probabilities": [0.5], "labels": [1]})
        assert log.flush(PATIENCE_S)
        assert service.times[1] - service.times[0] >= 1.0


def test_an_invalid_call_costs_no_other_its_rows():
    def respond(body: dict[str, Any]) -> Any:
        return problem(422) if "bad" in body["ids"] else None

    with Service(respond) as service:
        log = service.log(linger=PATIENCE_S)
        for name in ("a", "b", "bad", "c", "d"):
            log.log({"probabilities": [0.5], "ids": [name]})
        assert log.flush(PATIENCE_S)
        assert sorted(service.accepted_ids) == ["a", "b", "c", "d"]
        assert (log.statistics.acknowledged, log.statistics.rejected) == (4, 1)
        ids = [body["batch_id"] for body in service.bodies]
        assert len(set(ids)) == len(ids)


def test_a_batch_of_too_many_panes_is_divided_by_rows():
    def respond(body: dict[str, Any]) -> Any:
        error = {"pointer": "/event_times", "rule": "too_many_panes", "detail": "at most 64"}
        return problem(422, errors=[error]) if len(body["ids"]) > 2 else None

    with Service(respond) as service:
        log = service.log()
        log.log({"probabilities": [0.5] * 7, "ids": [f"p{i}" for i in range(7)]})
        assert log.flush(PATIENCE_S)
        assert sorted(service.accepted_ids) == [f"p{i}" for i in range(7)]
        assert log.statistics.acknowledged == 7


def test_a_rejection_after_a_lost_response_is_not_divided():
    """The first attempt may have been counted: its rows must not be sent under other ids."""
    with Service() as service:
        service.script = ["disconnect", problem(422)]
        log = service.log(linger=PATIENCE_S)
        log.log({"probabilities": [0.5], "ids": ["a"]})
        log.log({"probabilities": [0.5], "ids": ["b"]})
        assert log.flush(PATIENCE_S)
        assert len(service.raw) == 2
        assert log.statistics.dropped == {"unconfirmed": 2}


def test_a_service_that_always_fails_does_not_block_the_others(monkeypatch):
    monkeypatch.setattr("calibrant.client.sender.MAX_SERVER_ERRORS", 3)
    answers = iter([ServiceError(500, {}), ServiceError(500, {}), ServiceError(500, {})])

    def respond(operation: Operation[Any]) -> Receipt:
        error = next(answers, None)
        if error:
            raise error
        return accepted(1)

    log = RowLog("m", LogOptions(linger=0.0), Wire(respond))
    log.log({"probabilities": [0.5], "labels": [1]})
    assert log.flush(PATIENCE_S)
    assert log.statistics.dropped == {"unconfirmed": 1}
    log.log({"probabilities": [0.5], "labels": [1]})
    assert log.flush(PATIENCE_S)
    assert log.statistics.acknowledged == 1
    log.close(0.0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ServiceError(429, {}, "0"), "expired"),
        (ServiceUnreachable("refused", may_have_arrived=False), "expired"),
        (ServiceUnreachable("no response"), "unconfirmed"),
        (ServiceError(503, {}, "0"), "unconfirmed"),
    ],
)
def test_rows_are_given_up_after_a_time(error, reason):
    def fail(operation: Operation[Any]) -> Receipt:
        raise error

    log = RowLog("m", LogOptions(linger=0.0, retry_for=0.05), Wire(fail))
    log.log({"probabilities": [0.5], "labels": [1]})
    assert log.flush(PATIENCE_S)
    assert log.statistics.dropped == {reason: 1}
    log.close(0.0)


def test_closing_counts_what_was_not_sent(blocked, caplog):
    wire, reached = blocked
    log = RowLog("m", LogOptions(linger=0.0), wire)
    log.log({"probabilities": [0.5], "labels": [1]})
    assert reached.wait(PATIENCE_S)
    log.log({"probabilities": [0.5] * 3, "labels": [1] * 3})
    assert not log.close(timeout=0.01)
    assert log.log({"probabilities": [0.5], "labels": [1]}) == 0
    assert log.statistics.dropped == {"unconfirmed": 1, "closed": 4}
    assert log.statistics.pending == 0
    assert "rows_not_counted model=m" in caplog.text


def test_rows_that_wait_are_sent_at_the_end_of_the_process():
    with Service() as service:
        code = f"""
            import calibrant as cal
            model = cal.Client("http://localhost:{service.port}").model("m", linger=600)
            model.log([0.5, 0.25], [1, 0])
        """
        command = [sys.executable, "-c", textwrap.dedent(code)]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
        assert [body["probabilities"] for body in service.bodies] == [[0.5, 0.25]]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_forked_child_sends_only_its_own_rows():
    with Service() as service:
        code = f"""
            import os
            import calibrant as cal
            model = cal.Client("http://127.0.0.1:{service.port}").model("m", linger=600)
            model.log([0.5], ids=["parent"])
            if os.fork() == 0:
                model.log([0.5], ids=["child"])
                model.flush(60)
                os._exit(model.log_statistics.logged != 1)
            assert os.wait()[1] == 0
        """
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
        assert sorted(service.accepted_ids) == ["child", "parent"]


def test_threads_and_children_of_a_client_read_no_certificates():
    """A fork while a thread reads them left the child waiting for a lock of OpenSSL."""
    client = cal.Client("http://127.0.0.1:1")
    with mock.patch("httpx.create_ssl_context", side_effect=AssertionError):
        client.connect().close()
        client.after_fork()
    client.close()


def test_an_unreachable_service_is_waited_for():
    port = reserved_port()
    with Service(port=port) as service:
        log = service.log(linger=0.0)
    log.log({"probabilities": [0.5], "ids": ["a"]})
    eventually(lambda: log.statistics.pending == 1)
    with Service(port=port) as service:
        assert log.flush(PATIENCE_S)
        assert service.accepted_ids == ["a"]
    assert log.close(PATIENCE_S)


def test_an_error_of_the_client_itself_is_counted_and_shown(monkeypatch):
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(args.exc_type))
    answers: Iterator[Any] = iter([RuntimeError("a defect"), accepted(1)])

    def respond(operation: Operation[Any]) -> Receipt:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    log = RowLog("m", LogOptions(linger=0.0), Wire(respond))
    log.log({"probabilities": [0.5], "labels": [1]})
    assert log.flush(PATIENCE_S)
    assert log.statistics.dropped == {"unconfirmed": 1}
    eventually(lambda: shown == [RuntimeError])
    eventually(lambda: not log._sender._is_running())
    log.log({"probabilities": [0.5], "labels": [1]})
    assert log.flush(PATIENCE_S)
    assert log.statistics.acknowledged == 1
    log.close(PATIENCE_S)


def test_large_calls_are_divided():
    with Service() as service:
        log = service.log(linger=PATIENCE_S)
        ids = [f"p{i}" for i in range(2500)]
        assert log.log({"probabilities": np.full(2500, 0.5), "ids": ids}) == 2500
        assert log.log({"probabilities": np.full((90, 1000), 1e-3), "ids": ids[:90]}) == 90
        assert log.log({"probabilities": [], "labels": []}) == 0
        assert log.flush(PATIENCE_S)
        assert service.accepted_ids == ids + ids[:90]
        sizes = [len(body["ids"]) for body in service.bodies]
        assert sizes[:3] == [1000, 1000, 500] and len(sizes) > 3
