"""Webhook sender: delivers stored messages from a few threads, so that no receiver delays a partition.

It serves the partitions that its process holds. The outcome of an attempt goes into the partition's stream as a command,
and the partition's own loop writes it. Until then the sender remembers the attempt and does not repeat it. If the process
dies in between, the delivery is unchanged, and the next sender repeats the attempt with the same id.
"""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

from redis.exceptions import RedisError

from calibrant_server.workers.alarm.alarm_commit import attempt
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings, Webhook
from calibrant_server.workers.alarm.deliveries import EMAIL, WebhookDelivery, request_of, send_mail
from calibrant_server.workers.alarm.url_guard import (
    BlockedUrlError,
    Network,
    Target,
    networks_of,
    target_of,
)
from calibrant_server.workers.ingest.orders import alarm_order
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.key_names import tenant_of
from calibrant_server.workers.store.model_config import read_configs

log = logging.getLogger(__name__)

# For a receiver to connect, and for its complete response: few slow receivers must not delay every delivery.
WEBHOOK_TIMEOUT_S = 10.0
# Between two looks at most, and at least: a commit of this process that changes deliveries makes the sender look, and so does the time of
# a delivery. What another process wrote before its partition came here is found by the rare look.
_RARE_LOOK_S, _MIN_PAUSE_S = 30.0, 0.2
_AT_ONCE = 4
_MAX_A_ROUND = 64
# Deliveries of one tenant that wait for a thread or are being sent: those of another wait behind two rounds of them.
MAX_PENDING_OF_TENANT = 8
_READ_BYTES = 4096
USER_AGENT = "calibrant-webhook/1"


def in_turn(due: Sequence[WebhookDelivery]) -> list[WebhookDelivery]:
    """Return deliveries in the order of their times, one of each tenant before the second of any."""
    seen: defaultdict[str, Iterator[int]] = defaultdict(count)
    ranked = [(next(seen[tenant_of(each.model)]), each.due_s, each) for each in due]
    return [each for *_, each in sorted(ranked, key=lambda item: item[:2])]


class WebhookSender:
    """Deliveries of one process."""

    def __init__(self, store: Store, partitions: Callable[[], Iterable[int]]):
        self._store = store
        self._partitions = partitions
        self._timeout_s = WEBHOOK_TIMEOUT_S
        self._allowed = networks_of(store.settings.webhook_networks or "")
        self._tried: dict[tuple[str, int], float] = {}
        self._pending: Counter[str] = Counter()
        self._lock = threading.Lock()

    def run(self, stop: threading.Event) -> None:
        """Deliver until stopped."""
        changed = self._store.deliveries_changed
        with ThreadPoolExecutor(_AT_ONCE, "webhook") as pool:
            while not stop.is_set():
                changed.clear()
                changed.wait(self._look(pool))
                stop.wait(_MIN_PAUSE_S)

    def _look(self, pool: ThreadPoolExecutor) -> float:
        """Send what is due; return the seconds until the next look, if nothing changes before."""
        try:
            return self._round(list(self._partitions()), pool)
        except RedisError as error:
            log.warning("deliveries_not_read error=%s", error)
        except Exception:
            log.exception("deliveries_failed")
        return _MIN_PAUSE_S

    def _round(self, partitions: Sequence[int], pool: ThreadPoolExecutor) -> float:
        """Send what is due, having read the deliveries of all partitions in one round trip; return the seconds until more is due."""
        now, keys = time.time(), self._store.keys
        with self._store.client.pipeline(transaction=False) as pipe:
            for partition in partitions:
                pipe.hvals(keys.partition(partition).deliveries)
            found = pipe.execute()
        next_s = now + _RARE_LOOK_S
        for partition, texts in zip(partitions, found, strict=True):
            waiting = sorted(map(WebhookDelivery.from_json, texts), key=lambda each: each.due_s)
            due = [each for each in waiting if each.due_s <= now]
            next_s = min([next_s, *(each.due_s for each in waiting[len(due) :])])
            for each in in_turn(due)[:_MAX_A_ROUND]:
                if self._takes(each, now):
                    pool.submit(self._deliver, partition, each)
        return max(0.0, next_s - time.time())

    def _takes(self, delivery: WebhookDelivery, now: float) -> bool:
        """Whether to make an attempt: not if one was just made and its outcome is not written yet."""
        name = (delivery.id, len(delivery.attempts))
        with self._lock:
            patience_s = 2 * self._timeout_s + 30.0
            self._tried = {key: at for key, at in self._tried.items() if now - at < patience_s}
            tenant = tenant_of(delivery.model)
            if name in self._tried or self._pending[tenant] >= MAX_PENDING_OF_TENANT:
                return False
            self._tried[name] = now
            self._pending[tenant] += 1
        return True

    def _deliver(self, partition: int, delivery: WebhookDelivery) -> None:
        try:
            status, error = self._attempted(partition, delivery)
            entry = alarm_order(*delivery.of, attempt(delivery, time.time(), status, error))
            keys = self._store.keys.partition(partition)
            fields = [part for pair in entry.to_fields().items() for part in pair]
            values = [entry.n_bytes, *fields]
            self._store.run(partition, "append_entry", [keys.stream, keys.bytes_in], values)
        except Exception:
            log.exception("delivery_failed delivery_id=%s", delivery.id)
        finally:
            with self._lock:
                self._pending[tenant_of(delivery.model)] -= 1

    def _attempted(
        self, partition: int, delivery: WebhookDelivery
    ) -> tuple[int | None, str | None]:
        """Return the status of the response, or the error."""
        node, settings = self._store.node(partition), self._store.settings
        keys = self._store.keys.partition(partition)
        config = read_configs(node, keys.models, [delivery.model]).get(delivery.model)
        receivers = () if config is None else AlarmSettings.of(config).webhooks
        receiver = next((each for each in receivers if each.url == delivery.url), None)
        if receiver is None:
            return 410, "the receiver is no longer declared"
        limit_s, pages = self._timeout_s, settings.public_url or ""
        try:
            if receiver.format == EMAIL:
                server, sender = settings.smtp_url, settings.smtp_from
                return send_mail(delivery, server, sender, limit_s, pages), None
            trusted = settings.webhook_ca
            return send(delivery, receiver, limit_s, self._allowed, trusted, pages), None
        except (OSError, http.client.HTTPException, BlockedUrlError) as error:
            return None, f"{type(error).__name__}: {error}"[:200]


