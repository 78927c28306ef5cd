"""Sign-in through a proxy: it authenticates people, and names each with their roles in headers.

The headers count only if the connection comes from a trusted address. The address is that of the connection itself, never that of a header such as
X-Forwarded-For. The proxy must replace these headers in what it receives. A request with a key is that key's.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from fastapi import Request

from calibrant_server.service.http.errors import KeyRequired
from calibrant_server.service.http.parameters import only
from calibrant_server.service.security.keys import Caller
from calibrant_server.service.security.roles import Roles, RoleSettingsError, roles_of
from calibrant_server.service.settings import Settings

# In the scope of a request: the address of the connection, before a middleware replaces it by a header's.
PEER = "calibrant.peer"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class ProxySignIn:
    """Callers whom a trusted proxy names.

    Attributes
    ----------
    networks : addresses of proxies
    """

    networks: tuple[Network, ...]
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
        if not self._is_trusted(request):
            return None
        user = only(request, self.user_header) or ""
        names = (only(request, self.roles_header) or "").split(",")
        found = self.roles.caller(user, names, user.strip())
        if found is not None:
            _reject_other_sites(request)
        return found

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
    RoleSettingsError
        Addresses or roles cannot be read, or there are no roles.
    """
    if not settings.proxy_addresses:
        return None
    try:
        networks = tuple(ipaddress.ip_network(each) for each in settings.proxy_addresses)
    except ValueError as error:
        raise RoleSettingsError(
            f"CALIBRANT_PROXY_ADDRESSES: {error}; expected addresses or networks such as 10.0.0.0/8."
        ) from error
    return ProxySignIn(
        networks, settings.proxy_user_header, settings.proxy_roles_header, roles_of(settings)
    )


def _reject_other_sites(request: Request) -> None:
    """Reject what a browser says to come from a page of another site; reads of a link that a person follows are allowed."""
    site = request.headers.get("sec-fetch-site", "none")
    is_link = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
    if site in ("same-origin", "none") or is_link:
        return
    raise KeyRequired(
        "Received a request from a page of another site. Behind the proxy, only pages of this service send requests without a key."
    )
