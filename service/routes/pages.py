"""Pages for people: sign-in with a key, all models, one model, its raters and cases, keys; and their forms and files.

Each form becomes one request to the API, with the scopes, preconditions and audit entries of that operation. A key is exchanged for a session in a
cookie that opens pages only."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.http.parameters import PATTERN, ModelId
from calibrant_server.service.http.problems import KeyUnknown, PathUnknown, ScopeMissing
from calibrant_server.service.pages import rendering
from calibrant_server.service.pages.api import ApiResponse, together
from calibrant_server.service.pages.model_page import ModelPageQuery, model_page
from calibrant_server.service.pages.models_page import ModelsPageQuery, models_page
from calibrant_server.service.pages.raters_page import raters_page
from calibrant_server.service.pages.rendering import PageRoute, error_page, moved, page
from calibrant_server.service.pages.visitors import (
    Visitor,
    begin_session,
    form_of,
    is_private,
    local_path,
    posted_form,
    reject_other_sites,
    visitor_of,
    with_cookie,
)
from calibrant_server.service.reads.archived_reports import ReportNumber
from calibrant_server.service.reads.frozen_maps import MapNumber
from calibrant_server.service.security.keys import SCOPES

router = APIRouter(include_in_schema=False, default_response_class=Response, route_class=PageRoute)

ASSETS = {
    "pages.css": "text/css",
    "pages.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "htmx.LICENSE": "text/plain",
    "uplot.min.js": "text/javascript",
    "uplot.min.css": "text/css",
    "uplot.LICENSE": "text/plain",
    "icon.svg": "image/svg+xml",
}
# Reads of the API whose figures pages show.
# By the name in the address of a page, the read that is drawn.
FIGURES = {name: name for name in ("drift", "metrics", "reliability", "temperature")}
FIGURES["map_effect"] = "maps/current/effect"
# A new version of the service has other files under the same names.
AN_HOUR = {"Cache-Control": "public, max-age=3600"}


async def _reader(request: Request) -> Visitor:
    visitor = await visitor_of(request)
    if not visitor.may_read:
        raise ScopeMissing("Your key has no scope `read`. Sign out, and sign in with another key.")
    return visitor


Reader = Annotated[Visitor, Depends(_reader)]


@router.get("/")
async def get_models_page(
    request: Request, visitor: Reader, query: Annotated[ModelsPageQuery, Query()]
) -> Response:
    """Show all models; without one, how to post the first predictions."""
    found = await models_page(request, visitor, query)
    if not found.n_models:
        address = str(request.base_url).rstrip("/")
        guide = {"address": address, "needs_key": bool(visitor.session)}
        return page("first_post.html", visitor, guide)
    return page("models.html", visitor, {"found": found, "query": query})


@router.get("/models/{model}")
async def get_model_page(
    model: ModelId, visitor: Reader, query: Annotated[ModelPageQuery, Query()]
) -> Response:
    """Show one model."""
    return _model_page("model.html", visitor, await model_page(visitor.api, model, query))


@router.get("/models/{model}/figures/{name}")
async def get_page_figure(model: ModelId, name: str, request: Request, visitor: Reader) -> Response:
    """Return a figure of the API as SVG, under its ETag; the query is that of the read."""
    if name not in FIGURES:
        raise PathUnknown("There is no such figure.")
    known = request.headers.get("if-none-match")
    path, query = f"/v1/models/{model}/{FIGURES[name]}", str(request.url.query)
    found = await visitor.api.read(path, "image/svg+xml", query, known)
    headers = rendering.FIGURE_HEADERS | ({"ETag": found.etag} if found.etag else {})
    if not found.is_ok:
        return Response(found.problem, found.status, headers, "text/plain")
    return Response(found.content, found.status, headers, "image/svg+xml")


@router.get("/models/{model}/raters")
async def get_raters_page(
    model: ModelId, visitor: Reader, query: Annotated[ModelPageQuery, Query()]
) -> Response:
    """Show raters and cases of one model."""
    return _model_page("raters.html", visitor, await raters_page(visitor.api, model, query))


@router.get("/models/{model}/report")
async def get_report_page(model: ModelId, visitor: Reader) -> Response:
    """Return the report of a model, which also `GET /v1/models/{model}/report` returns."""
    return await _report(visitor, f"/v1/models/{model}/report")


@router.get("/models/{model}/reports/{report}")
async def get_archived_report_page(
    model: ModelId, report: ReportNumber, visitor: Reader
) -> Response:
    """Return an archived report, which also `GET /v1/models/{model}/reports/{report}` returns."""
    return await _report(visitor, f"/v1/models/{model}/reports/{report}")


async def _report(visitor: Visitor, path: str) -> Response:
    found = await visitor.api.read(path, "text/html")
    if not found.is_ok:
        # The first report of many panes is read by several requests.
        wait = found.retry_after if found.status == 503 else None
        title = found.document["title"]
        return rendering.error_page(visitor.request, found.status, title, found.problem, wait)
    return Response(found.content, headers=rendering.REPORT_HEADERS, media_type="text/html")


def _model_page(name: str, visitor: Visitor, values: dict[str, Any]) -> Response:
    settings: ApiResponse = values["settings"]
    if not settings.is_ok:
        return rendering.error_page(
            visitor.request, settings.status, settings.document["title"], settings.problem
        )
    return page(name, visitor, values)


@router.get("/assets/{asset}")
async def get_page_asset(asset: str = Path()) -> Response:
    """Return a file that pages use."""
    if asset not in ASSETS:
        raise PathUnknown("There is no such file.")
    return Response(rendering.asset(asset), headers=AN_HOUR, media_type=ASSETS[asset])


@router.get("/favicon.ico")
async def get_page_icon() -> Response:
    """Return the icon, which a browser asks for beside documents that name none, such as reports."""
    return await get_page_asset("icon.svg")


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


FIT_FIELDS = ("method", "from", "to", "slice", "clock", "weights", "raters")


@router.post("/models/{model}/maps")
async def post_map(model: ModelId, request: Request, visitor: Anybody) -> Response:
    """Fit and freeze a map of one method."""
    form = await posted_form(request, visitor)
    body = {name: form[name] for name in FIT_FIELDS if form.get(name)}
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
    actions = rendering.actions(visitor.request.app)
    values = {
        "made": made, "scopes": SCOPES, "keys": keys, "usage": usage, "changes": changes, "actions": actions,
    }  # fmt: skip
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


WRONG = "This key is unknown, revoked or expired. Paste the complete key, without the word Bearer."


class SignInQuery(BaseModel):
    """Where to go afterwards."""

    model_config = ConfigDict(extra="ignore")

    next: str = Field("/", max_length=2000)


@router.get("/sign-in")
async def get_sign_in_page(request: Request, query: Annotated[SignInQuery, Query()]) -> Response:
    """Show the form for a key."""
    if request.app.state.keyring.is_open:
        return moved("/")
    return _sign_in_page(request, local_path(query.next))


@router.post("/sign-in")
async def post_sign_in(request: Request) -> Response:
    """Begin a session."""
    reject_other_sites(request)
    form = await form_of(request)
    then = local_path(form.get("next", "/"))
    try:
        session = await begin_session(request, form.get("key", "").strip())
    except KeyUnknown:
        return _sign_in_page(request, then, WRONG, 401)
    return with_cookie(moved(then), request, session)


@router.post("/sign-out")
async def post_sign_out(
    request: Request, visitor: Annotated[Visitor, Depends(visitor_of)]
) -> Response:
    """End the session."""
    await posted_form(request, visitor)
    if visitor.session:
        await request.app.state.connection.inbox.page_sessions.end(visitor.session)
    return with_cookie(moved("/sign-in"), request, None)


def _sign_in_page(request: Request, then: str, problem: str = "", status: int = 200) -> Response:
    values = {"next": then, "problem": problem, "is_private": is_private(request)}
    return page("sign_in.html", None, values, status)
