"""Deliveries: messages to receivers, signed according to Standard Webhooks, with their retries.

A delivery has one permanent id, made of its subject and its receiver. A receiver that knows the id has the message. A
delivery is stored from the commit of its subject until it is completed, so a restart loses none.

Chat services and mail receive names and sentences only. Sources: Slack "Sending messages using incoming webhooks"; Microsoft "Create
incoming webhooks with Workflows" (a message with an Adaptive Card); PagerDuty "Events API v2"; RFC 5322 and 6068 for mail.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
import smtplib
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from email.message import EmailMessage
from email.utils import formatdate
from hashlib import blake2b, sha256
from html import escape
from secrets import token_bytes
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from calibrant_server.workers.alarm.episodes import at

RAISED, TEST = "alarm.raised", "alarm.test"
WAS_ACKNOWLEDGED, WAS_CLOSED = "alarm.acknowledged", "alarm.closed"
SECRET_PREFIX = "whsec_"
# Pauses after each attempt, in seconds; together about a day.
PAUSES_S = (5, 30, 120, 600, 1800, 3600, 7200, 14400, 21600, 36000)
_GONE = 410
_MAX_ATTEMPTS = 12

WAITING, DELIVERED, GIVEN_UP = "waiting", "delivered", "given_up"


@dataclass(frozen=True)
class WebhookDelivery:
    """One message to one receiver."""

    id: str
    model: str
    generation: str
    url: str
    type: str
    body: str  # JSON text, as signed and sent
    made_s: float
    due_s: float  # when to try next, seconds since the epoch
    status: str = WAITING
    # each with at_s, status (None without a response), error
    attempts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def of(self) -> tuple[str, str]:
        """`tenant/model` and generation."""
        return self.model, self.generation

    def to_json(self) -> bytes:
        """Return the stored form."""
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes | str) -> WebhookDelivery:
        """Read a delivery; skip names of later versions."""
        stored = json.loads(text)
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__ if name in stored})

    def attempted(self, at_s: float, status: int | None, error: str | None) -> WebhookDelivery:
        """Return the delivery after one more attempt: completed, abandoned, or due again."""
        attempts = [*self.attempts, {"at_s": at_s, "status": status, "error": error}]
        n = len(attempts)
        if status is not None and 200 <= status < 300:
            outcome, due_s = DELIVERED, self.due_s
        elif status == _GONE or n > len(PAUSES_S):
            outcome, due_s = GIVEN_UP, self.due_s
        else:
            outcome, due_s = WAITING, at_s + pause_s(self.id, n)
        return replace(self, status=outcome, due_s=due_s, attempts=attempts[-_MAX_ATTEMPTS:])


def pause_s(delivery_id: str, n_attempts: int) -> float:
    """Return the seconds to the next attempt, up to 10 % longer by id, so that receivers are not called at once."""
    spread = blake2b(f"{delivery_id}|{n_attempts}".encode(), digest_size=2).digest()
    return PAUSES_S[n_attempts - 1] * (1.0 + int.from_bytes(spread, "big") / 655_360)


def delivery_of(
    model: str,
    generation: str,
    url: str,
    kind: str,
    about: str,
    data: Mapping[str, Any],
    now_s: float,
) -> WebhookDelivery:
    """Create a message to one receiver."""
    named = f"{model}|{generation}|{url}|{kind}|{about}".encode()
    content = {"type": kind, "timestamp": at(now_s), "data": data}
    body = json.dumps(content, separators=(",", ":"))
    name = f"msg_{blake2b(named, digest_size=16).hexdigest()}"
    return WebhookDelivery(name, model, generation, url, kind, body, now_s, now_s)


def new_secret() -> str:
    """Create a secret for a receiver without one."""
    return SECRET_PREFIX + base64.b64encode(token_bytes(24)).decode()


def key_of(secret: str) -> bytes:
    """Return the key in a secret; raise ValueError if it is not `whsec_` and the base64 of 24 to 64 bytes."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("expected whsec_ and base64") from error
    if not secret.startswith(SECRET_PREFIX) or not 24 <= len(key) <= 64:
        raise ValueError("expected whsec_ and the base64 of 24 to 64 bytes")
    return key


def signed_headers(delivery_id: str, timestamp_s: int, body: bytes, secret: str) -> dict[str, str]:
    """Return the headers of a message.

    Source: Standard Webhooks 1.0: v1 is the base64 of HMAC-SHA256 over `id.timestamp.body`.

    >>> secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    >>> body = b'{"test": 2432232314}'
    >>> signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, secret)["webhook-signature"]
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    content = b"%s.%d.%s" % (delivery_id.encode(), timestamp_s, body)
    signature = base64.b64encode(hmac.new(key_of(secret), content, sha256).digest()).decode()
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": f"v1,{signature}",
    }


Format = Literal["standard", "slack", "teams", "pagerduty", "email"]
STANDARD: Format = "standard"
PAGERDUTY, EMAIL = "pagerduty", "email"
MAIL_SCHEME = "mailto:"
_ADDRESS = re.compile(r"mailto:[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,250}")
_ROUTING_KEY = re.compile(r"[A-Za-z0-9]{32}")
_ACTIONS = {WAS_ACKNOWLEDGED: "acknowledge", WAS_CLOSED: "resolve"}
MAX_SUMMARY, MAX_NAMED = 1024, 3
MAIL_ACCEPTED = 250
_ADAPTIVE = "application/vnd.microsoft.card.adaptive"


def message_of(kind: str, data: Mapping[str, Any], pages: str = "") -> tuple[str, str]:
    """Return the subject and the sentences of a message of this type, as people read it.

    pages : address of the pages; default: their path only
    """
    where = f"{data['model']}, {data['slice']}" if data.get("slice") else str(data.get("model"))
    if kind == TEST:
        return f"{where}: test", "A test message of Calibrant. No action is needed."
    if kind == WAS_ACKNOWLEDGED:
        note = f" {data['note']}" if data.get("note") else ""
        text = f"Acknowledged by {data.get('acknowledged_by')}.{note}"
        return f"{where}: alarm acknowledged", text
    if kind == WAS_CLOSED:
        return f"{where}: alarm closed", f"Closed: {data.get('closed_because')}."
    words = [(data.get(name) or {}).get("sentence") for name in ("change", "calibration")]
    advice = (data.get("recommendation") or {}).get("reason")
    others = [each["slice"] for each in data.get("scopes", ())[1:] if each["slice"]]
    also = others and f"Also in {', '.join(others[:MAX_NAMED])}{', …' if len(others) > MAX_NAMED else ''}."  # fmt: skip
    do = f"Page: {page_of(data, pages)}. Acknowledge: calibrant alarms acknowledge {data.get('id')}"
    texts = (*words, also, advice and f"What to do: {advice}", do)
    return f"{where}: {data.get('title')}", " ".join(each for each in texts if each)


def page_of(data: Mapping[str, Any], pages: str) -> str:
    """Return the address of a model's page."""
    return f"{pages.rstrip('/')}/models/{data.get('model')}"


