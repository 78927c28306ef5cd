"""Messages in the forms of chat services, PagerDuty and mail, as local receivers of HTTP and SMTP get them."""

from __future__ import annotations

import email
import json
import socket
import threading
from email import policy
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from calibrant_server.workers.alarm.alarm_settings import Webhook
from calibrant_server.workers.alarm.deliveries import (
    delivery_of,
    is_address,
    message_of,
    send_mail,
)
from calibrant_server.workers.alarm.url_guard import BlockedUrlError, networks_of
from calibrant_server.workers.alarm.webhook_sender import send
from tests.waiting import PATIENCE_S

LOCAL = networks_of("127.0.0.0/8")
KEY = "a1b2c3d4" * 4
ALARM = {
    "id": "al_1",
    "event": "ev_1",
    "model": "triage",
    "slice": "site:<A>",
    "title": "calibration drift",
    "change": {"word": "changed", "sentence": "Changed about 20 Nov 2026."},
    "recommendation": {"reason": "Divide log-odds by 1.6."},
    "acknowledged_by": "ann",
    "note": "known",
    "closed_because": "acknowledged",
}
TITLE, TEXT = (
    "triage, site:<A>: calibration drift",
    "Changed about 20 Nov 2026. What to do: Divide log-odds by 1.6. Page: /models/triage. "
    "Acknowledge: calibrant alarms acknowledge al_1",
)
PAGES = "https://calibrant.example.org/"
PAGE = "https://calibrant.example.org/models/triage"


def message(url, kind="alarm.raised"):
    return delivery_of("default/triage", "g", url, kind, "al_1", ALARM, 1795860000.0)


class Receiver(BaseHTTPRequestHandler):
    """Stores what it gets."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.found.append((dict(self.headers), json.loads(body)))  # type: ignore[attr-defined]
        self.send_response(202)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.found = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def received(receiver, form, kind="alarm.raised", secret="", pages=""):
    url = f"http://127.0.0.1:{receiver.server_port}/x"
    to = Webhook(url, secret, form)
    assert send(message(url, kind), to, PATIENCE_S, LOCAL, pages=pages) == 202
    headers, body = receiver.found[-1]
    assert headers["Content-Type"] == "application/json" and "webhook-signature" not in headers
    return body


def test_slack_gets_a_text_whose_names_are_no_markup(receiver):
    expected = f"*triage, site:&lt;A&gt;: calibration drift*\n{TEXT}"
    assert received(receiver, "slack") == {"text": expected}


def test_teams_gets_a_message_with_an_adaptive_card(receiver):
    body = received(receiver, "teams")
    [attachment] = body["attachments"]
    assert body["type"] == "message"
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert [(each["type"], each["text"]) for each in card["body"]] == [
        ("TextBlock", TITLE),
        ("TextBlock", TEXT),
    ]


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("alarm.raised", "trigger"),
        ("alarm.acknowledged", "acknowledge"),
        ("alarm.closed", "resolve"),
    ],
)
def test_pagerduty_gets_one_incident_per_event(receiver, kind, action):
    body = received(receiver, "pagerduty", kind, KEY)
    assert (body["routing_key"], body["event_action"], body["dedup_key"]) == (KEY, action, "ev_1")
    payload = body["payload"]
    assert payload["severity"] == "warning" and payload["source"] == "triage"
    assert payload["summary"].startswith("triage, site:<A>: ") and len(payload["summary"]) <= 1024
    assert payload["timestamp"] == "2026-11-28T10:00:00Z"


@pytest.mark.parametrize("form", ["slack", "teams", "pagerduty"])
def test_messages_link_to_the_page(receiver, form):
    body = received(receiver, form, secret=KEY, pages=PAGES)
    assert f"Page: {PAGE}. " in json.dumps(body)
    if form == "pagerduty":
        assert body["links"] == [{"href": PAGE, "text": TITLE}]
        assert "links" not in received(receiver, form, secret=KEY)


def test_a_message_names_the_slices_of_its_event():
    scopes = [{"slice": each} for each in (None, "site:A", "site:B", "site:C", "site:D")]
    _, text = message_of("alarm.raised", ALARM | {"slice": None, "scopes": scopes})
    assert "Also in site:A, site:B, site:C, …." in text


def test_other_forms_go_through_the_guard_too(receiver):
    url = f"http://127.0.0.1:{receiver.server_port}/x"
    for form in ("slack", "teams", "pagerduty"):
        with pytest.raises(BlockedUrlError):
            send(message(url), Webhook(url, KEY, form), PATIENCE_S)
    assert receiver.found == []


class MailServer:
    """One mail by SMTP, in the order of RFC 5321; `offers` are its extensions, `replies` its responses by command."""

    def __init__(self, offers=(), replies=None):
        self.offers, self.replies = offers, replies or {}
        self.commands, self.mail = [], None
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"smtp://127.0.0.1:{self.listening.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        with self.listening:
            taken, _ = self.listening.accept()
        with taken, taken.makefile("rwb") as stream:
            self._say(stream, "220 mail.example")
            while line := stream.readline().decode().strip():
                self.commands.append(line)
                verb = line.split()[0].upper()
                if verb == "EHLO":
                    lines = ["mail.example", *self.offers]
                    for n, each in enumerate(lines, 1):
                        self._say(stream, f"250{' ' if n == len(lines) else '-'}{each}")
                elif verb == "DATA":
                    self._say(stream, "354 go on")
                    data = iter(stream.readline, b".\r\n")
                    self.mail = email.message_from_bytes(b"".join(data), policy=policy.default)
                    self._say(stream, "250 accepted")
                elif verb == "QUIT":
                    self._say(stream, "221 bye")
                    return
                else:
                    self._say(stream, self.replies.get(verb, "250 ok"))

    def _say(self, stream, text):
        stream.write(f"{text}\r\n".encode())
        stream.flush()


TO = "mailto:ops@example.org"


def test_mail_has_subject_and_sentences():
    server = MailServer()
    assert send_mail(message(TO), server.url, "calibrant@example.org", PATIENCE_S) == 250
    server.thread.join(PATIENCE_S)
    assert server.mail["Subject"] == TITLE and server.mail["To"] == "ops@example.org"
    assert server.mail["From"] == "calibrant@example.org" and server.mail["Message-ID"]
    assert server.mail.get_content().strip() == TEXT


def test_a_rejected_recipient_is_an_error_that_is_tried_again():
    server = MailServer(replies={"RCPT": "550 no such user"})
    with pytest.raises(OSError, match="no such user"):
        send_mail(message(TO), server.url, "calibrant@example.org", PATIENCE_S)


def test_a_password_is_not_sent_without_encryption():
    server = MailServer(offers=("AUTH PLAIN",))
    url = server.url.replace("//", "//user:secret@")
    with pytest.raises(OSError, match="STARTTLS"):
        send_mail(message(TO), url, "calibrant@example.org", PATIENCE_S)
    assert not any(line.upper().startswith("AUTH") for line in server.commands)


def test_without_a_server_the_attempt_names_the_settings():
    with pytest.raises(OSError, match="CALIBRANT_SMTP_URL"):
        send_mail(message(TO), None, None, PATIENCE_S)


@pytest.mark.parametrize(
    "url",
    [
        "mailto:",
        "mailto:a",
        "mailto:a@b,c@d",
        "mailto:a@b?cc=c@d",
        "mailto:a@b\nBcc:c@d",
        "mailto://a@b",
    ],
)
def test_one_address_and_nothing_else_is_a_receiver_of_mail(url):
    assert not is_address(url)
