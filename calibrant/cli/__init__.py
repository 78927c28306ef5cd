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
    keys = commands.add_parser("keys", help="keys of callers", description="Keys of callers.")
    keys_commands = keys.add_subparsers(dest="keys_command", required=True, metavar="command")
    add_create_key(keys_commands.add_parser("create", help="add a key to the keys file"))
    given = parser.parse_args(arguments)
    try:
        if given.command == "keys":
            return create_key(given)
        serve = server()
    except MissingExtraError as error:
        raise SystemExit(f"calibrant: {error}") from error
    serve()


def add_create_key(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `calibrant keys create`."""
    parser.description = (
        "Create a key and print it. Its hash is added to the keys file, which a running service rereads. "
        "Keys are also created over HTTP: POST /v1/keys."
    )
    parser.add_argument("--file", help="keys file; default: CALIBRANT_KEYS_FILE")
    parser.add_argument("--name", required=True, help="name in logs")
    parser.add_argument("--tenant", default="default", help="default: default")
    parser.add_argument(
        "--scope",
        action="append",
        choices=["ingest", "read", "maps:read", "admin"],
        help="may be repeated; default: all",
    )
    parser.add_argument(
        "--model", action="append", help="model id, or a prefix and *; default: all"
    )
    parser.add_argument("--expires-at", help="RFC 3339 time; default: never")


def create_key(given: argparse.Namespace) -> None:
    """Add a key to the keys file and print it."""
    from pathlib import Path

    server()  # names the extra if it is missing
    from calibrant_server.service.security.key_file import KeysUnreadable, add_key

    path = given.file or os.environ.get("CALIBRANT_KEYS_FILE")
    if not path:
        raise SystemExit("calibrant: no keys file: give --file or set CALIBRANT_KEYS_FILE")
    members = {
        "name": given.name,
        "tenant": given.tenant,
        "scopes": given.scope,
        "models": given.model,
        "expires_at": given.expires_at,
    }
    try:
        secret = add_key(
            Path(path), **{name: value for name, value in members.items() if value is not None}
        )
    except (KeysUnreadable, ValueError) as error:
        raise SystemExit(f"calibrant: {error}") from error
    print(secret)