def is_address(url: str) -> bool:
    """Return whether a URL is the address of one mailbox.

    >>> is_address("mailto:ops@example.org"), is_address("mailto:a@b,c@d"), is_address("https://a.example")
    (True, False, False)
    """
    return _ADDRESS.fullmatch(url) is not None


def is_routing_key(text: str) -> bool:
    """Return whether a text has the form of an integration key of PagerDuty."""
    return _ROUTING_KEY.fullmatch(text) is not None


def request_of(
    delivery: WebhookDelivery, form: str, secret: str, pages: str = ""
) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a delivery over HTTP; only the standard form is signed."""
    if form == STANDARD:
        body = delivery.body.encode()
        return body, signed_headers(delivery.id, int(time.time()), body, secret)
    about = json.loads(delivery.body)
    title, text = message_of(about["type"], about["data"], pages)
    found = _FORMS[form](title, text, about, secret)
    if form == PAGERDUTY and pages:
        found["links"] = [{"href": page_of(about["data"], pages), "text": title}]
    return json.dumps(found).encode(), {}


def _slack(title: str, text: str, about: Mapping[str, Any], secret: str) -> dict[str, Any]:
    return {"text": f"*{escape(title, quote=False)}*\n{escape(text, quote=False)}"}


def _teams(title: str, text: str, about: Mapping[str, Any], secret: str) -> dict[str, Any]:
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {"type": "TextBlock", "text": title, "weight": "Bolder", "wrap": True},
            {"type": "TextBlock", "text": text, "wrap": True},
        ],
    }
    attachment = {"contentType": _ADAPTIVE, "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _pagerduty(title: str, text: str, about: Mapping[str, Any], secret: str) -> dict[str, Any]:
    """The event of an alarm is the incident."""
    kind, data = about["type"], about["data"]
    return {
        "routing_key": secret,
        "event_action": _ACTIONS.get(kind, "trigger"),
        "dedup_key": str(data.get("event") or data.get("id") or kind),
        "client": "Calibrant",
        "payload": {
            "summary": f"{title}. {text}"[:MAX_SUMMARY],
            "source": str(data.get("model")),
            "severity": "info" if kind == TEST else "warning",
            "timestamp": about["timestamp"],
            "class": str(data.get("title") or kind),
        },
    }


_FORMS: dict[str, Callable[[str, str, Mapping[str, Any], str], dict[str, Any]]] = {
    "slack": _slack, "teams": _teams, PAGERDUTY: _pagerduty,
}  # fmt: skip


def send_mail(
    delivery: WebhookDelivery,
    server: str | None,
    sender: str | None,
    timeout_s: float,
    pages: str = "",
) -> int:
    """Send a delivery by mail; return the status of the server's response.

    server : `smtp://user:password@host:port` (TLS if the server offers it; always with a password), or `smtps://…`

    OSError: No server is configured, it cannot be reached, or it rejects the message.
    """
    if server is None or sender is None:
        raise OSError("CALIBRANT_SMTP_URL and CALIBRANT_SMTP_FROM are not set")
    about, parts, mail = json.loads(delivery.body), urlsplit(server), EmailMessage()
    mail["Subject"], text = message_of(about["type"], about["data"], pages)
    mail["From"] = sender
    mail["To"] = delivery.url.removeprefix(MAIL_SCHEME)
    mail["Date"], mail["Message-ID"] = formatdate(delivery.made_s), f"<{delivery.id}@calibrant>"
    mail.set_content(text)
    context = ssl.create_default_context()
    with _connected(parts, timeout_s, context) as connection:
        connection.ehlo()
        if parts.scheme == "smtp" and (connection.has_extn("starttls") or parts.password):
            connection.starttls(context=context)
        if parts.username:
            connection.login(unquote(parts.username), unquote(parts.password or ""))
        connection.send_message(mail)
    return MAIL_ACCEPTED


def _connected(parts: SplitResult, timeout_s: float, context: ssl.SSLContext) -> smtplib.SMTP:
    host = parts.hostname or ""
    if parts.scheme == "smtps":
        return smtplib.SMTP_SSL(host, parts.port or 465, timeout=timeout_s, context=context)
    return smtplib.SMTP(host, parts.port or 587, timeout=timeout_s)
