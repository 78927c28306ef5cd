"""Sign-in through a proxy: it authenticates people, and names each with their roles in headers.

The headers count only if the connection comes from a trusted address. The address is that of the connection itself, never that of a header such as
X-Forwarded-For. The proxy must replace these headers in what it receives. A request with a key is that key's.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from calibrant_server.service.http.errors import KeyRequired
from calibrant_server.service.http.parameters import only
from calibrant_server.service.security.keys import SCOPES, Caller, Scope
from calibrant_server.service.settings import Settings

# In the scope of a request: the address of the connection, before a middleware replaces it by a header's.
PEER = "calibrant.peer"
MAX_NAME, MAX_ROLES = 200, 100
ID_DIGITS = 16
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ProxySettingsError(ValueError):
    """The settings of the sign-in through a proxy cannot be used."""


class Role(BaseModel):
    """What a role of the proxy may do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scopes: tuple[Scope, ...] = Field(min_length=1)


_ROLES = TypeAdapter(dict[str, Role])


@dataclass(frozen=True)
class ProxySignIn:
    """Callers whom a trusted proxy names.

    Attributes
    ----------
    networks : addresses of proxies
    roles : by their name in the header
    """

    networks: tuple[Network, ...]
    user_header: str
    roles_header: str
    roles: Mapping[str, Role]
    tenant: str

    def caller(self, request: Request) -> Caller | None:
        """Return the person whom the proxy names; None if it names nobody, or the connection is not from a proxy.

        Raises
        ------
        KeyRequired
            The request comes from a page of another site, which a browser sends with the person's session at the proxy.
        """
        if not self._is_trusted(request):
            return None
        user = (only(request, self.user_header) or "").strip()
        if not user or len(user) > MAX_NAME or not user.isprintable():
            return None
        _reject_other_sites(request)
        listed = (only(request, self.roles_header) or "").split(",", MAX_ROLES)
        names = [name for each in listed if (name := each.strip()) in self.roles]
        scopes = {scope for name in names for scope in self.roles[name].scopes}
        digest = hashlib.sha256(user.encode()).hexdigest()[:ID_DIGITS]
        return Caller(
            self.tenant,
            frozenset(each for each in SCOPES if each in scopes),
            user,
            f"u_{digest}",
            role=", ".join(dict.fromkeys(names)),
        )

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
    """Return the sign-in through a proxy; None if no proxy is trusted.

    Raises
    ------
    ProxySettingsError
        Addresses or roles cannot be read, or one is set without the other.
    """
    if not settings.proxy_addresses and not settings.proxy_roles:
        return None
    if not (settings.proxy_addresses and settings.proxy_roles):
        raise ProxySettingsError(
            "CALIBRANT_PROXY_ADDRESSES and CALIBRANT_PROXY_ROLES are needed together; received one of them."
        )
    try:
        networks = tuple(ipaddress.ip_network(each) for each in settings.proxy_addresses)
    except ValueError as error:
        raise ProxySettingsError(
            f"CALIBRANT_PROXY_ADDRESSES: {error}; expected addresses or networks such as 10.0.0.0/8."
        ) from error
    return ProxySignIn(
        networks,
        settings.proxy_user_header,
        settings.proxy_roles_header,
        _roles(settings.proxy_roles),
        settings.proxy_tenant,
    )


def _roles(text: str) -> Mapping[str, Role]:
    try:
        document: Any = json.loads(text)
        return _ROLES.validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = "/".join(map(str, first["loc"]))
        raise ProxySettingsError(f"CALIBRANT_PROXY_ROLES: {place}: {first['msg']}") from None
    except ValueError as error:
        raise ProxySettingsError(
            'CALIBRANT_PROXY_ROLES is not JSON; expected {"ROLE": {"scopes": ["read"]}}.'
        ) from error


def _reject_other_sites(request: Request) -> None:
    """Reject what a browser says to come from a page of another site; reads of a link that a person follows are allowed."""
    site = request.headers.get("sec-fetch-site", "none")
    is_link = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
    if site in ("same-origin", "none") or is_link:
        return
    raise KeyRequired(
        "Received a request from a page of another site. Behind the proxy, only pages of this service send requests without a key."
    )
