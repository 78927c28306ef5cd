"""Command line: `calibrant serve` starts the HTTP service, with the engine in the same process by default.

It needs the extra `server`. Standard library only, so that the command can report a missing extra.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from importlib.metadata import version

OURS = ("calibrant", "calibrant_server")


class MissingExtraError(ImportError):
    """A command needs packages of an extra that is not installed."""


def server() -> Callable[[], None]:
    """Return the function that serves.

    Raises
    ------
    MissingExtraError
        The extra `server` is not installed.
    """
    # Read when numpy is loaded. Matrices are small: threads of BLAS would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from calibrant_server.service.main import main
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OURS:
            raise
        raise MissingExtraError(
            f"The server needs the package {error.name!r}, which is not installed. "
            "Install the extra `server`: pip install 'calibrant[server]'"
        ) from error
    return main


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(
        prog="calibrant", description="Calibration of probabilistic predictions."
    )
    parser.add_argument("--version", action="version", version=version("calibrant"))
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser(
        "serve",
        help="serve over HTTP",
        description="Serve over HTTP. Settings are environment variables with the prefix CALIBRANT_: "
        "CALIBRANT_HOST, CALIBRANT_PORT, CALIBRANT_DATA_DIR and others (docs/operations.md).",
    )
    parser.parse_args(arguments)
    try:
        serve = server()
    except MissingExtraError as error:
        raise SystemExit(f"calibrant: {error}") from error
    serve()
