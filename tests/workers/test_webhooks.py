"""Messages: where they may go, when they are tried again, and that a sender delivers each at least once."""

from __future__ import annotations

import base64
import hmac
import ipaddress
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from calibrant_server.workers.alarm import webhook_sender
from calibrant_server.workers.alarm.alarm_settings import Webhook
from calibrant_server.workers.alarm.deliveries import (
    DELIVERED,
    GIVEN_UP,
    PAUSES_S,
    WAITING,
    WebhookDelivery,
    delivery_of,
    key_of,
    new_secret,
    signed_headers,
)
from calibrant_server.workers.alarm.url_guard import (
    BlockedUrlError,
    check_declared,
    check_url,
    is_open,
    networks_of,
    target_of,
)
from calibrant_server.workers.alarm.webhook_sender import WebhookSender, send
from calibrant_server.workers.ingest.entries import IngestEntry
from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.commit import FIRST_TOKEN, Commit
from calibrant_server.workers.store.model_config import ModelConfig
from tests.waiting import PATIENCE_S
from tests.workers.driving import eventually

LOCAL = networks_of("127.0.0.0/8,::1/128")


def message(url="https://a.example/x"):
    return delivery_of("default/m", "g", url, "alarm.raised", "al_1", {"x": 1}, 100.0)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::a00:1",
        "2002:a00:1::", "2001:db8::1", "fec0::1", "192.0.0.192", "192.88.99.1", "168.63.129.16", "::ffff:168.63.129.16",
        "64:ff9b:1::a00:1", "3fff::1",
    ],
)  # fmt: skip
def test_internal_addresses_are_rejected_when_they_are_declared(address):
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(BlockedUrlError, match="internal address"):
        check_declared(f"https://{host}/x")


def test_what_only_a_resolver_knows_is_left_to_the_delivery(monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", None)
    check_declared("https://intranet.example/x")
    check_declared("https://1.1.1.1/x")
    check_declared("http://127.0.0.1:8/x", LOCAL)
    check_declared("http://pager.example/x", LOCAL)  # the name may lead into an allowed network
    with pytest.raises(BlockedUrlError, match="http URL"):
        check_declared("http://pager.example/x")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::a00:1",
        "2002:a00:1::", "2001:db8::1", "fec0::1",
    ],
)  # fmt: skip
def test_internal_addresses_are_not_open(address):
    assert not is_open(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_addresses_of_the_internet_are_open(address):
    assert is_open(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.b/c", "https://", "https://u:p@a.b/", "https://a.b/#f", "https://a.b:99999/", "https://a.b:0/",
        "//a.b/c", "https://a b/", "https://a.b/" + "c" * 2000, "https://[::1/", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_urls_that_are_no_receivers(url):
    with pytest.raises(BlockedUrlError):
        check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://localhost/x",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://2130706433/",
        "http://127.1/",
    ],
)
def test_this_machine_is_reached_by_a_setting_alone(url):
    with pytest.raises(BlockedUrlError):
        target_of(url)
    assert ipaddress.ip_address(target_of(url, LOCAL).address).is_loopback


