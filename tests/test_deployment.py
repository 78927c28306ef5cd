"""The deployment files say what the documents promise, and the store accepts its configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from redis.exceptions import AuthenticationError, ConnectionError, ResponseError

from calibrant_server.service.settings import Settings
from calibrant_server.workers.settings import EngineSettings, variables
from scripts import sbom
from tests.ports import reserved_port
from tests.stores import StoreServer
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
CONFIGURATION = ROOT / "deploy" / "redis.conf"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return document


@pytest.fixture(scope="module")
def dockerfile() -> list[str]:
    """Its instructions, continuation lines joined, comments dropped."""
    joined = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


def directives() -> dict[str, str]:
    lines = [line for line in CONFIGURATION.read_text().splitlines() if line]
    return dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))


def test_every_directive_is_accepted_and_active(store_server: StoreServer) -> None:
    store_server.kill()
    store_server.options = {}
    store_server.configuration = CONFIGURATION
    store_server.start()
    with store_server.client() as client:
        in_force = client.config_get("*")
        assert in_force["maxmemory"] == str(2**30)
        # Sizes are reported in bytes and users apart; port and address are those of the test.
        plain = {name for name in directives() if name in in_force}
        for name in plain - {
            "port",
            "bind",
            "maxmemory",
            "repl-backlog-size",
            "auto-aof-rewrite-min-size",
        }:
            assert in_force[name] == directives()[name].strip('"'), name
        with pytest.raises(ResponseError, match="unknown command"):
            client.flushall()


def test_the_store_needs_the_password_of_the_compose_file(
    store_server: StoreServer, compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration file must not open what the command line closes."""
    command = compose["services"]["redis"]["command"]
    assert "requirepass $$REDISCLI_AUTH" in command[-1]
    password = compose["services"]["redis"]["environment"]["REDISCLI_AUTH"]
    assert password.startswith("${STORE_PASSWORD:?")
    url = compose["services"]["service"]["environment"]["CALIBRANT_REDIS_URL"]
    assert url.startswith("redis://:${STORE_PASSWORD:?")
    store_server.kill()
    store_server.options = {"requirepass": "chosen"}
    store_server.configuration = CONFIGURATION
    monkeypatch.setattr(store_server, "_answers", lambda: wants_password(store_server))
    store_server.start()
    with redis.Redis(unix_socket_path=store_server.socket, password="chosen") as client:
        assert client.ping()


def wants_password(store_server: StoreServer) -> bool:
    """Tell whether the server runs; fail if it serves without a password."""
    with store_server.client() as client:
        try:
            pytest.fail(f"served without a password: {client.ping()}")
        except AuthenticationError:
            return True
        except ConnectionError:
            return False


def test_every_container_is_bounded(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["mem_limit"] and service["pids_limit"] and service["cpus"], name
        assert service["ulimits"]["nofile"]["hard"] >= 4096, name


def test_images_have_exact_versions(compose: dict[str, Any], dockerfile: list[str]) -> None:
    images = [compose["services"][name]["image"] for name in ("redis", "proxy")]
    [python] = [line.partition("=")[2] for line in dockerfile if line.startswith("ARG PYTHON=")]
    for image in (*images, f"python:{python}"):
        assert re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+-[a-z-]+", image), image


def test_the_store_starts_with_the_command_of_the_compose_file(
    compose: dict[str, Any], tmp_path: Path
) -> None:
    """The password is in no command line, which every user of the machine can read."""
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("redis-server is not installed")
    port = reserved_port()
    script = compose["services"]["redis"]["command"][-1].replace("$$", "$")
    script = script.replace("/etc/calibrant/redis.conf", f"{CONFIGURATION} --port {port}")
    script = script.replace("/data", str(tmp_path))
    # The server changes its own command line; what everyone could read until then is what it was started with.
    started = tmp_path / "redis-server"
    started.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\nexec {server} "$@"\n')
    started.chmod(0o700)
    environment = {"REDISCLI_AUTH": "chosen", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(
        ["sh", "-c", script], env=environment, stdout=subprocess.DEVNULL
    ) as process:
        try:
            with redis.Redis(port=port, password="chosen") as client:
                eventually(lambda: _pings(client))
                for command in ("REPLICAOF", "SLAVEOF"):
                    with pytest.raises(ResponseError, match="unknown command"):
                        client.execute_command(command, "no", "one")
            with redis.Redis(port=port) as client, pytest.raises(AuthenticationError):
                client.ping()
            assert "chosen" not in (tmp_path / "arguments").read_text()
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert b"redis-server" in line, "signals reach the server"
        finally:
            process.terminate()


def _pings(client: redis.Redis) -> bool:
    with suppress(ConnectionError):
        return bool(client.ping())
    return False


def test_the_log_of_every_container_is_bounded(compose: dict[str, Any]) -> None:
    """A full disk stops the store."""
    for name, service in compose["services"].items():
        options = service["logging"]["options"]
        assert (options["max-size"], int(options["max-file"])) == ("50m", 5), name


def test_bill_of_materials_has_every_locked_package() -> None:
    made = sbom.document()
    lock = (ROOT / "requirements" / "run.txt").read_text()
    names = set(re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE))
    assert {each["name"] for each in made["components"]} == names > {"redis", "orjson"}
    assert all(each["externalReferences"] for each in made["components"])
    digests = [
        hashed["content"]
        for each in made["components"]
        for file in each["externalReferences"]
        for hashed in file["hashes"]
    ]
    assert sorted(digests) == sorted(re.findall(r"sha256:([0-9a-f]{64})", lock))
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert sbom.document() == made


def test_each_directive_has_a_reason() -> None:
    blocks = CONFIGURATION.read_text().strip().split("\n\n")
    assert all(block.startswith("#") for block in blocks)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("appendonly", "yes"),
        ("aof-load-truncated", "yes"),
        ("maxmemory-policy", "noeviction"),
        ("protected-mode", "yes"),
    ],
)
def test_store_keeps_what_it_acknowledged(name: str, value: str) -> None:
    assert directives()[name] == value


