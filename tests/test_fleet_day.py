"""The simulated day of a fleet: its clock, what it records, and its tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.fleet_day.progress import Part, Progress
from benchmarks.fleet_day.report import DAY, FLEET, report
from benchmarks.fleet_day.stepped_clock import SteppedClock

# Prints both clocks at each line of its input.
CLOCKS = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
MODELS, HOURS = 100, 24
needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or not sys.platform.startswith("linux"),
    reason="needs a C compiler on Linux",
)


@needs_compiler
def test_the_time_of_day_steps_in_a_running_process_and_durations_do_not(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", CLOCKS],
        env=os.environ | clock.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdin is not None and process.stdout is not None
    with process:

        def clocks() -> list[float]:
            process.stdin.write("\n")
            return [float(word) for word in process.stdout.readline().split()]

        before, began = clocks(), time.monotonic()
        clock.step_to(before[0] + 86_400.5)
        after, passed = clocks(), time.monotonic() - began
        process.stdin.close()
    assert 86_400.4 < after[0] - before[0] < 86_402 + passed
    assert 0 <= after[1] - before[1] <= passed + 1
    assert clock.now_s() >= after[0]
    later = SteppedClock(tmp_path)
    later.step_to(before[0])
    assert later.now_s() >= after[0], "the time of day went back, or was lost"


def part(hour: int) -> Part:
    names = ("service CPU s", "worker CPU s", "store CPU s", "rewrite CPU s", "commands", "commits")
    used = dict.fromkeys((*names, "AOF bytes"), 60.0 * MODELS)
    names = ("store", "store process", "service", "worker", "id")
    levels = {f"{name} bytes": 1e6 * (hour + 1) for name in names} | {"keys": 10.0}
    return Part(60 * hour, 60 * hour + 60, used, levels)


@pytest.fixture
def progress(tmp_path: Path) -> Progress:
    fleet = {"models": MODELS, "rows": 6, "slice_keys": 4, "slice_values": 5, "start_s": 1}
    found = Progress(tmp_path / "day", fleet)
    for hour in range(HOURS):
        found.sent(60 * hour + 59)
        found.add(part(hour))
    return found


def test_a_day_continues_where_it_ended(progress: Progress, tmp_path: Path) -> None:
    assert progress.minute == DAY and progress.parts == [part(hour) for hour in range(HOURS)]
    again = Progress(tmp_path / "day", {**progress.fleet, "start_s": 2})
    assert again.minute == DAY and again.fleet["start_s"] == 1
    with pytest.raises(SystemExit, match="another fleet"):
        Progress(tmp_path / "day", {**progress.fleet, "models": 1})


def test_a_complete_day_is_scaled_to_the_fleet(progress: Progress) -> None:
    lines = list(report(progress))
    # A CPU second per batch in the service and one in the workers; 60 batches of 10,000 models in 3,600 s.
    cores = 2 * 60 * FLEET / 3600
    [row] = [line for line in lines if line.startswith("| CPU of service and workers, cores |")]
    assert float(row.split("|")[2]) == pytest.approx(cores, rel=0.01)
    [row] = [line for line in lines if line.startswith("| GB in the store |")]
    assert float(row.split("|")[2]) == pytest.approx(24e-3 * FLEET / MODELS, rel=0.01)
    assert "| 0 to 60 | 1e+03 | 1e+03 | 1e+03 | 1e+03 | 1 | 1 | 0.001 |" in lines[2]


def test_part_of_a_day_is_not_scaled(tmp_path: Path) -> None:
    found = Progress(tmp_path / "part", {"models": MODELS, "start_s": 1})
    found.add(part(0))
    assert len(list(report(found))) == 3
