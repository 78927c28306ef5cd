"""Command line: `calibrant score` evaluates files, `calibrant serve` starts the service, others use a service.

`serve` and `keys` need the extra `server`, all other commands the extra `cli`. This module needs neither, so that it can
name the missing one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version

from calibrant.cli import server_commands
from calibrant.cli.missing_packages import MissingExtraError, needed_by


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["--version"]:
            print(version("calibrant"))
        elif given and given[0] in server_commands.COMMANDS:
            server_commands.run(given)
        else:
            with needed_by("The command line", "cli"):
                from calibrant.cli.app import app
            app(given, prog_name="calibrant")
    except MissingExtraError as error:
        raise SystemExit(f"calibrant: {error}") from error
