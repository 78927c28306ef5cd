"""`calibrant alarms`: list alarms, and acknowledge those of a model."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.text import Text
from typer.core import TyperGroup

from calibrant.cli.connection import DEFAULT_URL, JSON, Key, Url, pages, registered, service
from calibrant.cli.model_commands import add_names, write
from calibrant.cli.terminal import fail, new_table, output
from calibrant.figures.numbers import MISSING, by_whom, to_the_minute

COLUMNS = ("Alarm", "Slice", "State", "Raised", "Changed since", "Acknowledged", "Id")


class AlarmCommands(TyperGroup):
    """Commands with `list` as the default: `calibrant alarms MODEL`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the command if the arguments do not."""
        is_named = bool(args) and args[0] in (*self.commands, "--help")
        return super().parse_args(ctx, args if is_named else ["list", *args])


app = typer.Typer(
    cls=AlarmCommands,
    rich_markup_mode=None,
    help="The alarms of models: a list, newest first, or an acknowledgement.",
)


def list_(
    model: Annotated[str | None, typer.Argument(help="its id; default: all models")] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    state: Annotated[
        str | None, typer.Option(help="open, acknowledged or closed; default: all")
    ] = None,
) -> None:
    """List alarms, newest first. The default command."""
    query = {name: text for name, text in (("model", model), ("state", state)) if text is not None}
    with service(url, key) as connected:
        found = pages(connected, "/v1/alarms", "alarms", **query)
    table = new_table(())
    add_names(table, "Model", [str(each["model"]) for each in found])
    for name in COLUMNS:
        table.add_column(name, no_wrap=name == "Id", overflow="fold")
    for each in found:
        times = (each["raised_at"], each["start_of_change"])
        named = (by_whom(each["acknowledged_by"]), each["id"])
        cells = (each["title"], each["slice"], each["state"], *map(_minute, times), *named)
        table.add_row(Text(each["model"]), *(Text(str(cell or MISSING)) for cell in cells))
    output().print(table if found else "No alarm was raised.")
    for name in dict.fromkeys(each["model"] for each in found if each["state"] == "open"):
        write(f"What to do about {name}: calibrant drift {name}")


def acknowledge(
    named: Annotated[
        str, typer.Argument(metavar="MODEL_OR_ID", help="a model's id, or an alarm's")
    ],
    url: Url = DEFAULT_URL,
    key: Key = None,
    note: Annotated[str | None, typer.Option(help="the reason, stored with the alarm")] = None,
) -> None:
    """Acknowledge an alarm, or all open alarms of a model. The model itself stays as it is."""
    body = json.dumps({} if note is None else {"note": note}).encode()
    with service(url, key) as connected:
        found = pages(connected, "/v1/alarms", "alarms", state="open", acknowledged="false")
        chosen = [each for each in found if named in (each["id"], each["model"])]
        if not chosen:
            fail(_nothing_open(named))
        for each in chosen:
            path = f"/v1/alarms/{quote(each['id'], safe='')}/acknowledge"
            connected.send("POST", path, body, JSON)
            of_slice = "" if each["slice"] is None else f" in {each['slice']}"
            write(f"{each['model']}: acknowledged {each['title']}{of_slice} ({each['id']}).")


def _nothing_open(named: str) -> str:
    """Return why nothing can be acknowledged.

    >>> _nothing_open("churn"), _nothing_open("al_003_0f1e2d3c4b5a69788796")
    ('churn has no open alarm.', 'al_003_0f1e2d3c4b5a69788796 is not the id of an open alarm.')
    """
    if named.startswith("al_"):
        return f"{named} is not the id of an open alarm."
    return f"{named} has no open alarm."


def _minute(timestamp: str | None) -> str | None:
    return None if timestamp is None else to_the_minute(timestamp).removesuffix(" UTC")


registered(app, list_, acknowledge)
