"""Commands of the extra `server`: `calibrant serve` and `calibrant keys create`.

Their options are read with the standard library, so that an installation with the extra `server` alone has them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

from calibrant.cli.missing_packages import needed_by

COMMANDS = {
    "serve": "serve over HTTP, with the engine in the same process by default",
    "keys": "create keys of callers",
}


def run(arguments: Sequence[str]) -> None:
    """Run one of the commands."""
    given = _parser().parse_args(arguments)
    if given.command == "keys":
        return create_key(given)
    server()()
    return None


def server() -> Callable[[], None]:
    """Return the function that serves.

    Raises
    ------
    MissingExtraError
        The extra `server` is not installed.
    """
    # Read when numpy is loaded. Matrices are small: threads of BLAS would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with needed_by("The server", "server"):
        from calibrant_server.service.main import main
    return main


def create_key(given: argparse.Namespace) -> None:
    """Add a key to the keys file and print it."""
    from pathlib import Path

    server()  # names the extra if it is missing
    from calibrant_server.service.security.key_file import KeysUnreadable, add_key

    path = given.file or os.environ.get("CALIBRANT_KEYS_FILE")
    if not path:
        raise SystemExit("calibrant: no keys file is named: pass --file or set CALIBRANT_KEYS_FILE")
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


class _Once(argparse.Action):
    """Store the value of an option, and reject the option given twice: only its last value would count."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the first value."""
        given: set[str] = vars(namespace).setdefault("given_once", set())
        if self.dest in given:
            parser.error(f"Received {option_string} 2 times; expected it once.")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="calibrant", description="Commands of the server.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser(
        "serve",
        help=COMMANDS["serve"],
        description="Serve over HTTP. Settings are environment variables with the prefix CALIBRANT_: "
        "CALIBRANT_HOST, CALIBRANT_PORT, CALIBRANT_DATA_DIR and others (docs/operations.md).",
    )
    keys = commands.add_parser("keys", help=COMMANDS["keys"], description="Keys of callers.")
    keys_commands = keys.add_subparsers(dest="keys_command", required=True, metavar="command")
    _add_create_key(keys_commands.add_parser("create", help="add a key to the keys file"))
    return parser


def _add_create_key(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Create a key and print it. Its hash is added to the keys file, which a running service rereads. "
        "Keys are also created over HTTP: POST /v1/keys."
    )
    parser.register("action", None, _Once)
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
