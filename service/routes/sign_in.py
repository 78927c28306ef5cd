"""Sign-in of people with a key: the key is exchanged for a session in a cookie that opens pages only."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.engine import engine_errors
from calibrant_server.service.http.errors import KeyUnknown
from calibrant_server.service.pages.rendering import PageRoute, moved, page
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

router = APIRouter(include_in_schema=False, default_response_class=Response, route_class=PageRoute)

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
        with engine_errors():
            await request.app.state.connection.inbox.page_sessions.end(visitor.session)
    return with_cookie(moved("/sign-in"), request, None)


def _sign_in_page(request: Request, then: str, problem: str = "", status: int = 200) -> Response:
    values = {"next": then, "problem": problem, "is_private": is_private(request)}
    return page("sign_in.html", None, values, status)
