"""A TCP proxy whose target can be switched, as a name that moves to another server in a failover."""

from __future__ import annotations

import contextlib
import socket
import threading


class Switch:
    """Forwards connections of a loopback port to the Unix socket that is its target when they are opened."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.target)
            except OSError:
                client.close()
                server.close()
                continue
            self._links += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        """Stop listening and close every connection."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for link in self._links:
            _shut(link)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    _shut(source)
    _shut(sink)


def _shut(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()
