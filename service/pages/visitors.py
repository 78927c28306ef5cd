"""Visitors of pages: a session in a cookie, the token of its forms, and forms themselves.

The cookie is random. The store knows which key it stands for, so a revoked or expired key ends its sessions, and the cookie
opens nothing but pages: the API reads no cookie. Scripts cannot read it, and pages of other sites cannot send it.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

from fastapi import Request, Response

from calibrant_server.service.http.bodies import read_body
from calibrant_server.service.http.problems import KeyUnknown, MalformedBody
from calibrant_server.service.ingest.service import IngestService
from calibrant_server.service.pages.api import Api
from calibrant_server.service.security.keys import (
    Caller,
    Keyring,
    caller_of,
    is_loopback,
    named_by_proxy,
    spend_request,
)
from calibrant_server.workers.store.page_sessions import SESSION_S

COOKIE = "calibrant_session"
# Browsers accept a cookie of this name only over https, from this host, for all of its paths.
SECURE_COOKIE = f"__Host-{COOKIE}"
FORM = "application/x-www-form-urlencoded"
MAX_FORM_BYTES, MAX_FIELDS = 16 * 1024, 40
TOKEN_FIELD = "token"
# What a path with a query may have besides letters and digits; a header has ASCII only.
_IN_PATHS = "/?#[]@!$&'()*+,;=:%"


class SignInNeeded(Exception):
    """The visitor has no session."""


class StaleForm(Exception):
    """A form without the token of its visitor's session: from another site, or from before a new session."""


@dataclass(frozen=True)
class Visitor:
    """Who sees a page.

    Attributes
    ----------
    session : the cookie; empty if the service runs without keys, or a proxy names the visitor
    form_secret : what tokens of forms are made with: the session, else a secret of the store, which pages of other sites cannot read
    """

    request: Request
    caller: Caller
    session: str
    form_secret: str

    @property
    def api(self) -> Api:
        """Return the API as this visitor sees it."""
        return Api(self.request, self.caller)

    @property
    def may_change(self) -> bool:
        """Whether the visitor's key has the scope of changes."""
        return "admin" in self.caller.scopes

    @property
    def may_read(self) -> bool:
        """Whether the visitor's key has the scope of results."""
        return "read" in self.caller.scopes

    @property
    def token(self) -> str:
        """Return the token that forms of this visitor carry."""
        about = f"form{self.caller.key_id}".encode()
        return hmac.new(self.form_secret.encode(), about, hashlib.sha256).hexdigest()


async def visitor_of(request: Request) -> Visitor:
    """Return the visitor of a page.

    Raises
    ------
    SignInNeeded
        There are keys, and the request has no session of one that is still valid.
    """
    keyring: Keyring = request.app.state.keyring
    session = request.cookies.get(_cookie(request), "")
    if keyring.is_open:
        visitor = await _without_session(request, caller_of(request))
    elif not session and (person := named_by_proxy(request)) is not None:
        spend_request(request, person)
        visitor = await _without_session(request, person)
    else:
        visitor = Visitor(request, await _caller(request, keyring, session), session, session)
    request.scope["caller"] = visitor.caller
    return visitor


async def _without_session(request: Request, caller: Caller) -> Visitor:
    secret = await request.app.state.connection.inbox.page_sessions.form_secret()
    return Visitor(request, caller, "", secret)


async def _caller(request: Request, keyring: Keyring, session: str) -> Caller:
    if not session:
        raise SignInNeeded()
    digest = await request.app.state.connection.inbox.page_sessions.key_digest(session)
    if digest is None:
        raise SignInNeeded()
    try:
        return keyring.caller_with_digest(digest)
    except KeyUnknown as error:
        raise SignInNeeded() from error


async def begin_session(request: Request, key: str) -> str:
    """Return the cookie of a new session of a key.

    Raises
    ------
    KeyUnknown
        There is no such key, or it has expired.
    RateExceeded
        Its tenant or the key has sent too many requests. A key that is unknown belongs to none.
    """
    keyring: Keyring = request.app.state.keyring
    spend_request(request, keyring.caller(key))
    digest = hashlib.sha256(key.encode()).hexdigest()
    token: str = await request.app.state.connection.inbox.page_sessions.begin(digest)
    return token


def is_private(request: Request) -> bool:
    """Return whether nobody between browser and service can read along: they are on one machine, or the request came over https."""
    return request.url.scheme == "https" or is_loopback(request.url.hostname or "")


def _cookie(request: Request) -> str:
    is_secure = request.url.scheme == "https" or not is_loopback(request.url.hostname or "")
    return SECURE_COOKIE if is_secure else COOKIE


def with_cookie(response: Response, request: Request, session: str | None) -> Response:
    """Return the response with the cookie of a session; with None it removes the cookie.

    A browser sends it over https only, except on its own machine, whatever the service knows of the proxy in front.
    """
    name = _cookie(request)
    response.set_cookie(
        name,
        session or "",
        max_age=SESSION_S if session else 0,
        path="/",
        secure=name == SECURE_COOKIE,
        httponly=True,
        samesite="strict",
    )
    return response


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a posted form; of a repeated field the values separated by commas."""
    ingest: IngestService = request.app.state.ingest
    small = {"max_body_bytes": MAX_FORM_BYTES, "max_decoded_bytes": MAX_FORM_BYTES}
    with ingest.admission.hold() as hold:
        body = await read_body(request, ingest.settings.model_copy(update=small), hold, (FORM,))
    try:
        pairs = parse_qsl(
            body.data.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except (UnicodeDecodeError, ValueError) as error:
        raise MalformedBody("Received a form that cannot be read. Reload the page.") from error
    fields: dict[str, str] = {}
    for name, value in pairs:
        fields[name] = f"{fields[name]},{value}" if name in fields else value
    return fields


def reject_other_sites(request: Request) -> None:
    """Reject a form that a page of another site sent."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise StaleForm()
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise StaleForm()


async def posted_form(request: Request, visitor: Visitor) -> dict[str, str]:
    """Return the fields of a form of this visitor.

    Raises
    ------
    StaleForm
    """
    reject_other_sites(request)
    fields = await form_of(request)
    if not hmac.compare_digest(fields.pop(TOKEN_FIELD, "").encode(), visitor.token.encode()):
        raise StaleForm()
    return fields


def local_path(text: str) -> str:
    """Return the path to go to after signing in: one of this site, else the first page."""
    is_local = text.startswith("/") and not text.startswith(("//", "/\\"))
    if not is_local or "\\" in text or not text.isprintable():
        return "/"
    return quote(text, safe=_IN_PATHS)


def sign_in_path(request: Request) -> str:
    """Return the path of the page to sign in, which leads back to this request's if it can be repeated."""
    if request.method != "GET":
        return "/sign-in"
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return "/sign-in" if here == "/" else f"/sign-in?next={quote(here, safe='')}"
