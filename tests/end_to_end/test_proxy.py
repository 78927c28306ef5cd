"""The proxy in front, `deploy/nginx`, run by Debian's nginx: what it stops before it reaches the service."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.deployment import ROOT, Deployment
from tests.ports import reserved_port
from tests.waiting import PATIENCE_S, eventually

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")

FILES = ROOT / "deploy" / "nginx"
SECRET = "0123456789abcdef"
ROLES = {"readers": {"scopes": ["read"]}}
KEYS = {"keys": [{"sha256": hashlib.sha256(b"k").hexdigest(), "name": "k"}]}
KEY = {"Authorization": "Bearer k"}
ROWS = {"confidences": [0.2, 0.7], "labels": [0, 1]}
# Short, so that the tests are; what a limit of time is about does not change with it.
QUICK = {
    "_timeout 10s": "_timeout 1s",
    "listen 8080": "listen {port}",
    "listen 8443": "listen {tls}",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    environment = {
        "CALIBRANT_KEYS": json.dumps(KEYS),
        "CALIBRANT_TRUSTED_PROXIES": "127.0.0.1",
        "CALIBRANT_PROXY_SECRET": SECRET,
        "CALIBRANT_ROLES": json.dumps(ROLES),
    }
    with Deployment(tmp_path_factory.mktemp("behind"), **environment) as found:
        yield found


class Proxy:
    """A running nginx with the files of a folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)

    def address(self, name: str) -> httpx.Client:
        """Return a client of another address of this machine."""
        transport = httpx.HTTPTransport(local_address=name)
        url = f"http://127.0.0.1:{self.port}"
        return httpx.Client(base_url=url, timeout=PATIENCE_S, transport=transport)


