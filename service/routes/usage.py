"""What a tenant uses of its limits."""

from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from calibrant_server.service.engine import engine_errors, engine_settings
from calibrant_server.service.http.bodies import JSON
from calibrant_server.service.http.dependencies import AppSettings, TheConnection
from calibrant_server.service.http.event_streams import Streams
from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.security.keys import Caller, Keyring, needs
from calibrant_server.workers.store.access_keys import MAX_KEYS

router = APIRouter(tags=["keys"], default_response_class=Response)

AnyReader = Annotated[Caller, Depends(needs("read", "admin", every_model=True))]


class Limit(BaseModel):
    """One limit of the tenant."""

    name: Literal[
        "models",
        "keys",
        "requests_per_second",
        "requests_per_second_of_a_key",
        "event_streams",
        "retained_records",
        "retained_bytes",
        "backlog_bytes",
    ]
    limit: float | None = Field(description="Null: unlimited.")
    used: float | None = Field(description="Null for rates: see the header RateLimit.")
    total: int | None = Field(
        None, description="For a total of the store: what the tenant uses of it, as `used`."
    )
    scope: Literal["deployment", "process"] = Field(
        description="What the limit applies to. `process`: `used` is that of the process that responded."
    )


class UsageResponse(BaseModel):
    """The limits of your tenant, and what it uses of them."""

    tenant: str
    limits: list[Limit]


@router.get(
    "/v1/usage",
    operation_id="getUsage",
    responses={200: success(UsageResponse, "Usage and limits"), **problems(422)},
)
async def get_usage(
    request: Request, caller: AnyReader, connection: TheConnection, settings: AppSettings
) -> Response:
    """Return the limits of your tenant and what it uses of them."""
    keyring: Keyring = request.app.state.keyring
    streams: Streams = request.app.state.streams
    engine, share = engine_settings(settings), keyring.share_of_tenant(settings.tenant_share)
    with engine_errors():
        n_models = await connection.registry.count(caller.tenant)
        partitions = await connection.inbox.usage.by_partition(caller.tenant)
    found = [
        Limit(name="models", limit=settings.tenant_models, used=n_models, scope="deployment"),
        Limit(
            name="keys", limit=MAX_KEYS, used=keyring.n_created(caller.tenant), scope="deployment"
        ),
        Limit(
            name="event_streams",
            limit=max(1, int(settings.max_streams * share)),
            used=streams.of[caller.tenant],
            scope="process",
        ),
    ]
    rates = {
        "requests_per_second": settings.tenant_rate,
        "requests_per_second_of_a_key": settings.key_rate,
    }
    for name, rate in rates.items():
        limit = None if keyring.is_open else rate or None
        found.append(Limit(name=name, limit=limit, used=None, scope="deployment"))
    of_store = {
        "retained_records": (engine.retained_records, [each.records for each in partitions]),
        "retained_bytes": (engine.retained_bytes, [each.record_bytes for each in partitions]),
        "backlog_bytes": (engine.backlog_bytes, [each.backlog_bytes for each in partitions]),
    }
    for name, (bound, used) in of_store.items():
        limit = int(bound * share)
        found.append(
            Limit(name=name, limit=limit, used=sum(used), total=sum(used), scope="deployment")
        )
    body = UsageResponse(tenant=caller.tenant, limits=found).model_dump()
    return Response(orjson.dumps(body), 200, {"Cache-Control": "no-store"}, JSON)
