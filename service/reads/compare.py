"""Questions about one model that are asked against a baseline of it, or against another model over the same window."""

from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, Field

from calibrant_server.service.engine import Connection, engine_errors
from calibrant_server.service.http.identifiers import PATTERN
from calibrant_server.service.ingest.service import model_of
from calibrant_server.service.reads.queries import unanswerable
from calibrant_server.service.reads.service import ReadQuery, ReadService
from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.queries.ask import Other
from calibrant_server.workers.store.watermarks import baseline_slice
from calibrant_server.workers.store.windows import LAST_SECOND, Window

EVER = Window(0, LAST_SECOND)


class AgainstQuery(BaseModel):
    """What an answer is compared with, if with anything."""

    against: Annotated[str, Field(pattern=f"^{PATTERN}$")] | None = Field(
        None, description="A baseline: what it says, and the difference with its interval."
    )
    against_model: Annotated[str, Field(pattern=f"^{PATTERN}$")] | None = Field(
        None,
        description="Another model over the same window, in place of a baseline; paired where ids are shared.",
    )


async def compared(
    ask: ReadQuery,
    query: AgainstQuery,
    caller: Caller,
    connection: Connection,
    reading: ReadService,
) -> ReadQuery:
    """Return the question as asked against what the query names; as it is where that is nothing."""
    if query.against is not None and query.against_model is not None:
        raise unanswerable("/against", "one_of", "use one of against, against_model")
    kind = f"{ask.kind}_difference"
    if query.against_model is not None:
        return await against_model(ask, query.against_model, kind, caller, connection, reading)
    if query.against is None:
        return ask
    with engine_errors():
        known = await connection.inbox.baselines(ask.config)
    if query.against not in known:
        listed = ", ".join(sorted(known)) or "none"
        detail = f"there is no baseline {query.against!r}; known: {listed}"
        raise unanswerable("/against", "unknown_baseline", detail)
    return replace(ask, kind=kind, against=Other(ask.config, baseline_slice(query.against), EVER))


async def against_model(
    ask: ReadQuery,
    model: str,
    kind: str,
    caller: Caller,
    connection: Connection,
    reading: ReadService,
) -> ReadQuery:
    """Return `ask` as the question `kind`, which compares with the other model's same window."""
    twin = replace(ask, config=await model_of(connection, caller, model))
    with engine_errors():
        other = Other(twin.config, twin.slice_name, await reading.window(twin))
    return replace(ask, kind=kind, against=other)