def test_one_internal_address_among_several_is_enough(monkeypatch):
    found = [(2, 1, 6, "", ("1.1.1.1", 443)), (2, 1, 6, "", ("10.0.0.1", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(BlockedUrlError):
        target_of("https://two.example/")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found[:1])
    assert target_of("https://one.example/a?b=c").path == "/a?b=c"
    with pytest.raises(BlockedUrlError, match="https"):
        target_of("http://one.example/")


def test_an_id_names_what_is_reported_and_to_whom():
    assert message().id == message().id
    assert message().id != message("https://b.example/x").id
    assert WebhookDelivery.from_json(message().to_json()) == message()


def test_tries_are_spread_over_a_day_and_then_given_up():
    delivery, now = message(), 100.0
    for n in range(len(PAUSES_S)):
        delivery = delivery.attempted(now, 500 if n % 2 else None, None)
        assert delivery.status == WAITING
        assert PAUSES_S[n] <= delivery.due_s - now <= 1.11 * PAUSES_S[n]
        now = delivery.due_s
    assert 0.9 * 86_400 < now - 100.0 < 1.2 * 86_400
    assert delivery.attempted(now, 500, None).status == GIVEN_UP
    assert delivery.attempted(now, 204, None).status == DELIVERED
    assert message().attempted(now, 410, None).status == GIVEN_UP
    assert message().attempted(now, 302, None).status == WAITING


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_%%%"]
)
def test_secrets_that_are_none(secret):
    with pytest.raises(ValueError):
        key_of(secret)


def test_a_secret_signs_id_time_and_body():
    secret = new_secret()
    one = signed_headers("msg_1", 1, b"{}", secret)["webhook-signature"]
    for other in (("msg_2", 1, b"{}"), ("msg_1", 2, b"{}"), ("msg_1", 1, b"{ }")):
        assert signed_headers(*other, secret)["webhook-signature"] != one


class ResponseWriter(BaseHTTPRequestHandler):
    """Responds as its server is set to, and keeps the ids."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.server.ids.append(self.headers["webhook-id"])  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        if self.server.status == 302:  # type: ignore[attr-defined]
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), ResponseWriter) as server:
        server.ids, server.status = [], 204  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_redirects_are_not_followed(server):
    server.status = 302
    url = f"http://127.0.0.1:{server.server_port}/x"
    assert send(message(url), Webhook(url, new_secret()), 5.0, LOCAL) == 302
    assert len(server.ids) == 1
    with pytest.raises(BlockedUrlError):
        send(message(url), Webhook(url, new_secret()), 5.0)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_receiver_that_drips_is_cut_off(scheme):
    """Each byte comes well within the timeout, and the whole answer never does: of TLS not even the handshake."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def drip():
            taken, _ = listening.accept()
            with taken, suppress(OSError):
                taken.sendall(
                    b"HTTP/1.1 200 OK\r\nX: " if scheme == "http" else b"\x16\x03\x03\x40\x00"
                )
                while not over.wait(0.02):
                    taken.sendall(b"a")

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        url = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}/x"
        with pytest.raises(OSError):
            send(message(url), Webhook(url, new_secret()), 0.3, LOCAL)
        over.set()
        dripping.join(PATIENCE_S)


TLS = Path(__file__).parent / "tls"
AUTHORITY = TLS / "authority.pem"


