"""Sign-in through a proxy: it authenticates people, and names each with their roles in headers; the scopes of each role.

The headers count only if the connection comes from a trusted address and the request has the secret that proxy and service share: an address
alone does not show who sends, because other programs may be in the same network. The address is that of the connection itself, never that of a
header such as X-Forwarded-For. The proxy must replace these headers in what it receives. A request with a key is that key's.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from calibrant_server.service.http.parameters import only
from calibrant_server.service.http.problems import KeyRequired
from calibrant_server.service.security.keys import PERSON_PREFIX, SCOPES, Caller, Scope
from calibrant_server.service.settings import Settings

MAX_NAME, MAX_ROLES = 200, 100
ID_DIGITS = 16


class RoleSettingsError(ValueError):
    """The settings of people and their roles cannot be used."""


class Role(BaseModel):
    """What a role may do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scopes: tuple[Scope, ...] = Field(min_length=1)


_ROLES = TypeAdapter(dict[str, Role])


@dataclass(frozen=True)
class Roles:
    """Scopes by role, and the tenant of all people."""

    by_name: Mapping[str, Role]
    tenant: str

    def caller(self, name: str, names: Iterable[str], identity: str) -> Caller | None:
        """Return the caller of a person with the listed ones of their roles; None if the name cannot be recorded.

        Parameters
        ----------
        name : of the person, for people
        names : of their roles
        identity : what distinguishes the person from others
        """
        name = name.strip()
        if not name or len(name) > MAX_NAME or not name.isprintable():
            return None
        listed = (each.strip() for each in islice(names, MAX_ROLES))
        known = list(dict.fromkeys(each for each in listed if each in self.by_name))
        scopes = {scope for each in known for scope in self.by_name[each].scopes}
        digest = hashlib.sha256(identity.encode()).hexdigest()[:ID_DIGITS]
        allowed = frozenset(each for each in SCOPES if each in scopes)
        return Caller(self.tenant, allowed, name, f"{PERSON_PREFIX}{digest}", role=", ".join(known))


def roles_of(settings: Settings) -> Roles:
    """Return the roles of the settings.

    Raises
    ------
    RoleSettingsError
        They cannot be read.
    """
    try:
        found = _ROLES.validate_python(json.loads(settings.roles or "{}"))
    except ValidationError as error:
        first = error.errors()[0]
        place = "/".join(map(str, first["loc"]))
        raise RoleSettingsError(f"CALIBRANT_ROLES: {place}: {first['msg']}") from None
    except ValueError as error:
        raise RoleSettingsError(
            'CALIBRANT_ROLES is not JSON; expected {"ROLE": {"scopes": ["read"]}}.'
        ) from error
    return Roles(found, settings.people_tenant)


# In the scope of a request: the address of the connection, before a middleware replaces it by a header's.
PEER = "calibrant.peer"
SECRET_HEADER = "X-Calibrant-Proxy-Secret"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class ProxySignIn:
    """Callers whom a trusted proxy names.

    Attributes
    ----------
    networks : addresses of proxies
    secret : what the proxy sends in the header `X-Calibrant-Proxy-Secret`
    """

    networks: tuple[Network, ...]
    secret: bytes
    user_header: str
    roles_header: str
    roles: Roles

    def caller(self, request: Request) -> Caller | None:
        """Return the person whom the proxy names; None if it names no person, or the connection is not from a proxy.

        Raises
        ------
        KeyRequired
            The request comes from a page of another site, which a browser sends with the person's session at the proxy.
        """
        if not self._is_trusted(request) or not self._has_secret(request):
            return None
        user = only(request, self.user_header) or ""
        names = (only(request, self.roles_header) or "").split(",")
        found = self.roles.caller(user, names, user.strip())
        if found is not None:
            _reject_other_sites(request)
        return found

    def _has_secret(self, request: Request) -> bool:
        sent = only(request, SECRET_HEADER) or ""
        return hmac.compare_digest(sent.encode(), self.secret)

    def _is_trusted(self, request: Request) -> bool:
        peer = request.scope.get(PEER) or request.scope.get("client")
        if peer is None:
            return False
        try:
            address = ipaddress.ip_address(peer[0])
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        return any(address in network for network in self.networks)


def proxy_sign_in(settings: Settings) -> ProxySignIn | None:
    """Return the sign-in through a proxy; None if people have no roles here.

    Raises
    ------
    RoleSettingsError
        The roles cannot be read, or there is no secret, or no proxy.
    """
    if not settings.roles:
        return None
    if not settings.proxy_secret:
        raise RoleSettingsError(
            "CALIBRANT_ROLES is set, so a proxy signs people in, but CALIBRANT_PROXY_SECRET is not set. Set it to a random text, and let "
            f"the proxy send it in the header {SECRET_HEADER}."
        )
    networks = tuple(ipaddress.ip_network(each) for each in settings.trusted_proxies)
    if not networks:
        raise RoleSettingsError(
            "CALIBRANT_ROLES is set, but CALIBRANT_TRUSTED_PROXIES is empty: no proxy can sign people in."
        )
    headers = settings.proxy_user_header, settings.proxy_roles_header
    return ProxySignIn(networks, settings.proxy_secret.encode(), *headers, roles_of(settings))


def _reject_other_sites(request: Request) -> None:
    """Reject what a browser says to come from a page of another site; reads of a link that a person follows are allowed."""
    site = request.headers.get("sec-fetch-site", "none")
    is_link = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
    if site in ("same-origin", "none") or is_link:
        return
    raise KeyRequired(
        "Received a request from a page of another site. Behind the proxy, only pages of this service send requests without a key."
    )