def test_starts_in_order(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == {"redis", "workers", "service", "proxy"}
    assert all("healthcheck" in service for service in services.values())
    healthy = {"condition": "service_healthy"}
    assert services["workers"]["depends_on"] == {"redis": healthy}
    assert services["service"]["depends_on"] == {
        "redis": healthy,
        "workers": {"condition": "service_started"},
    }
    assert services["proxy"]["depends_on"] == {"service": {**healthy, "restart": True}}


def test_runs_without_privileges(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_only_the_proxy_is_published_and_only_here(compose: dict[str, Any]) -> None:
    services, networks = compose["services"], compose["networks"]
    assert {name for name, each in services.items() if "ports" in each} == {"proxy"}
    assert services["proxy"]["ports"] == ["127.0.0.1:${PORT:-8000}:8080"]
    assert networks["store"]["internal"] is True
    assert services["redis"]["networks"] == ["store"] and services["proxy"]["networks"] == ["door"]
    # The service knows the proxy by its network.
    trusted = services["service"]["environment"]["CALIBRANT_TRUSTED_PROXIES"]
    assert networks["door"]["ipam"]["config"] == [{"subnet": trusted}]


def test_workers_have_a_way_out_to_webhooks_and_share_none_with_the_door(
    compose: dict[str, Any],
) -> None:
    networks, services = compose["networks"], compose["services"]
    out = [
        name
        for name in services["workers"]["networks"]
        if not (networks[name] or {}).get("internal")
    ]
    assert out and not set(out) & set(services["service"]["networks"])


def test_every_setting_named_in_the_file_exists(compose: dict[str, Any]) -> None:
    known = variables(Settings).keys() | variables(EngineSettings).keys()
    for service in compose["services"].values():
        assert set(service.get("environment", {})) - {"REDISCLI_AUTH"} <= known


def test_state_and_keys_last(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {"store", "keys"} <= set(compose["volumes"])
    assert "store:/data" in services["redis"]["volumes"]
    keys_file = Path(services["service"]["environment"]["CALIBRANT_KEYS_FILE"])
    assert f"keys:{keys_file.parent}" in services["service"]["volumes"]
    assert services["service"]["environment"]["CALIBRANT_CREATE_KEY"] == "true"


def test_image_is_built_from_the_lock_and_runs_as_no_user(dockerfile: list[str]) -> None:
    stages = [line for line in dockerfile if line.startswith("FROM ")]
    assert len(stages) == 2
    installed = [line for line in dockerfile if "--require-hashes" in line]
    locks = [re.findall(r"requirements/(\w+).txt", line) for line in installed]
    assert locks == [["run"], ["telemetry"], ["build"]]
    last = dockerfile[dockerfile.index(stages[-1]) :]
    user = next(line for line in last if line.startswith("USER "))
    assert re.fullmatch(r"USER [1-9]\d{3,}:[1-9]\d{3,}", user)
    assert last[-1] == 'CMD ["calibrant", "serve"]'


def test_image_has_every_mounted_directory(compose: dict[str, Any], dockerfile: list[str]) -> None:
    """A named volume takes its owner from the image's directory; without one it would be root's."""
    made = next(line for line in dockerfile if "install -d -o calibrant" in line).split()
    for service in ("service", "workers"):
        for volume in compose["services"][service].get("volumes", []):
            assert volume.split(":")[1] in made


def test_image_is_made_from_a_supported_python(dockerfile: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.search(r"ARG PYTHON=(3\.\d+)", dockerfile[0])
    assert version is not None
    named = f"Programming Language :: Python :: {version[1]}"
    assert named in project["classifiers"]


def test_locks_pin_every_version_with_a_digest_and_name_no_registry() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text()
        assert "://" not in text, lock.name
        entries = re.split(r"\n(?=\S)", text.strip())
        assert all("==" in entry and "--hash=sha256:" in entry for entry in entries), lock.name
