"""The commands of the extra `cli`, and those of the extra `server` for help and shell completion."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from calibrant.cli import alarm_commands, maps, server_commands
from calibrant.cli.connection import registered
from calibrant.cli.consume import consume
from calibrant.cli.doctor import doctor
from calibrant.cli.federate import federate
from calibrant.cli.fill import fill
from calibrant.cli.model_commands import drift, models, set_, watch
from calibrant.cli.model_files import export, import_, restore
from calibrant.cli.push import push
from calibrant.cli.read import read
from calibrant.cli.score import score

EXPECTED = {"int_parsing": "expected an integer", "float_parsing": "expected a number"}


class Commands(TyperGroup):
    """Commands whose errors of options also state what came."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            rejected = getattr(error.__context__, "errors", None)
            if rejected is not None and error.message.startswith("Input should"):
                received, kind = str(rejected()[0]["input"]), rejected()[0]["type"]
                expected = EXPECTED.get(kind, f"input{error.message[5:]}")
                help_text = getattr(error.param, "help", None)
                hint = f" {help_text[:1].upper()}{help_text[1:]}." if help_text else ""
                error.message = f"Received {received[:60]!r}; {expected}.{hint}"
            raise


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Calibration of probabilistic predictions: evaluate files, run the service, use a service.",
)
registered(
    app,
    score,
    fill,
    models,
    read,
    drift,
    set_,
    watch,
    push,
    consume,
    federate,
    export,
    import_,
    restore,
    doctor,
)
app.add_typer(alarm_commands.app, name="alarms")
app.add_typer(maps.app, name="maps")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("calibrant"))
        raise typer.Exit


@app.callback()
def _options(
    wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    return None


def _add(name: str, described: str) -> None:
    """Add a command whose options its own parser reads."""

    @app.command(
        name,
        help=f"{described[:1].upper()}{described[1:]} (extra `server`).",
        context_settings={
            "allow_extra_args": True,
            "ignore_unknown_options": True,
            "help_option_names": [],
        },
    )
    def _run(context: typer.Context) -> None:
        server_commands.run([name, *context.args])


for _name, _described in server_commands.COMMANDS.items():
    _add(_name, _described)
