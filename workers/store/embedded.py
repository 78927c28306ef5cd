"""The embedded store: a private Valkey server in the data directory, started, found again and stopped here.

Two locks make it safe. The server process inherits `server.lock`, so the lock is held exactly while a server runs. A process
that gets the lock may start a server. A process that does not get it attaches to the running server, even if the process
that started it was killed. All users of the server share `users.lock`; the last one stops the server.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

from calibrant_server.workers.store.server_files import (
    EmbeddedServerError,
    ServerSilent,
    check_no_stray_files,
    find_binary,
)

log = logging.getLogger(__name__)

# The path of a Unix socket has at most 107 bytes on Linux and 103 on macOS.
_MAX_SOCKET_PATH = 100
_POLL_S = 0.003
_START_S = 30.0
_STOP_S = 15.0
_WATCH_S = 1.0
# `replicated` is rejected once the server has started: it has no replica.
_FSYNC_OF = {"everysec": "everysec", "fsync": "always", "replicated": "everysec"}


class EmbeddedServer:
    """A private server on a Unix socket, with its files in one directory.

    Parameters
    ----------
    directory : created with mode 0700 if it does not exist
    durability : `everysec` or `fsync`
    binary : path or name of a `valkey-server` or `redis-server`; None: the packaged one
    memory_bytes : bound of the server's memory; 0: none
    loads_snapshot : start from `dump.rdb`, without an append-only file; for a restore

    Examples
    --------
    >>> with EmbeddedServer(Path("data/store")) as url:  # doctest: +SKIP
    ...     redis.Redis.from_url(url).ping()
    """

    def __init__(
        self,
        directory: Path,
        durability: str = "everysec",
        binary: str | None = None,
        memory_bytes: int = 0,
        loads_snapshot: bool = False,
    ):
        self.directory = Path(directory).absolute()
        self._fsync = _FSYNC_OF[durability]
        self._binary = binary
        self._memory_bytes = memory_bytes
        self._loads_snapshot = loads_snapshot
        self._process: subprocess.Popen[bytes] | None = None
        self._users: int | None = None
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None
        self._changing = threading.Lock()
        self.adopted = False

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"unix://{self._socket_path()}"

    def start(self) -> str:
        """Start the server, or attach to the one that runs on this directory; return its URL."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.directory.chmod(0o700)
            self._users = self._open_lock("users.lock")
        except OSError as error:
            reason = f"{(error.strerror or str(error)).lower()}: {error.filename}"
            raise EmbeddedServerError(
                f"the data directory cannot be used ({reason}); set CALIBRANT_DATA_DIR to one that can be written"
            ) from error
        _lock(self._users, fcntl.LOCK_SH, time.monotonic() + _STOP_S)
        try:
            self._start_or_attach()
        except BaseException:
            self._leave()
            raise
        self._stop.clear()
        self._watcher = threading.Thread(target=self._watch, name="embedded-server", daemon=True)
        self._watcher.start()
        return self.url

    def stop(self) -> None:
        """Stop using the server; the last user stops it."""
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None
        if self._users is None:
            return
        try:
            # If several leave at once, the last one to request this lock gets it.
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("embedded_store_still_in_use")
            self._let_go()
        else:
            self._shut_down()
        self._leave()

    @property
    def is_running(self) -> bool:
        """Whether a server of this directory responds."""
        return self._responds()

    def _let_go(self) -> None:
        """Wait for a server that another process stops, as its parent must."""
        process, self._process = self._process, None
        if process is not None:
            threading.Thread(target=process.wait, name="server-collector", daemon=True).start()

    def _leave(self) -> None:
        if self._users is not None:
            os.close(self._users)
            self._users = None

    def _start_or_attach(self) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            lock = self._open_lock("server.lock")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # A server runs, or another process is starting one.
                if self._responds():
                    self.adopted = True
                    self._set_fsync()
                    return
            else:
                self.adopted = False
                self._launch(lock, deadline)
                return
            finally:
                os.close(lock)
            if time.monotonic() > deadline:
                raise ServerSilent(
                    f"a server uses {self.directory} but does not respond on its socket; "
                    f"see {self.directory / 'server.log'}"
                )
            time.sleep(_POLL_S)

    def _launch(self, lock: int, deadline: float) -> None:
        if not self._loads_snapshot:
            check_no_stray_files(self.directory)
        path = self._new_socket_path()
        path.unlink(missing_ok=True)
        with open(self.directory / "server.log", "ab") as output:
            self._process = subprocess.Popen(
                [find_binary(self._binary), *self._options(path)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=self.directory, pass_fds=(lock,),
                # Its own process group: an interrupt at the terminal must not stop it before the workers have finished.
                # The same session: Linux divides a core among sessions first (autogroup). In a session of its own, the work
                # that one tenant causes in the store had as much of a core as all processes of the service together.
                process_group=0,
            )  # fmt: skip
        while not self._responds():
            if self._process.poll() is not None:
                raise EmbeddedServerError(f"the private server did not start: {self._last_words()}")
            if time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                raise EmbeddedServerError(
                    f"the private server does not respond: {self._last_words()}"
                )
            time.sleep(_POLL_S)

    def _options(self, socket_path: Path) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(socket_path),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "save": "",
            "appendonly": "no" if self._loads_snapshot else "yes",
            "appendfsync": self._fsync,
            "aof-load-truncated": "yes",
            "maxmemory": str(self._memory_bytes),
            "maxmemory-policy": "noeviction",
            "databases": "1",
            # Looks of an idle server at its clients and its expired keys, per second: at the usual ten, they were most of its work.
            "hz": "2",
            "daemonize": "no",
            "protected-mode": "yes",
        }
        return [part for name, value in options.items() for part in (f"--{name}", value)]

    def _watch(self) -> None:
        """Restart the server if it dies while in use."""
        while not self._stop.wait(_WATCH_S):
            if self._process is not None and self._process.poll() is None:
                continue
            if self._responds():
                continue
            try:
                log.warning("embedded_store_restarted")
                self._process = None
                self._start_or_attach()
            except EmbeddedServerError as error:
                log.error("embedded_store_not_restarted error=%s", error)

    def _shut_down(self) -> None:
        self._send(b"SHUTDOWN NOSAVE\r\n")
        deadline = time.monotonic() + _STOP_S
        lock = self._open_lock("server.lock")
        try:
            if self._process is not None:
                try:
                    self._process.wait(timeout=_STOP_S)
                except subprocess.TimeoutExpired:
                    self._process.terminate()
                    self._process.wait()
            _lock(lock, fcntl.LOCK_EX, deadline)
        except TimeoutError:
            log.error("embedded_store_not_stopped")
        finally:
            os.close(lock)
        self._process = None
        self._remove_short_directory()

    def _socket_path(self) -> Path:
        """Return the path of the socket: in the directory, or elsewhere if that path is too long."""
        usual = self.directory / "server.sock"
        if len(os.fsencode(usual)) <= _MAX_SOCKET_PATH:
            return usual
        try:
            return Path((self.directory / "socket-path").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return usual

    def _new_socket_path(self) -> Path:
        path = self._socket_path()
        if len(os.fsencode(path)) <= _MAX_SOCKET_PATH and path.parent.is_dir():
            return path
        # mkdtemp makes it readable by its owner only.
        short = Path(tempfile.mkdtemp(prefix="calibrant-")) / "s"
        if len(os.fsencode(short)) > _MAX_SOCKET_PATH:
            short.parent.rmdir()
            short = Path(tempfile.mkdtemp(prefix="calibrant-", dir="/tmp")) / "s"
        draft = self.directory / "socket-path.new"
        draft.write_text(str(short), encoding="utf-8")
        draft.replace(self.directory / "socket-path")
        return short

    def _remove_short_directory(self) -> None:
        noted = self.directory / "socket-path"
        if noted.exists():
            shutil.rmtree(Path(noted.read_text(encoding="utf-8")).parent, ignore_errors=True)
            noted.unlink()

    def _responds(self) -> bool:
        return self._send(b"PING\r\n").startswith(b"+PONG")

    def _set_fsync(self) -> None:
        self._send(b"CONFIG SET appendfsync %s\r\n" % self._fsync.encode())

    def _send(self, command: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(1.0)
            try:
                link.connect(str(self._socket_path()))
                link.sendall(command)
                return link.recv(200)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    raise EmbeddedServerError(str(error)) from error
                return b""

    def _open_lock(self, name: str) -> int:
        return os.open(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _last_words(self) -> str:
        lines = (self.directory / "server.log").read_text(errors="replace").splitlines()
        return " / ".join(lines[-3:]) or "it said nothing"


def _lock(descriptor: int, kind: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError("a lock in the data directory is held too long") from None
            time.sleep(_POLL_S)
