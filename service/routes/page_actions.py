"""Forms of the pages: alarms, maps and reports of a model, and the page of keys, for keys with the scope `admin`.

Each form becomes one request to the API, with the scopes, preconditions and audit entries of that operation.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Request, Response

from calibrant_server.service.http.parameters import PATTERN, ModelId
from calibrant_server.service.pages.api import ApiResponse, together
from calibrant_server.service.pages.rendering import PageRoute, error_page, moved, page
from calibrant_server.service.pages.visitors import Visitor, posted_form, visitor_of
from calibrant_server.service.reads.frozen_maps import MapNumber
from calibrant_server.service.security.keys import SCOPES

router = APIRouter(include_in_schema=False, default_response_class=Response, route_class=PageRoute)

AlarmId = Annotated[str, Path(pattern=f"^{PATTERN}$")]
Anybody = Annotated[Visitor, Depends(visitor_of)]


@router.post("/models/{model}/alarms/{alarm}/acknowledge")
async def post_acknowledgement(
    model: ModelId, alarm: AlarmId, request: Request, visitor: Anybody
) -> Response:
    """Acknowledge an alarm."""
    form = await posted_form(request, visitor)
    body = {"note": form["note"]} if form.get("note") else {}
    done = await visitor.api.send("POST", f"/v1/alarms/{alarm}/acknowledge", body)
    return _after(request, model, done, "alarms")


@router.post("/models/{model}/maps")
async def post_map(model: ModelId, request: Request, visitor: Anybody) -> Response:
    """Fit and freeze a map of one method."""
    form = await posted_form(request, visitor)
    body = {name: form[name] for name in ("method", "from") if form.get(name)}
    done = await visitor.api.send("POST", f"/v1/models/{model}/maps", body)
    return _after(request, model, done, "maps")


@router.post("/models/{model}/maps/{version}/promote")
async def post_promotion(
    model: ModelId, version: MapNumber, request: Request, visitor: Anybody
) -> Response:
    """Make a version the current map. `follows` is the promotion that the page showed: another one since then is a conflict."""
    form = await posted_form(request, visitor)
    follows = form.get("follows", "")
    condition = {"if-match": follows} if follows else {"if-none-match": "*"}
    body = {
        "version": version,
        "reason": form.get("reason", ""),
        "override": form.get("override") == "on",
    }
    done = await visitor.api.send("PUT", f"/v1/models/{model}/maps/current", body, condition)
    return _after(request, model, done, "maps")


@router.post("/models/{model}/reports")
async def post_report(model: ModelId, request: Request, visitor: Anybody) -> Response:
    """Archive the report of all data."""
    form = await posted_form(request, visitor)
    body = {"note": form["note"]} if form.get("note") else {}
    done = await visitor.api.send("POST", f"/v1/models/{model}/reports", body)
    return _after(request, model, done, "reports")


def _after(request: Request, model: str, done: ApiResponse, part: str) -> Response:
    """Return to the part of the page, or say why nothing was changed."""
    if done.is_ok:
        return moved(f"/models/{quote(model)}#{part}")
    return error_page(request, done.status, done.document["title"], done.problem)


N_CHANGES = 20
MAX_DAYS = 3650
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
