"""URLs of a store: one server, a cluster, a master that sentinels name."""

from __future__ import annotations

import pytest

from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.addresses import parse_address
from calibrant_server.workers.store.cluster import SlotMap, by_node, key_of
from calibrant_server.workers.store.connection import connect, connect_async


@pytest.mark.parametrize("url", [
    "redis://localhost:6379/0", "rediss://user:secret@host:6380/2", "unix:///run/store.sock?db=1",
])  # fmt: skip
def test_one_server(url):
    address = parse_address(url)
    assert (address.kind, address.url, address.hosts) == ("server", url, ())


def test_a_cluster():
    address = parse_address("rediss+cluster://user:p%40ss@a:7000,b?ssl_cert_reqs=none")
    assert address.kind == "cluster"
    assert address.hosts == (("a", 7000), ("b", 6379))
    assert address.url == "rediss://user:p%40ss@localhost/0?ssl_cert_reqs=none"


def test_sentinels():
    address = parse_address(
        "redis+sentinel://:secret@a,b:26380/mymaster/3?sentinel_password=other&client_name=c"
    )
    assert (address.kind, address.master) == ("sentinel", "mymaster")
    assert address.hosts == (("a", 26379), ("b", 26380))
    assert address.url == "redis://:secret@localhost/3?client_name=c"
    assert address.sentinel_options == {"password": "other"}


@pytest.mark.parametrize(("url", "rule"), [
    ("http://a", "begins with redis://"), ("redis+cluster://", "expected a host"),
    ("redis+cluster://a:1,,b:2", "expected a host"), ("redis+cluster://a/1", "database 0"),
    ("redis+sentinel://a:26379", "name of the master"),
])  # fmt: skip
def test_what_is_missing_is_named(url, rule):
    with pytest.raises(ValueError, match=rule):
        parse_address(url)
    with pytest.raises(SettingsError, match=rule):
        EngineSettings(redis_url=url)


@pytest.mark.parametrize("scheme", ["redis+sentinel", "rediss+sentinel"])
def test_what_the_url_says_reaches_each_connection(tmp_path, scheme):
    settings = EngineSettings(
        redis_url=f"{scheme}://user:secret@a:26379/mymaster/3?sentinel_password=other",
        data_dir=tmp_path,
    )
    for client in (connect(settings), connect_async(settings)):
        options = client.connection_pool.connection_kwargs
        connection = client.connection_pool.make_connection()
        assert (options["username"], options["password"], options["db"]) == ("user", "secret", 3)
        assert connection.connection_pool.is_master
        assert ("SSL" in type(connection).__name__) == scheme.startswith("rediss")
        master = connection.connection_pool
        assert (master.name, master.hosts) == ("mymaster", (("a", 26379),))
        assert master.options["password"] == "other"


@pytest.mark.parametrize(("command", "key"), [
    (("GET", "k"), "k"), (("EVALSHA", "digest", 2, "k", "other", "argument"), "k"), (("TIME",), None),
    (("XREAD", "BLOCK", 50, "COUNT", 10, "STREAMS", "k", "0-0"), "k"), (("CONFIG GET", "append*"), None),
    (("SCAN", 0, "MATCH", "{t}:b:m|g|*", "COUNT", 100), "{t}:b:m|g|*"), (("BRPOP", "k", 0.5), "k"),
])  # fmt: skip
def test_the_key_of_a_command(command, key):
    assert key_of(command) == key


def test_a_transaction_over_two_nodes_is_rejected():
    slots = SlotMap([("a", 1)])
    slots.learn([[0, 8191, [b"a", 1]], [8192, 16383, [b"", 2]]], requested=("b", 9))
    # CRC-16 of `b` and `foo` (XMODEM), modulo 16,384: 3300 and 12182, as the cluster specification computes them.
    commands = [(("GET", "b"), {}), (("GET", "foo"), {}), (("HGET", "{b}:x", "f"), {})]
    assert by_node(slots, commands, together=False) == {("a", 1): [0, 2], ("b", 2): [1]}
    with pytest.raises(ValueError, match="several nodes"):
        by_node(slots, commands, together=True)
