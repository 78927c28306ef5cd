"""What people do on the page of a model: acknowledge an alarm, freeze a map, promote one or return to an earlier one, archive a report.

Each form becomes one request to the API, with the scopes, preconditions and audit entries of that operation.
"""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Request, Response

from calibrant_server.service.http.parameters import PATTERN, ModelId
from calibrant_server.service.pages.api import ApiResponse
from calibrant_server.service.pages.rendering import PageRoute, error_page, moved
from calibrant_server.service.pages.visitors import Visitor, posted_form, visitor_of
from calibrant_server.service.reads.frozen_maps import MapNumber

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
