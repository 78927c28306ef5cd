"""Allowed receivers of messages: addresses of the public internet, and networks that the operator names.

Anyone who may change a model names receivers, and workers run inside the operator's network. Without a guard they could
be directed to the store, to a cloud's metadata service or to a neighbouring host. The name is resolved here, each address
is checked, and the connection is made to the checked address, so that a name cannot resolve differently in between.
Redirects are not followed. What a URL itself tells, such as an address in place of a name, is checked when it is declared.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_PORTS = {"https": 443, "http": 80}
_MAX_URL = 2000
# Names of this machine, whatever a resolver says (RFC 6761).
_LOCALHOST = "localhost"
# Prefixes under which an IPv4 address is written as one of IPv6: NAT64 and 6to4.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class BlockedUrlError(ValueError):
    """The receiver is at an address that is not allowed."""


@dataclass(frozen=True)
class Target:
    """A checked receiver: the parts of its URL, and the address to connect to."""

    scheme: str
    host: str
    port: int
    path: str
    address: str


def networks_of(text: str) -> tuple[Network, ...]:
    """Parse networks from a comma-separated list.

    >>> networks_of("127.0.0.0/8, ::1/128")
    (IPv4Network('127.0.0.0/8'), IPv6Network('::1/128'))
    """
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())


# Closed whatever this version of Python knows of them: protocol assignments (metadata services of some clouds), relays of 6to4, the host
# service of Azure, local NAT64 and documentation.
_CLOSED = networks_of("192.0.0.0/24, 192.88.99.0/24, 168.63.129.16/32, 64:ff9b:1::/48, 3fff::/20")


def check_url(url: str) -> SplitResult:
    """Split a receiver's URL; raise BlockedUrlError if it is not http or https, has a password or fragment, or no host."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BlockedUrlError(
            f"Received text that is not a URL ({error}); expected an https URL."
        ) from error
    is_plain = url.isascii() and not any(c <= " " or c == "\x7f" for c in url)
    has_more = parts.username is not None or parts.password is not None or parts.fragment
    rules = {
        "a URL that is too long or has other characters; expected at most 2000 printable ASCII characters.": len(url) <= _MAX_URL and is_plain,
        "another scheme, or no host; expected an https URL with a host.": parts.scheme in _PORTS and parts.hostname,
        "a URL with user, password or fragment; expected one without them.": not has_more,
        "a port out of range; expected 1 to 65535.": port != 0,
    }  # fmt: skip
    broken = next((text for text, holds in rules.items() if not holds), None)
    if broken is not None:
        raise BlockedUrlError(f"Received {broken}")
    return parts


def target_of(url: str, allowed: Iterable[Network] = ()) -> Target:
    """Resolve a receiver and check its addresses; `allowed` are networks in addition to the public internet.

    BlockedUrlError: One of its addresses is internal, or plain http would leave the allowed networks.
    OSError: The name cannot be resolved.
    """
    parts = check_url(url)
    host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    named = tuple(allowed)
    for address in addresses:
        _check_address(parts, address, named)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port, path, str(addresses[0]))


def check_declared(url: str, allowed: Iterable[Network] = ()) -> None:
    """Check a receiver's URL as far as it is known without resolving a name, which each delivery does.

    BlockedUrlError: the host is an internal address or this machine, or plain http cannot lead into an allowed network.
    """
    parts, named = check_url(url), tuple(allowed)
    address = _written_address(str(parts.hostname))
    if address is not None:
        _check_address(parts, address, named)
    elif parts.scheme != "https" and not named:
        raise BlockedUrlError(_HTTP)


def _written_address(host: str) -> Address | None:
    """Return the address that a host is written as, in any form that a resolver would take for one; None for a name.

    >>> [str(_written_address(host)) for host in ("10.0.0.1", "0x7f.1", "2130706433", "::1", "a.localhost", "a.example")]
    ['10.0.0.1', '127.0.0.1', '127.0.0.1', '::1', '127.0.0.1', 'None']
    """
    name = host.rstrip(".")
    if name == _LOCALHOST or name.endswith(f".{_LOCALHOST}"):
        return ipaddress.IPv4Address("127.0.0.1")
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(name))
    except OSError:
        return None


_HTTP = "Received an http URL; expected https outside the networks of CALIBRANT_WEBHOOK_NETWORKS"


def _check_address(parts: SplitResult, address: Address, named: Sequence[Network]) -> None:
    inside = any(address in network for network in named)
    if not inside and not is_open(address):
        raise BlockedUrlError(
            f"{parts.hostname} has an internal address; expected a public one, or a network of CALIBRANT_WEBHOOK_NETWORKS"
        )
    if not inside and parts.scheme != "https":
        raise BlockedUrlError(_HTTP)


def is_open(address: Address) -> bool:
    """Whether an address is one of the open internet.

    >>> [is_open(ipaddress.ip_address(a)) for a in ("1.1.1.1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1")]
    [True, False, False, False]
    """
    if any(address in network for network in _CLOSED):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_open(inner)
        if address.is_site_local or address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved
