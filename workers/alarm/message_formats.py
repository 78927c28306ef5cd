"""Messages in the form that a receiver takes: Standard Webhooks, Slack, Microsoft Teams, PagerDuty, e-mail.

Chat services and mail receive names and sentences only. Sources: Slack "Sending messages using incoming webhooks"; Microsoft "Create
incoming webhooks with Workflows" (a message with an Adaptive Card); PagerDuty "Events API v2"; RFC 5322 and 6068 for mail.
"""

from __future__ import annotations

import json
import re
import smtplib
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from calibrant_server.workers.alarm.deliveries import WebhookDelivery, signed_headers

Format = Literal["standard", "slack", "teams", "pagerduty", "email"]
STANDARD: Format = "standard"
PAGERDUTY, EMAIL = "pagerduty", "email"
MAIL_SCHEME = "mailto:"
_ADDRESS = re.compile(r"mailto:[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,250}")
_ROUTING_KEY = re.compile(r"[A-Za-z0-9]{32}")
_ACTIONS = {"alarm.acknowledged": "acknowledge", "alarm.closed": "resolve"}
MAX_SUMMARY = 1024
MAIL_ACCEPTED = 250
_ADAPTIVE = "application/vnd.microsoft.card.adaptive"


@dataclass(frozen=True)
class Message:
    """A message as people read it."""

    title: str
    text: str


def message_of(kind: str, data: Mapping[str, Any]) -> Message:
    """Return the subject and the sentences of a message of this type."""
    where = f"{data['model']}, {data['slice']}" if data.get("slice") else str(data.get("model"))
    if kind == "alarm.test":
        return Message(f"{where}: test", "A test message of Calibrant. No action is needed.")
    if kind == "alarm.acknowledged":
        note = f" {data['note']}" if data.get("note") else ""
        text = f"Acknowledged by {data.get('acknowledged_by')}.{note}"
        return Message(f"{where}: alarm acknowledged", text)
    if kind == "alarm.closed":
        return Message(f"{where}: alarm closed", f"Closed: {data.get('closed_because')}.")
    words = [(data.get(name) or {}).get("sentence") for name in ("change", "calibration")]
    advice = (data.get("recommendation") or {}).get("reason")
    text = " ".join(each for each in (*words, advice) if each)
    return Message(f"{where}: {data.get('title')}", text)


def is_address(url: str) -> bool:
    """Return whether a URL is the address of one mailbox.

    >>> is_address("mailto:ops@example.org"), is_address("mailto:a@b,c@d"), is_address("https://a.example")
    (True, False, False)
    """
    return _ADDRESS.fullmatch(url) is not None


def is_routing_key(text: str) -> bool:
    """Return whether a text has the form of an integration key of PagerDuty."""
    return _ROUTING_KEY.fullmatch(text) is not None


def request_of(delivery: WebhookDelivery, form: str, secret: str) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a delivery over HTTP; only the standard form is signed."""
    if form == STANDARD:
        body = delivery.body.encode()
        return body, signed_headers(delivery.id, int(time.time()), body, secret)
    about = json.loads(delivery.body)
    message = message_of(about["type"], about["data"])
    return json.dumps(_FORMS[form](message, about, secret)).encode(), {}


def _slack(message: Message, about: Mapping[str, Any], secret: str) -> dict[str, Any]:
    text = f"*{_escaped(message.title)}*\n{_escaped(message.text)}"
    return {"text": text}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _teams(message: Message, about: Mapping[str, Any], secret: str) -> dict[str, Any]:
    blocks = [
        {"type": "TextBlock", "text": message.title, "weight": "Bolder", "wrap": True},
        {"type": "TextBlock", "text": message.text, "wrap": True},
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    }
    attachment = {"contentType": _ADAPTIVE, "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _pagerduty(message: Message, about: Mapping[str, Any], secret: str) -> dict[str, Any]:
    """The leading alarm of a notification is the incident: its acknowledgement and end are those of the incident."""
    kind, data = about["type"], about["data"]
    return {
        "routing_key": secret,
        "event_action": _ACTIONS.get(kind, "trigger"),
        "dedup_key": str(data.get("id") or kind),
        "client": "Calibrant",
        "payload": {
            "summary": f"{message.title}. {message.text}"[:MAX_SUMMARY],
            "source": str(data.get("model")),
            "severity": "info" if kind == "alarm.test" else "warning",
            "timestamp": about["timestamp"],
            "class": str(data.get("title") or kind),
        },
    }


_FORMS: dict[str, Callable[[Message, Mapping[str, Any], str], dict[str, Any]]] = {
    "slack": _slack,
    "teams": _teams,
    PAGERDUTY: _pagerduty,
}


def send_mail(
    delivery: WebhookDelivery, server: str | None, sender: str | None, timeout_s: float
) -> int:
    """Send a delivery by mail; return the status of the server's response.

    Parameters
    ----------
    server : `smtp://user:password@host:port` (TLS if the server offers it; always with a password), or `smtps://…`

    Raises
    ------
    OSError
        No server is configured, it cannot be reached, or it rejects the message.
    """
    if server is None or sender is None:
        raise OSError("CALIBRANT_SMTP_URL and CALIBRANT_SMTP_FROM are not set")
    about, parts = json.loads(delivery.body), urlsplit(server)
    message, mail = message_of(about["type"], about["data"]), EmailMessage()
    mail["Subject"], mail["From"] = message.title, sender
    mail["To"] = delivery.url.removeprefix(MAIL_SCHEME)
    mail["Date"], mail["Message-ID"] = formatdate(delivery.made_s), f"<{delivery.id}@calibrant>"
    mail.set_content(message.text)
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
