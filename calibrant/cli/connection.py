"""The service that a command uses: its address and key, and errors as sentences."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from calibrant.cli.terminal import fail
from calibrant.client import Client, ClientError, ServiceError, ServiceUnreachable
from calibrant.client.errors import NO_SERVICE
from calibrant.client.operations import Operation, model_path

Url = Annotated[str, typer.Option("--url", envvar="CALIBRANT_URL", help="address of the service")]
Key = Annotated[
    str | None,
    typer.Option("--key", envvar="CALIBRANT_KEY", help="key of your tenant", show_envvar=True),
]
# The service that `calibrant serve` starts with the same environment.
PAGE_SIZE = "100"
DEFAULT_URL = f"http://127.0.0.1:{os.environ.get('CALIBRANT_PORT') or '8000'}"
JSON = {"Content-Type": "application/json"}
ADDRESS = ": --url, or CALIBRANT_URL."


@dataclass(frozen=True)
class Service:
    """A client, and requests that it has no method for."""

    client: Client

    def get(self, path: str, **query: str) -> Any:
        """Return the JSON of a GET request."""
        return self.client.run(Operation("GET", path, plain, query))

    def send(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], **query: str
    ) -> Any:
        """Return the JSON of a request with a body."""
        return self.client.run(Operation(method, path, plain, query, body, headers))

    def current_map(self, model: str) -> tuple[Mapping[str, str] | None, Any]:
        """Return the headers and the JSON of the promoted map; no headers if none was promoted."""
        operation = Operation("GET", model_path(model, "/maps/current"), plain)
        transport = self.client.connect()
        try:
            return transport.response(operation)
        except ServiceError as error:
            if error.slug != "map-unknown":
                raise
            return None, None
        finally:
            transport.close()

    def classes(self, model: str) -> list[str] | None:
        """Return the names of a model's classes; None if it has none, does not exist yet, or the key may not read it."""
        try:
            found: list[str] | None = self.client.run(Operation("GET", model_path(model), plain))[
                "classes"
            ]
        except ServiceError as error:
            if error.slug not in ("model-unknown", "scope-missing"):
                raise
            return None
        return found


def pages(connected: Service, path: str, name: str, **query: str) -> list[Mapping[str, Any]]:
    """Return the entries of all pages of a list."""
    found: list[Mapping[str, Any]] = []
    query |= {"limit": PAGE_SIZE}
    while True:
        page = connected.get(path, **query)
        found += page[name]
        if not page["next"]:
            return found
        query["cursor"] = page["next"]


def plain(found: Any) -> Any:
    """Return the JSON of a response unchanged."""
    return found


@contextmanager
def service(url: str, key: str | None) -> Iterator[Service]:
    """Connect; end the command with a sentence if the service rejects a request or cannot be reached."""
    try:
        with Client(url, key) as client:
            yield Service(client)
    except ServiceUnreachable as error:
        is_silent = str(error).endswith(NO_SERVICE)
        fail(f"{str(error).removesuffix('.')}{ADDRESS}" if is_silent else str(error))
    except (ClientError, ImportError, ValueError) as error:
        fail(str(error))


class OnceCommand(TyperCommand):
    """A command that rejects an option given twice: only its last value would count."""

    def make_parser(self, ctx: Any) -> Any:
        """Return the parser of the command, which rejects repeated options."""
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args

        def parsed(args: list[str]) -> Any:
            found = parse(args=args)
            _reject_repeated(found[2])
            return found

        parser.parse_args = parsed
        return parser


def _reject_repeated(order: list[Any]) -> None:
    """Reject an option of one value that was given several times; `order` has the parameters as they were given."""
    for param in dict.fromkeys(order):
        is_single = isinstance(param, TyperOption) and not (param.multiple or param.is_flag)
        if is_single and (n := order.count(param)) > 1:
            fail(f"Received {' / '.join(param.opts)} {n} times; expected it once.", 2)


def registered(app: typer.Typer, *commands: Callable[..., None]) -> None:
    """Add commands under the names of their functions."""
    for command in commands:
        name = command.__name__.removesuffix("_").replace("_", "-")
        app.command(name, cls=OnceCommand)(command)