def send(
    delivery: WebhookDelivery,
    receiver: Webhook,
    timeout_s: float,
    allowed: Iterable[Network] = (),
    trusted: Path | None = None,
    pages: str = "",
) -> int:
    """Send a message; return the status of the response, or raise BlockedUrlError, OSError or HTTPException.

    Parameters
    ----------
    timeout_s : for the complete response; a receiver that sends a byte now and then is cut off
    allowed : networks in addition to the public internet
    trusted : PEM file of authorities in addition to those of the system
    pages : address of the pages, for links
    """
    target = target_of(delivery.url, allowed)
    body, headers = request_of(delivery, receiver.format, receiver.secret, pages)
    headers |= {"Content-Type": "application/json", "User-Agent": USER_AGENT}
    connection = _Pinned(target, timeout_s, trusted)
    deadline = threading.Timer(timeout_s, connection.cut_off)
    deadline.daemon = True
    deadline.start()
    try:
        connection.request("POST", target.path, body, headers)
        response = connection.getresponse()
        response.read(_READ_BYTES)
        if connection.is_late:
            raise TimeoutError("no complete response in time")
        return response.status
    finally:
        deadline.cancel()
        connection.close()


class _Pinned(http.client.HTTPConnection):
    """Connection to the checked address, whatever the name resolves to later."""

    def __init__(self, target: Target, timeout_s: float, trusted: Path | None):
        super().__init__(target.host, target.port, timeout=timeout_s)
        self._target, self._trusted = target, trusted
        self.is_late = False

    def cut_off(self) -> None:
        """End a pending wait: the timeout of a socket applies to each byte, not to all of them."""
        self.is_late = True
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)

    def connect(self) -> None:
        """Connect, and for https check the certificate against the name."""
        self.sock = socket.create_connection((self._target.address, self.port), self.timeout)
        if self.is_late:
            raise TimeoutError("no connection in time")
        if self._target.scheme == "https":
            tls, name = ssl.create_default_context(), self._target.host
            if self._trusted is not None:
                tls.load_verify_locations(self._trusted)
            # Assigned before the handshake, which `cut_off` may end.
            self.sock = tls.wrap_socket(
                self.sock, server_hostname=name, do_handshake_on_connect=False
            )
            self.sock.do_handshake()
