"""A service of two processes and its engine on one port: real processes, killed while clients send."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from tests.forking import ForkedProcess, run_module
from tests.ports import reserved_port
from tests.waiting import PATIENCE_S, eventually

N_CLIENTS = 3
ROWS = {"probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], "labels": [0, 1]}


class Service:
    """A running service, and what its log and its files say."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.url = f"http://127.0.0.1:{reserved_port()}"
        environment = os.environ | {
            "CALIBRANT_PROCESSES": "2",
            "CALIBRANT_PARTITIONS": "2",
            "CALIBRANT_LEASE": "1",
            "CALIBRANT_PORT": self.url.rpartition(":")[2],
            "CALIBRANT_DATA_DIR": str(folder / "data"),
            "TMPDIR": str(folder),
        }
        self.process = ForkedProcess(
            run_module, "service", environment=environment, directory=folder, log=self.log
        )

    def events(self, name: str) -> list[str]:
        """Return the events of a name, in order."""
        found = [json.loads(line)["event"] for line in self.log.read_text().splitlines() if line.startswith("{")]  # fmt: skip
        return [event for event in found if event.startswith(name)]

    def pid(self, name: str) -> int:
        """Return the last process id of one of the processes."""
        pattern = re.compile(rf"service_process_started process={name} pid=(\d+)")
        return [int(match[1]) for match in map(pattern.match, self.events("service")) if match][-1]

    def is_ready(self) -> bool:
        with suppress(httpx.TransportError):
            return (
                httpx.get(f"{self.url}/readyz", timeout=PATIENCE_S, verify=False).status_code == 200
            )
        return False

    def samples(self) -> dict[str, float]:
        """Return the sums of each series over its labels, as any of the processes returns them."""
        text = httpx.get(f"{self.url}/metrics", timeout=PATIENCE_S).raise_for_status().text
        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    def requests_of(self, number: int) -> float:
        """Return the requests that one process has counted in its file."""
        files = [
            str(each) for each in self.folder.glob(f"calibrant-metrics-*/counter_p{number}.db")
        ]
        families = MultiProcessCollector.merge(files)
        return sum(s.value for f in families if f.name == "calibrant_requests" for s in f.samples)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    found = Service(tmp_path)
    try:
        eventually(found.is_ready)
        yield found
    finally:
        found.process.terminate()
        found.process.wait(PATIENCE_S)


class Sender(threading.Thread):
    """Sends batches one after the other, each until it is acknowledged, over connections of their own."""

    def __init__(self, service: Service, name: str, stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.service, self.stop, self.n_acknowledged = service, stop, 0

    def run(self) -> None:
        while not self.stop.is_set():
            body = ROWS | {"batch_id": f"{self.name}-{self.n_acknowledged}"}
            with suppress(httpx.TransportError):
                response = httpx.post(
                    f"{self.service.url}/v1/models/m/predictions", json=body, timeout=PATIENCE_S
                )
                assert response.status_code in (200, 202, 503), response.text
                self.n_acknowledged += response.status_code != 503


def nice_of(pid: int) -> set[int]:
    """Return the nice values of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int((task / "stat").read_text().rpartition(")")[2].split()[16]) for task in tasks}


def test_merging_and_other_queries_come_after_requests_and_the_store(service: Service) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    later = min(own + 10, 19)
    engine = service.pid("engine")
    children = Path(f"/proc/{engine}/task/{engine}/children").read_text().split()
    assert own in nice_of(service.pid("http-0")) and own in nice_of(service.pid("queries"))
    assert children and all(nice_of(int(pid)) == {own} for pid in children), "the store"
    assert later in nice_of(engine) and later in nice_of(service.pid("slow-queries"))


def test_processes_share_a_port_and_outlive_kills(service: Service) -> None:
    httpx.put(f"{service.url}/v1/models/m", json={"classes": 3}).raise_for_status()
    stop = threading.Event()
    senders = [Sender(service, f"c{i}", stop) for i in range(N_CLIENTS)]
    for sender in senders:
        sender.start()
    eventually(lambda: service.requests_of(0) > 3 and service.requests_of(1) > 3)

    for n, name in enumerate(("http-1", "engine", "queries", "slow-queries"), start=1):
        before, done = service.pid(name), [each.n_acknowledged for each in senders]
        os.kill(before, signal.SIGKILL)
        eventually(lambda n=n: len(service.events("service_process_ended")) == n)
        eventually(lambda name=name, before=before: service.pid(name) != before)
        eventually(service.is_ready)
        eventually(
            lambda done=done: all(
                s.n_acknowledged > d + 2 for s, d in zip(senders, done, strict=True)
            )
        )
    stop.set()
    for sender in senders:
        sender.join(PATIENCE_S)

    ended = service.events("service_process_ended")
    assert [re.sub(" restart.*", "", event) for event in ended] == [
        "service_process_ended process=http-1 exit_code=-9",
        "service_process_ended process=engine exit_code=-9",
        "service_process_ended process=queries exit_code=-9",
        "service_process_ended process=slow-queries exit_code=-9",
    ]
    n = sum(sender.n_acknowledged for sender in senders)
    last = ROWS | {"batch_id": "c0-0"}
    wait = {"Prefer": "wait=60"}
    httpx.post(
        f"{service.url}/v1/models/m/predictions", json=last, headers=wait, timeout=PATIENCE_S
    )
    eventually(lambda: service.samples()["calibrant_backlog_entries"] == 0)
    found = httpx.get(f"{service.url}/v1/models/m/metrics?metrics=brier", timeout=PATIENCE_S)
    assert found.json()["n_predictions"] == 2 * n, "each acknowledged batch counts once"

    time.sleep(1.2)  # Sums are read once a second.
    samples = service.samples()
    assert samples["calibrant_requests_total"] == pytest.approx(
        service.requests_of(0) + service.requests_of(1), abs=3
    ), "each process returns the sums"
    assert samples["calibrant_service_processes"] == 2
    assert samples["calibrant_service_process_restarts_total"] == 4
    assert samples["calibrant_body_bytes_in_hand"] == 0

    service.process.terminate()
    assert service.process.wait(PATIENCE_S) == 0
    assert not service.events("service_process_killed")
    assert not list(service.folder.glob("calibrant-metrics-*")), (
        "the files of the counters are removed"
    )
    assert not is_listening(service)


@pytest.mark.slow
def test_without_their_parent_the_processes_stop(service: Service) -> None:
    service.process.kill()
    eventually(lambda: not is_listening(service))
    eventually(lambda: not (service.folder / "data" / "store" / "server.sock").exists())


def is_listening(service: Service) -> bool:
    try:
        httpx.get(f"{service.url}/livez", timeout=PATIENCE_S)
    except httpx.ConnectError:
        return False
    except httpx.TransportError:
        return True
    return True
