"""Questions about one model that are asked against another over the same window."""

from dataclasses import replace

from service.auth import Caller
from service.engine import Connection, engine_errors
from service.reading import Ask, Reading
from service.reception import model_of
from workers.questions import Other


async def against_model(
    ask: Ask, model: str, kind: str, caller: Caller, connection: Connection, reading: Reading
) -> Ask:
    """Return `ask` as the question `kind`, which compares with the other model's same window."""
    twin = replace(ask, config=await model_of(connection, caller, model))
    with engine_errors():
        other = Other(twin.config, twin.slice_name, await reading.window(twin))
    return replace(ask, kind=kind, against=other)
