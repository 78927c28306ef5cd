"""`calibrant read`: one result of a model, under the name that its declaration has."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from calibrant.cli.connection import DEFAULT_URL, Key, Url, service
from calibrant.cli.terminal import fail, new_table, output
from calibrant.client import operations
from calibrant.results.reads import find_reads


def read(
    model: Annotated[str | None, typer.Argument(help="its id")] = None,
    result: Annotated[str | None, typer.Argument(help="default: list all results")] = None,
    parameters: Annotated[
        list[str] | None, typer.Argument(help="as NAME=VALUE: window=P7D scope=positive")
    ] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Write a result of a model as JSON; without a result, list the results that there are."""
    if model is None or result is None:
        output().print(results())
        return
    found = find_reads().get(result.replace("-", "_"))
    if found is None:
        fail(f"Received result {result!r}; expected one of {', '.join(find_reads())}.")
    query: dict[str, Any] = dict(_pair(each) for each in parameters or ())
    with service(url, key) as connected:
        response = connected.client.run(operations.result(model, found, query))
    typer.echo(json.dumps(response.to_dict(), indent=2))


def results() -> Table:
    """Return the results that the library declares as a table."""
    table = new_table(("Result", "Content"))
    for name, each in find_reads().items():
        table.add_row(name, each.summary.partition("\n")[0])
    return table


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        fail(f"Received parameter {text!r}; expected NAME=VALUE, such as window=P7D.")
    return name, value
