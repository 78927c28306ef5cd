"""`deploy/cluster.yml`: real nodes accept its options, its script makes a cluster of them, and the engine takes it."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis.crc import key_slot

from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.inbox_errors import StoreUnavailableError
from calibrant_server.workers.settings import EngineSettings, variables
from tests.ports import reserved_port
from tests.stores import SERVERS, StoreServer
from tests.waiting import eventually
from tests.workers.driving import MODEL, Bench, delivery

ROOT = Path(__file__).parents[1]
FILE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "cluster.yml").read_text())
NODES = {name: each for name, each in FILE["services"].items() if name.startswith("node")}
# What belongs to the container, and to addresses of its network.
OF_THE_CONTAINER = {"bind", "protected-mode", "dir"}
PATIENCE_S = 120
# The node timeout of 5 s, an election, and a machine that is busy. With one replica per master it would never end.
PROMOTION_S = 30.0


def node_options() -> dict[str, str]:
    command, _, piped = NODES["node1"]["command"][0].partition(" - <<END\n")
    assert piped.splitlines() == [
        "requirepass $$REDISCLI_AUTH",
        "masterauth $$REDISCLI_AUTH",
        "END",
    ]
    words = shlex.split(command)
    pairs = zip(words[3::2], words[4::2], strict=True)
    return {name.removeprefix("--"): value for name, value in pairs}


def addresses() -> list[str]:
    return [node["networks"]["store"]["ipv4_address"] for node in NODES.values()]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[StoreServer]]:
    """Nine nodes with the options of the file, which the script of the file has made a cluster."""
    binary, cli = SERVERS["redis-server"], shutil.which("redis-cli")
    if binary is None or cli is None:
        pytest.skip("redis-server and redis-cli are not installed")
    options = {
        name.replace("-", "_"): value
        for name, value in node_options().items()
        if name not in OF_THE_CONTAINER
    }
    found = [
        StoreServer(binary, tmp_path / name, **options, cluster_port=str(reserved_port()))
        for name in NODES
    ]
    with ExitStack() as closed:
        for node in found:
            node.configuration = ROOT / "deploy" / "redis.conf"
            node.listens = True
            node.start()
            closed.callback(node.close)
        make_cluster(found)
        yield found


def make_cluster(nodes: list[StoreServer]) -> None:
    """Run the script of the file, with the addresses of these nodes."""
    script = FILE["services"]["cluster"]["command"][0].replace("$$", "$")
    for address, node in zip(addresses(), nodes, strict=True):
        script = script.replace(f"{address}:6379", f"127.0.0.1:{node.port}")
    ran = subprocess.run(["sh", "-c", script], timeout=PATIENCE_S, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_addresses_and_settings_agree() -> None:
    url = FILE["services"]["service"]["environment"]["CALIBRANT_REDIS_URL"]
    assert url.startswith("redis+cluster://:${STORE_PASSWORD:?")
    assert set(re.findall(r"@?([\d.]+):6379", url)) < set(addresses())
    script = FILE["services"]["cluster"]["command"][0]
    assert set(re.findall(r"[\d.]+(?=:6379)", script)) == set(addresses())
    known = variables(Settings).keys() | variables(EngineSettings).keys()
    for name in ("service", "workers"):
        environment = FILE["services"][name]["environment"]
        assert set(environment) <= known and environment["CALIBRANT_DURABILITY"] == "replicated"
    assert len(NODES) == 9 and {f"{name}:/data" for name in NODES} <= {
        volume for node in NODES.values() for volume in node["volumes"]
    }


def test_containers_are_bounded_and_without_privileges() -> None:
    for name, service in FILE["services"].items():
        assert service["mem_limit"] and service["pids_limit"] and service["cpus"], name
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    published = [name for name, service in FILE["services"].items() if service.get("ports")]
    assert published == ["service"] and FILE["networks"]["store"]["internal"] is True


def test_nodes_become_a_cluster_that_may_promise_replicated_durability(
    nodes: list[StoreServer],
) -> None:
    urls = ",".join(f"127.0.0.1:{node.port}" for node in nodes[:3])
    settings = EngineSettings(redis_url=f"redis+cluster://{urls}", durability="replicated")

    async def promised() -> str:
        # Opening it checks every master, its replica and its configuration.
        async with Inbox(settings) as inbox:
            return inbox.durability

    assert asyncio.run(promised()) == "replicated"
    for node in nodes:
        with node.client() as client:
            assert client.config_get("min-replicas-to-write")["min-replicas-to-write"] == "1"
            found = client.info("replication")
            assert found["role"] == "slave" or found["connected_slaves"] == 2
    make_cluster(nodes)  # a later start finds it made


def test_one_failure_costs_one_promotion(nodes: list[StoreServer]) -> None:
    """The killed master never returns: the promoted replica needs the other one to accept writes."""
    urls = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    settings = EngineSettings(redis_url=f"redis+cluster://{urls}", durability="replicated")
    with Bench(settings, ingest_deadline_s=0.5) as bench:
        bench.put_model()
        assert _acknowledged(bench, "first")
        name = bench.store.keys.of(MODEL).stream
        slot = key_slot(name.encode())
        [master] = [node for node in nodes if _holds(node, slot)]
        master.kill()
        killed_at = time.monotonic()
        numbers = count()
        eventually(lambda: _acknowledged(bench, f"after-{next(numbers)}"), PROMOTION_S)
        print(f"without an acknowledgement for {time.monotonic() - killed_at:.1f} s")


def _acknowledged(bench: Bench, name: str) -> bool:
    try:
        bench.deliver(delivery(name))
    except StoreUnavailableError:
        return False
    return True


def _holds(node: StoreServer, slot: int) -> bool:
    with node.client() as client:
        own = client.execute_command("CLUSTER MYID").decode()
        slots = client.execute_command("CLUSTER SLOTS")
    return any(low <= slot <= high and own == master[2].decode() for low, high, master, *_ in slots)
