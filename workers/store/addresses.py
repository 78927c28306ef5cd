"""Addresses of a store: one server, a Redis or Valkey Cluster, or a master that sentinels know by name.

========================================  =====================================================================
URL                                       store
========================================  =====================================================================
`redis://`, `rediss://` (TLS), `unix://`  one server
`redis+cluster://host:port,host:port`     a cluster; any of its nodes; one has to respond at a start
`redis+sentinel://host:port,host:port/mymaster`  the master that these sentinels name
========================================  =====================================================================

`rediss+cluster` and `rediss+sentinel` use TLS. User and password in the URL are those of the store. Sentinels with a
password of their own have `?sentinel_password=`, and `?sentinel_username=`. Other parameters are those of redis-py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis.connection import parse_url

Kind = Literal["server", "cluster", "sentinel"]
SCHEMES = (
    "redis://", "rediss://", "unix://", "redis+cluster://", "rediss+cluster://", "redis+sentinel://", "rediss+sentinel://",
)  # fmt: skip
_PORTS = {"cluster": 6379, "sentinel": 26379}
_OF_SENTINELS = "sentinel_"


@dataclass(frozen=True)
class StoreAddress:
    """Where a store is.

    Attributes
    ----------
    kind : one server, a cluster or a master that sentinels name
    url : URL of one server; for a cluster or sentinels, that of a server with `localhost` for its host
    hosts : nodes of a cluster or sentinels, host and port
    master : the name that sentinels know the master by
    sentinel_options : user and password of the sentinels
    """

    kind: Kind
    url: str
    hosts: tuple[tuple[str, int], ...] = ()
    master: str = ""
    sentinel_options: dict[str, str] = field(default_factory=dict)


def parse_address(url: str) -> StoreAddress:
    """Return the address that a URL states.

    Raises
    ------
    ValueError
        The URL has no known scheme, no host, or names no master.

    >>> parse_address("redis+sentinel://a:26379,b/mymaster").hosts
    (('a', 26379), ('b', 26379))
    """
    if not url.startswith(SCHEMES):
        raise ValueError(f"expected a URL that begins with {', '.join(SCHEMES)}")
    transport, _, kind = url.partition("://")[0].partition("+")
    if kind not in ("cluster", "sentinel"):
        parse_url(url)
        return StoreAddress("server", url)
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    query = dict(parse_qsl(parts.query))
    master, _, database = parts.path.strip("/").partition("/")
    if kind == "cluster" and master not in ("", "0"):
        raise ValueError("a cluster has database 0 only: expected no path behind its hosts")
    if kind == "sentinel" and not master:
        raise ValueError("expected the name of the master: redis+sentinel://host:26379/mymaster")
    of_store = {name: value for name, value in query.items() if not name.startswith(_OF_SENTINELS)}
    plain = f"{transport}://{login + '@' if login else ''}localhost/{database or 0}"
    address = StoreAddress(
        "cluster" if kind == "cluster" else "sentinel",
        f"{plain}?{urlencode(of_store)}" if of_store else plain,
        tuple(_host(host, _PORTS[kind]) for host in hosts.split(",")),
        master if kind == "sentinel" else "",
        {
            name.removeprefix(_OF_SENTINELS): value
            for name, value in query.items()
            if name.startswith(_OF_SENTINELS)
        },
    )
    parse_url(address.url)
    return address


def _host(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"expected a host, or host:port, between the commas, not {text!r}")
    return parts.hostname, parts.port or port
