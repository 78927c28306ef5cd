"""A client that logs numbered rows, in a process of its own with clocks and memory of its own.

The test writes one command per line, a list of a method and its arguments, and reads one line of JSON after each. Row i has
weight i and the class i modulo 2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import calibrant as cal
from calibrant.client import LogStatistics, Model
from tests.end_to_end.fast_clock import fast_clock
from tests.waiting import PATIENCE_S, PAUSE_S, eventually

ROOT = Path(__file__).parents[2]
MAX_PENDING = 200
# Of the process's own clock, times its speed.
TIMEOUT_S, LINGER_S = 30.0, 0.05


class Producer:
    """Logs numbered rows, and remembers which found room.

    Parameters
    ----------
    model : of the client
    speed : of the clocks of this process; the test's patience is in real seconds
    event_time : of all rows, None for the time of the call, which a fast clock puts into the future
    """

    def __init__(
        self, model: Model, speed: float = 1.0, event_time: datetime | None = None
    ) -> None:
        self.model, self.speed = model, speed
        self.event_times = None if event_time is None else [event_time]
        self.n = 0
        self.queued: list[int] = []

    @property
    def statistics(self) -> LogStatistics:
        """Outcome of every row until now."""
        return self.model.log_statistics

    def log(self, n_rows: int) -> None:
        """Log rows at once."""
        for _ in range(n_rows):
            self.n += 1
            found = self.model.log(
                [0.25 + 0.5 * (self.n % 2)],
                [self.n % 2],
                weights=[self.n],
                event_times=self.event_times,
            )
            self.queued += [self.n] * found

    def log_with_room(self, n_rows: int) -> None:
        """Log rows as fast as they are sent, so that none is dropped."""
        limits = PATIENCE_S * self.speed, PAUSE_S * self.speed
        for _ in range(0, n_rows, 10):
            eventually(lambda: self.statistics.pending < MAX_PENDING, *limits)
            self.log(10)

    def log_for(self, seconds: float, n_rows: int) -> None:
        """Log rows at even distances in a time of this process's clock."""
        start = time.monotonic()
        for at in range(1, n_rows + 1):
            self.log(1)
            time.sleep(max(0.0, start + at * seconds / n_rows - time.monotonic()))

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is pending."""
        return self.model.flush(seconds * self.speed)

    def trace_memory(self) -> None:
        """Count from now on the bytes of Python's allocations; those of imports were made before."""
        tracemalloc.start()


class LoggingClient:
    """The process, with the interface of `Producer`.

    Attributes
    ----------
    peak_bytes : most memory that Python's allocations since `trace_memory` took, in the last command and since the one before
    clock_s : seconds that the last command took on the clocks of the process: the time of day, and the monotonic one
    """

    def __init__(self, directory: Path, url: str, speed: float, max_bytes: int) -> None:
        given = [url, repr(speed), str(max_bytes), datetime.now(UTC).isoformat()]
        self._log = directory / "client.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *given],
                env=os.environ | fast_clock(directory, speed) | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=directory,
            )  # fmt: skip
        self.n, self.peak_bytes = 0, 0
        self.clock_s = (0.0, 0.0)
        self.queued: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()

    def log(self, n_rows: int) -> None:
        """Log rows at once."""
        self._call("log", n_rows)

    def log_with_room(self, n_rows: int) -> None:
        """Log rows as fast as they are sent, so that none is dropped."""
        self._call("log_with_room", n_rows)

    def log_for(self, seconds: float, n_rows: int) -> None:
        """Log rows at even distances in a time of the process's clock."""
        self._call("log_for", seconds, n_rows)

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is pending."""
        return bool(self._call("flush", seconds)["returned"])

    def trace_memory(self) -> None:
        """Count from now on the bytes of Python's allocations."""
        self._call("trace_memory")

    @property
    def statistics(self) -> LogStatistics:
        """Outcome of every row until now."""
        return LogStatistics(**self._call("log", 0)["statistics"])

    def _call(self, method: str, *args: float) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, *args]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the client's process has ended: {self._log.read_text()[-2000:]}"
        found: dict[str, Any] = json.loads(line)
        self.queued += found["queued"]
        self.n, self.peak_bytes = found["statistics"]["logged"], found["peak_bytes"]
        self.clock_s = tuple(found["clock_s"])
        return found


def main() -> None:
    """Follow the commands. The retries of the client are logged to the standard output, which is for the results."""
    results, sys.stdout = sys.stdout, sys.stderr
    url, speed, max_bytes, event_time = sys.argv[1:]
    client = cal.Client(url, timeout=TIMEOUT_S * float(speed))
    model = client.model("chaos", linger=LINGER_S * float(speed), max_bytes=int(max_bytes))
    producer = Producer(model, float(speed), datetime.fromisoformat(event_time))
    for line in sys.stdin:
        method, *args = json.loads(line)
        before = time.time(), time.monotonic()
        returned = getattr(producer, method)(*args)
        after = time.time(), time.monotonic()
        found = {
            "returned": returned,
            "queued": producer.queued,
            "statistics": asdict(producer.statistics),
            "peak_bytes": tracemalloc.get_traced_memory()[1],
            "clock_s": [end - start for start, end in zip(before, after, strict=True)],
        }
        print(json.dumps(found), file=results, flush=True)
        producer.queued = []
        tracemalloc.reset_peak()


if __name__ == "__main__":
    main()