@contextmanager
def running(
    folder: Path, service_port: int, server: str = "plain.conf", **changes: str
) -> Iterator[Proxy]:
    """Run nginx with the deployed files, on ports and folders of this test.

    Parameters
    ----------
    changes : further texts to replace, as `old=new` by number
    """
    folder.mkdir(parents=True, exist_ok=True)
    port, tls = reserved_port(), reserved_port()
    replaced = {
        "/tmp/": f"{folder}/",
        **QUICK, "service:8000": f"127.0.0.1:{service_port}", "/var/cache/nginx": str(folder),
        "error_log stderr": f"error_log {folder}/error.log",
        "/run/secrets": str(folder), "worker_processes auto": "worker_processes 1", **changes,
    }  # fmt: skip
    for path in FILES.glob("*.conf"):
        text = path.read_text()
        for old, new in replaced.items():
            text = text.replace(old, new.replace("{port}", str(port)).replace("{tls}", str(tls)))
        (folder / ("server.conf" if path.name == server else path.name)).write_text(text)
    command = [
        str(NGINX),
        "-c",
        str(folder / "nginx.conf"),
        "-g",
        "daemon off; user root;" if os.getuid() == 0 else "daemon off;",
        "-e",
        str(folder / "start.log"),
    ]
    with subprocess.Popen(command) as process:
        proxy = Proxy(folder, tls if server == "tls.conf" else port)
        try:
            eventually(lambda: _listens(proxy.port) or process.poll() is not None)
            assert process.poll() is None, "".join(
                each.read_text() for each in folder.glob("*.log")
            )
            with proxy.client:
                yield proxy
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def proxy(service: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with running(tmp_path_factory.mktemp("nginx"), service.port) as found:
        yield found


def connected(proxy: Proxy, sent: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S, (address, 0))
    found.sendall(sent)
    return found


def n_at(port: int) -> int:
    """Return the number of connections that are established to a port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sum(int(each[2].rpartition(":")[2], 16) == port and each[3] == "01" for each in fields)


@pytest.fixture
def descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Half: "], ids=["silent", "half"]
)
def test_1100_connections_without_a_request_reach_nothing(
    service: Deployment, proxy: Proxy, sent: bytes, descriptors: None
) -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(connected(proxy, sent)) for _ in range(1100)]
        assert n_at(service.port) < 70, "the service has not one connection for each"
        assert proxy.client.get("/v1/models", headers=KEY).status_code == 200
        for each in opened:
            assert _is_cut_off(each)
        eventually(lambda: n_at(proxy.port) < 20)


def test_slow_bodies_wait_at_the_proxy(service: Deployment, proxy: Proxy) -> None:
    """The service sees a body once all of it has come; another address is served meanwhile; whoever stops sending is cut off."""
    head = (
        b"POST /v1/models/slow/predictions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n"
        b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
    )
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(proxy, head, "127.0.0.9")) for _ in range(60)]
        for _ in range(10):
            for each in slow:
                each.sendall(b" ")
            time.sleep(0.05)
        text = service.client.get("/metrics").text
        assert "\ncalibrant_body_bytes_in_hand 0.0\n" in text
        with proxy.address("127.0.0.10") as other:
            sent = other.post("/v1/models/quick/predictions", json=ROWS, headers=KEY)
        assert sent.status_code in (200, 202), sent.text
        for each in slow:
            assert _is_cut_off(each)


def _is_cut_off(each: socket.socket) -> bool:
    each.settimeout(PATIENCE_S)
    try:
        return each.recv(4000) == b""
    except ConnectionResetError:
        return True


def test_connections_of_one_address_have_a_bound(proxy: Proxy) -> None:
    """Requests whose response is awaited, here those with an incomplete body."""
    head = b"POST /v1/models/many/predictions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\nContent-Length: 100000\r\n\r\n{"
    with ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(connected(proxy, head, "127.0.0.11"))
        with proxy.address("127.0.0.11") as same, proxy.address("127.0.0.12") as other:
            refused = eventually(lambda: (found := same.get("/livez")).status_code == 429 and found)
            assert other.get("/livez").status_code == 200
    body = refused.json()
    assert (body["status"], body["retryable"]) == (429, True)
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["retry-after"] == "1"


def test_requests_of_one_address_have_a_rate(service: Deployment, tmp_path: Path) -> None:
    changes = {"rate=500r/s": "rate=1r/s", "burst=500": "burst=5"}
    with running(tmp_path / "n", service.port, **changes) as found:
        statuses = [found.client.get("/livez").status_code for _ in range(20)]
        assert statuses[:6] == [200] * 6 and statuses.count(429) >= 10
        with found.address("127.0.0.13") as other:
            assert other.get("/livez").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/metrics/models",
        "/readyz",
        "/%6detrics",
        "//metrics",
        "/v1/../metrics",
        "/readyz/",
    ],
)
def test_what_is_not_for_the_public_is_hidden(proxy: Proxy, path: str) -> None:
    with connected(
        proxy,
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\nConnection: close\r\n\r\n".encode(),
    ) as found:
        found.settimeout(PATIENCE_S)
        answer = b""
        while part := found.recv(65536):
            answer += part
    assert b" 404 " in answer.split(b"\r\n")[0], answer[:200]
    assert b"calibrant_requests_total" not in answer and b"parked_entries" not in answer


@pytest.mark.parametrize(
    "path", ["/livez", "/version", "/openapi.json", "/v1/problems", "/sign-in"]
)
def test_the_rest_is_passed_on(proxy: Proxy, path: str) -> None:
    assert proxy.client.get(path).status_code == 200


def test_a_visitor_cannot_choose_a_name(service: Deployment, proxy: Proxy) -> None:
    """Even one who knows the secret: the proxy replaces what says who somebody is, and from where."""
    forged = {
        "X-Forwarded-User": "chief",
        "X-Forwarded-Groups": "readers",
        "X-Calibrant-Proxy-Secret": SECRET,
    }
    with httpx.Client(base_url=service.client.base_url) as direct:
        assert direct.get("/v1/models", headers=forged).status_code == 200
    assert proxy.client.get("/v1/models", headers=forged).status_code == 401
    elsewhere = {"X-Forwarded-For": "192.0.2.1"} | KEY
    with proxy.address("127.0.0.14") as client:
        assert client.delete("/v1/models/none", headers=elsewhere).status_code == 404
    log = service.directory / "http.log"
    eventually(lambda: '"client": "127.0.0.14"' in log.read_text())
    assert "192.0.2.1" not in log.read_text()


def test_a_body_above_the_bound_ends_at_the_proxy(proxy: Proxy) -> None:
    head = b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 33600000\r\n\r\n"
    with connected(proxy, head) as found:
        found.settimeout(PATIENCE_S)
        answer = found.recv(4000)
    assert b" 413 " in answer.split(b"\r\n")[0] and b"application/problem+json" in answer
    # An import may be larger: the service itself rejects this one.
    head = (
        b"POST /v1/models/m/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 33600000\r\n\r\n"
    )
    with connected(proxy, head) as found:
        found.settimeout(0.5)
        with pytest.raises(TimeoutError):
            found.recv(4000)


def test_a_service_that_is_away_is_a_problem_to_try_again(tmp_path: Path) -> None:
    with running(tmp_path / "n", reserved_port()) as found:
        away = found.client.get("/v1/models")
    assert (away.status_code, away.headers["retry-after"]) == (503, "2")
    assert away.json()["retryable"] is True


def test_events_are_passed_on_at_once(proxy: Proxy) -> None:
    with proxy.client.stream("GET", "/v1/alarms/events", headers=KEY) as stream:
        assert next(stream.iter_raw()).startswith(b"retry:")


def test_tls_has_its_headers_and_secure_cookies(service: Deployment, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path / "n"
    folder.mkdir()
    made = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=calibrant.example",
    ]
    subprocess.run(
        [*made, "-keyout", folder / "certificate_key", "-out", folder / "certificate"],
        check=True,
        capture_output=True,
    )
    with running(folder, service.port, "tls.conf") as found:
        url = f"https://127.0.0.1:{found.port}"
        with httpx.Client(
            base_url=url, verify=False, headers={"Host": "calibrant.example"}
        ) as client:
            done = client.post("/sign-in", data={"key": "k"})
            assert done.headers["strict-transport-security"] == "max-age=31536000"
            assert done.headers["set-cookie"].startswith("__Host-calibrant_session=")
            page = client.get("/", headers={"Cookie": done.headers["set-cookie"].partition(";")[0]})
            assert page.status_code == 200


class Oauth2Proxy(BaseHTTPRequestHandler):
    """Replies as oauth2-proxy does to `auth_request`: 202 with who signed in, or 401."""

    def do_GET(self) -> None:
        signed_in = "session=ann" in (self.headers["Cookie"] or "")
        self.send_response(202 if signed_in else 401)
        if signed_in:
            self.send_header("X-Auth-Request-Email", "ann@example.org")
            self.send_header("X-Auth-Request-Groups", "staff,readers")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_the_documented_sign_in_names_people(service: Deployment, tmp_path: Path) -> None:
    """The configuration that deploy/nginx has, with a stand-in for oauth2-proxy."""
    block = (ROOT / "deploy" / "nginx" / "oauth2-proxy.conf").read_text()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Oauth2Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = tmp_path / "n"
    folder.mkdir()
    port = reserved_port()
    text = block.replace("server {", f"server {{ listen 127.0.0.1:{port};", 1)
    text = text.replace("oauth2-proxy:4180", f"127.0.0.1:{server.server_port}")
    text = text.replace("the text of CALIBRANT_PROXY_SECRET", SECRET)
    (folder / "people.conf").write_text(
        text.replace("http://service:8000", f"http://127.0.0.1:{service.port}")
    )
    try:
        with (
            running(
                folder,
                service.port,
                **{"include server.conf;": "include server.conf; include people.conf;"},
            ),
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
        ):
            eventually(lambda: _listens(port))
            ann = {"Cookie": "session=ann"}
            assert client.get("/v1/models", headers=ann).status_code == 200
            assert client.get("/v1/keys", headers=ann).status_code == 403, "no role gives admin"
            assert client.get("/v1/models", headers=KEY).status_code == 200
            forged = {
                "X-Forwarded-User": "eve",
                "X-Forwarded-Groups": "readers",
                "X-Calibrant-Proxy-Secret": SECRET,
            }
            assert client.get("/v1/models", headers=forged).status_code == 401
    finally:
        server.shutdown()
        server.server_close()
    assert os.path.exists(folder / "error.log")
