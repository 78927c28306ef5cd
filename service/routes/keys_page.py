"""Page of keys, usage and changes, for keys with the scope `admin`."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response

from calibrant_server.service.pages.api import together
from calibrant_server.service.pages.rendering import PageRoute, error_page, moved, page
from calibrant_server.service.pages.visitors import Visitor, posted_form, visitor_of
from calibrant_server.service.security.keys import SCOPES

router = APIRouter(include_in_schema=False, default_response_class=Response, route_class=PageRoute)

N_CHANGES = 20
MAX_DAYS = 3650
Anybody = Annotated[Visitor, Depends(visitor_of)]
KeyId = Annotated[str, Path(pattern=r"^k_[0-9a-f]{16}$")]


@router.get("/keys")
async def get_keys_page(visitor: Anybody) -> Response:
    """Show keys, usage and the last changes."""
    return await _keys_page(visitor)


@router.post("/keys")
async def post_key(request: Request, visitor: Anybody) -> Response:
    """Create a key, and show it once."""
    form = await posted_form(request, visitor)
    made = await visitor.api.send("POST", "/v1/keys", _new_key(form))
    if not made.is_ok:
        return error_page(request, made.status, made.document["title"], made.problem)
    return await _keys_page(visitor, made=made.document)


@router.post("/keys/{key}/revoke")
async def post_revocation(key: KeyId, request: Request, visitor: Anybody) -> Response:
    """Revoke a key."""
    await posted_form(request, visitor)
    done = await visitor.api.send("DELETE", f"/v1/keys/{key}")
    if not done.is_ok:
        return error_page(request, done.status, done.document["title"], done.problem)
    return moved("/keys")


async def _keys_page(visitor: Visitor, made: dict[str, Any] | None = None) -> Response:
    api = visitor.api
    found = await together(
        keys=api.get("/v1/keys", limit=1000),
        usage=api.get("/v1/usage"),
        changes=api.get("/v1/audit", limit=N_CHANGES),
    )
    usage = found["usage"]
    if not usage.is_ok:
        return error_page(visitor.request, usage.status, usage.document["title"], usage.problem)
    keys, changes = found["keys"], found["changes"]
    values = {"made": made, "scopes": SCOPES, "keys": keys, "usage": usage, "changes": changes}
    return page("keys.html", visitor, values)


def _new_key(form: dict[str, str]) -> dict[str, Any]:
    """Return the body of the request: models are separated by commas or spaces, the expiry is a number of days."""
    body: dict[str, Any] = {
        "name": form.get("name", "").strip(),
        "scopes": [each for each in form.get("scope", "").split(",") if each],
    }
    models = form.get("models", "").replace(",", " ").split()
    if models:
        body["models"] = models
    days = form.get("days", "").strip()
    if days.isascii() and days.isdigit() and len(days) <= 4 and 0 < int(days) <= MAX_DAYS:
        body["expires_at"] = (datetime.now(UTC) + timedelta(days=int(days))).isoformat()
    elif days:
        # The API rejects it and says why. A number alone would be seconds since 1970.
        body["expires_at"] = f"{days} days"
    return body
