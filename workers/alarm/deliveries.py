"""Deliveries: messages to receivers, signed according to Standard Webhooks, with their retries.

A delivery has one permanent id, made of its subject and its receiver. A receiver that knows the id has the message. A
delivery is stored from the commit of its subject until it is completed, so a restart loses none.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b, sha256
from secrets import token_bytes
from typing import Any

RAISED, WAS_ACKNOWLEDGED, WAS_CLOSED, TEST = (
    "alarm.raised", "alarm.acknowledged", "alarm.closed", "alarm.test",
)  # fmt: skip
SECRET_PREFIX = "whsec_"
# Pauses after each attempt, in seconds; together about a day.
PAUSES_S = (5, 30, 120, 600, 1800, 3600, 7200, 14400, 21600, 36000)
_GONE = 410
_MAX_ATTEMPTS = 12

WAITING, DELIVERED, GIVEN_UP = "waiting", "delivered", "given_up"


@dataclass(frozen=True)
class WebhookDelivery:
    """One message to one receiver.

    Attributes
    ----------
    body : JSON text, as signed and sent
    due_s : when to try next, seconds since the epoch
    attempts : each with at_s, status (None without a response), error
    """

    id: str
    model: str
    generation: str
    url: str
    type: str
    body: str
    made_s: float
    due_s: float
    status: str = WAITING
    attempts: list[dict[str, Any]] = field(default_factory=list)

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
    at: str,
) -> WebhookDelivery:
    """Create a message to one receiver; `at` is its timestamp as text."""
    named = f"{model}|{generation}|{url}|{kind}|{about}".encode()
    body = json.dumps({"type": kind, "timestamp": at, "data": data}, separators=(",", ":"))
    return WebhookDelivery(
        f"msg_{blake2b(named, digest_size=16).hexdigest()}",
        model, generation, url, kind, body, now_s, now_s,
    )  # fmt: skip


def new_secret() -> str:
    """Create a secret for a receiver without one."""
    return SECRET_PREFIX + base64.b64encode(token_bytes(24)).decode()


def key_of(secret: str) -> bytes:
    """Return the key in a secret.

    Raises
    ------
    ValueError
        Not `whsec_` and the base64 of 24 to 64 bytes.
    """
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("expected whsec_ and base64") from error
    if not secret.startswith(SECRET_PREFIX) or not 24 <= len(key) <= 64:
        raise ValueError("expected whsec_ and the base64 of 24 to 64 bytes")
    return key


def signed_headers(delivery_id: str, timestamp_s: int, body: bytes, secret: str) -> dict[str, str]:
    """Return the headers of a message.

    Source
    ------
    Standard Webhooks 1.0: v1 is the base64 of HMAC-SHA256 over `id.timestamp.body`.

    Examples
    --------
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