@pytest.fixture
def secure(server):
    """The server behind TLS, with a certificate for `localhost` that only our own authority vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def test_a_receiver_behind_tls_is_reported_where_its_authority_is_trusted(secure):
    url = f"https://localhost:{secure.server_port}/x"
    v4 = networks_of("127.0.0.0/8,::1/128")
    with pytest.raises(ssl.SSLCertVerificationError):
        send(message(url), Webhook(url, new_secret()), 5.0, v4)
    assert secure.ids == []
    assert send(message(url), Webhook(url, new_secret()), 5.0, v4, AUTHORITY) == 204
    assert secure.ids == [message(url).id]


def test_a_certificate_of_another_name_is_rejected(secure):
    url = f"https://127.0.0.1:{secure.server_port}/x"
    with pytest.raises(ssl.SSLCertVerificationError, match=r"127\.0\.0\.1"):
        send(message(url), Webhook(url, new_secret()), 5.0, LOCAL, AUTHORITY)
    assert secure.ids == []


def test_authorities_are_read_at_start(monkeypatch):
    monkeypatch.setenv("CALIBRANT_WEBHOOK_CA", str(AUTHORITY))
    assert EngineSettings().webhook_ca == AUTHORITY
    for wrong in (__file__, "/nowhere.pem"):
        monkeypatch.setenv("CALIBRANT_WEBHOOK_CA", wrong)
        with pytest.raises(SettingsError, match="CALIBRANT_WEBHOOK_CA"):
            EngineSettings()


def test_a_name_that_changes_its_mind_reaches_only_what_was_checked(server, monkeypatch):
    """The first answer is an address that is allowed, every later one is the store's: the name is asked once."""
    asked, plain = [], socket.getaddrinfo

    def rebinding(host, port, *rest, **more):
        if host != "rebinding.example":
            return plain(host, port, *rest, **more)
        asked.append(host)
        return plain("127.0.0.1" if len(asked) == 1 else "127.0.0.2", port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    url = f"http://rebinding.example:{server.server_port}/x"
    first = networks_of("127.0.0.1/32")
    assert send(message(url), Webhook(url, new_secret()), 5.0, first) == 204
    assert len(asked) == 1 and len(server.ids) == 1
    with pytest.raises(BlockedUrlError, match="internal"):
        send(message(url), Webhook(url, new_secret()), 5.0, first)
    assert len(server.ids) == 1


def verified(secret, headers, body, now_s):
    """Standard Webhooks 1.0 as a receiver reads it; nothing of ours is used."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    if abs(now_s - int(headers["webhook-timestamp"])) > 300:
        return False
    signed = b".".join(
        [headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body]
    )
    expected = hmac.digest(key, signed, "sha256")
    pairs = (each.split(",", 1) for each in headers["webhook-signature"].split(" "))
    return any(
        version == "v1" and hmac.compare_digest(base64.b64decode(given), expected)
        for version, given in pairs
    )


def test_receivers_of_the_standard_take_our_signature():
    # The example of the specification's reference libraries.
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }  # fmt: skip
    example = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", headers, b'{"test": 2432232314}')
    assert verified(*example, 1614265330)
    assert not verified(*example, 1614265330 + 301)
    secret, body = new_secret(), message().body.encode()
    ours = signed_headers(message().id, 1000, body, secret)
    assert verified(secret, ours, body, 1000)
    assert not verified(secret, ours, body + b" ", 1000)
    assert not verified(secret, ours | {"webhook-id": "msg_2"}, body, 1000)
    assert not verified(new_secret(), ours, body, 1000)


def test_a_webhook_sender_delivers_and_leaves_the_outcome_to_the_partition(
    bench, server, monkeypatch
):
    """Nothing but the stream is written; a second sender, as after a kill, sends the same id again."""
    url = f"http://127.0.0.1:{server.server_port}/x"
    hook = {"url": url, "secret": new_secret()}
    config = ModelConfig(
        "default", "m", "binary", 2, generation="g", revision=1, alarm={"webhooks": [hook]}
    )
    bench.put_model(config)
    store = bench.store
    monkeypatch.setattr(webhook_sender, "WEBHOOK_TIMEOUT_S", PATIENCE_S)
    store.settings = store.settings.replace(webhook_networks="127.0.0.0/8")
    keys = store.keys.of(config)
    made = replace(message(url), due_s=time.time())
    gone = replace(message("https://gone.example/"), due_s=time.time())
    later = replace(message(url + "2"), due_s=time.time() + 60)
    for each in (made, gone, later):
        store.client.hset(keys.deliveries, each.id, each.to_json())
    for n in (1, 2):
        stop = threading.Event()
        sender = WebhookSender(store, lambda: [keys.partition])
        thread = threading.Thread(target=sender.run, args=(stop,))
        thread.start()
        eventually(lambda n=n: store.client.xlen(keys.stream) >= 2 * n)
        time.sleep(1.2)
        stop.set()
        store.deliveries_changed.set()
        thread.join()
        assert server.ids == [made.id] * n
    orders = [
        IngestEntry.from_fields(name.decode(), fields)
        for name, fields in store.client.xrange(keys.stream)
    ]
    assert len(orders) == 4 and all(b"attempted" in each.payload for each in orders)
    assert store.client.hlen(keys.deliveries) == 3


def test_an_idle_sender_reads_rarely_and_a_commit_wakes_it(bench, server, monkeypatch):
    """Its reads were nine tenths of what an idle service asked the store."""
    url = f"http://127.0.0.1:{server.server_port}/x"
    hook = {"url": url, "secret": new_secret()}
    config = ModelConfig(
        "default", "m", "binary", 2, generation="g", revision=1, alarm={"webhooks": [hook]}
    )
    bench.put_model(config)
    store, looks = bench.store, []
    store.settings = store.settings.replace(webhook_networks="127.0.0.0/8")
    keys, stop = store.keys.of(config), threading.Event()
    sender = WebhookSender(store, lambda: looks.append(time.monotonic()) or [keys.partition])
    thread = threading.Thread(target=sender.run, args=(stop,))
    thread.start()
    eventually(lambda: looks)
    time.sleep(2.0)
    assert len(looks) == 1, "it has nothing to do"
    commit = Commit(keys)
    made = replace(message(url), due_s=time.time())
    commit.set_fields(keys.deliveries, {made.id: made.to_json()})
    commit.send(store, FIRST_TOKEN, b"1")
    eventually(lambda: server.ids == [made.id])
    stop.set()
    store.deliveries_changed.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
