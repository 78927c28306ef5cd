"""What an operator can set of the engine. Read once at start; the door shares it.

Every name is an environment variable with the prefix `CALIBRANT_`; durations are ISO 8601 (`PT24H`) or plain seconds.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from calibrant_server.workers.store.durations import parse_duration

DURABILITIES = ("everysec", "fsync")
_STORE_SCHEMES = ("redis://", "rediss://", "unix://")
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")
_SIZE = re.compile(r"(\d+)\s*(|k|m|g)(i?b)?\Z", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class SettingsError(ValueError):
    """A setting cannot be used; the message names it and says what is allowed."""


@dataclass(frozen=True)
class EngineSettings:
    """Settings of the engine floor. Times in seconds, sizes in bytes.

    `idempotency_bytes` and `backlog_bytes` bound one partition, `held_panes_bytes` (memory of the panes
    that the partition loops of a process cache; None: a quarter of the memory limit) and `pane_cache_bytes` (packed
    panes that its answers have read) one process.
    """

    redis_url: str | None = None
    data_dir: Path = Path("data")
    server_binary: str | None = None
    server_memory_bytes: int = 0
    namespace: str = "calibrant"
    partitions: int = 8
    durability: str = "everysec"

    idempotency_ttl_s: int = 86_400
    idempotency_bytes: int = 256 << 20
    backlog_bytes: int = 64 << 20
    retained_bytes: int = 512 << 20
    retained_records: int = 5_000_000
    max_panes: int = 64
    max_slice_values: int = 50
    compact_after_s: int = 14 * 86_400
    future_skew_s: int = 300
    create_models: bool = True

    socket_timeout_s: float = 2.5
    connect_timeout_s: float = 1.0
    store_wait_s: float = 30.0
    max_connections: int = 64
    ingest_deadline_s: float = 5.0

    lease_s: float = 4.0
    stuck_s: float = 60.0
    read_block_s: float = 0.3
    read_bytes: int = 2 << 20
    commit_entries: int = 128
    commit_bytes: int = 8 << 20
    commit_write_rate: int = 20_000_000
    held_panes_bytes: int | None = None
    housekeeping_s: float = 60.0
    child_timeout_s: float = 20.0
    child_memory_bytes: int = 2 << 30

    compute_threads: int = 1
    answer_deadline_s: float = 20.0
    reask_s: float = 3.0
    max_questions: int = 512
    cache_ttl_s: int = 900
    cache_entry_bytes: int = 4 << 20
    window_cache_entries: int = 16
    pane_cache_bytes: int = 64 << 20

    webhook_timeout_s: float = 10.0
    webhook_networks: str | None = None
    webhook_ca: Path | None = None

    def __post_init__(self) -> None:
        if not _NAMESPACE.match(self.namespace):
            raise SettingsError("CALIBRANT_NAMESPACE: 1 to 40 of A-Za-z0-9_-")
        if self.redis_url is not None and not self.redis_url.startswith(_STORE_SCHEMES):
            raise SettingsError(f"CALIBRANT_REDIS_URL: begins with {', '.join(_STORE_SCHEMES)}")
        if not 1 <= self.partitions <= 1000:
            raise SettingsError("CALIBRANT_PARTITIONS: 1 to 1000")
        if self.durability not in DURABILITIES:
            raise SettingsError(f"CALIBRANT_DURABILITY: one of {', '.join(DURABILITIES)}")
        if self.idempotency_ttl_s < 1:
            raise SettingsError("CALIBRANT_IDEMPOTENCY_TTL: at least one second")
        if self.read_block_s >= self.socket_timeout_s:
            raise SettingsError("CALIBRANT_READ_BLOCK: below CALIBRANT_SOCKET_TIMEOUT")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> EngineSettings:
        """Read the settings from `CALIBRANT_*` (and a plain `DATA_DIR`)."""
        environ = os.environ if environ is None else environ
        given = {
            field: _read(name, convert, environ[name])
            for name, (field, convert) in NAMES.items()
            if environ.get(name, "") != ""
        }
        return cls(**given)

    def with_url(self, url: str) -> EngineSettings:
        """The same settings on a server that has been started or found."""
        return replace(self, redis_url=url)

    @property
    def store_dir(self) -> Path:
        """Where the private server keeps its files."""
        return self.data_dir / "store"


def parse_size(text: str) -> int:
    """Bytes of `64MB`, `64MiB`, `64m` or a plain number (units are powers of two).

    >>> parse_size("64 MB")
    67108864
    """
    found = _SIZE.match(text.strip())
    if not found:
        raise ValueError("a number of bytes, or with a unit: 64MB, 1GB")
    return int(found[1]) * _SIZE_UNITS[found[2].lower()]


def _read(name: str, convert: Callable[[str], Any], text: str) -> Any:
    try:
        return convert(text.strip())
    except ValueError as error:
        raise SettingsError(f"{name}={text!r}: {error}") from error


def _truth(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("true or false")


def _seconds(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else float(parse_duration(text))


def _whole_seconds(text: str) -> int:
    return int(_seconds(text))


def _networks(text: str) -> str:
    for part in text.split(","):
        ip_network(part.strip())
    return text


def _authorities(text: str) -> Path:
    try:
        ssl.create_default_context().load_verify_locations(text)
    except OSError as error:
        raise ValueError(f"a PEM file of certificates: {error}") from error
    return Path(text)


# Plain DATA_DIR comes first, so that CALIBRANT_DATA_DIR, where both are set, wins.
NAMES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "DATA_DIR": ("data_dir", Path),
    "CALIBRANT_DATA_DIR": ("data_dir", Path),
    "CALIBRANT_REDIS_URL": ("redis_url", str),
    "CALIBRANT_SERVER_BINARY": ("server_binary", str),
    "CALIBRANT_SERVER_MEMORY": ("server_memory_bytes", parse_size),
    "CALIBRANT_NAMESPACE": ("namespace", str),
    "CALIBRANT_PARTITIONS": ("partitions", int),
    "CALIBRANT_DURABILITY": ("durability", str),
    "CALIBRANT_IDEMPOTENCY_TTL": ("idempotency_ttl_s", _whole_seconds),
    "CALIBRANT_IDEMPOTENCY_BYTES": ("idempotency_bytes", parse_size),
    "CALIBRANT_BACKLOG_BYTES": ("backlog_bytes", parse_size),
    "CALIBRANT_RETAINED_BYTES": ("retained_bytes", parse_size),
    "CALIBRANT_RETAINED_RECORDS": ("retained_records", int),
    "CALIBRANT_MAX_PANES": ("max_panes", int),
    "CALIBRANT_MAX_SLICE_VALUES": ("max_slice_values", int),
    "CALIBRANT_COMPACT_AFTER": ("compact_after_s", _whole_seconds),
    "CALIBRANT_FUTURE_SKEW": ("future_skew_s", _whole_seconds),
    "CALIBRANT_CREATE_MODELS": ("create_models", _truth),
    "CALIBRANT_SOCKET_TIMEOUT": ("socket_timeout_s", _seconds),
    "CALIBRANT_CONNECT_TIMEOUT": ("connect_timeout_s", _seconds),
    "CALIBRANT_STORE_WAIT": ("store_wait_s", _seconds),
    "CALIBRANT_MAX_CONNECTIONS": ("max_connections", int),
    "CALIBRANT_INGEST_DEADLINE": ("ingest_deadline_s", _seconds),
    "CALIBRANT_LEASE": ("lease_s", _seconds),
    "CALIBRANT_STUCK": ("stuck_s", _seconds),
    "CALIBRANT_READ_BLOCK": ("read_block_s", _seconds),
    "CALIBRANT_READ_BYTES": ("read_bytes", parse_size),
    "CALIBRANT_COMMIT_ENTRIES": ("commit_entries", int),
    "CALIBRANT_COMMIT_BYTES": ("commit_bytes", parse_size),
    "CALIBRANT_COMMIT_WRITE_RATE": ("commit_write_rate", parse_size),
    "CALIBRANT_HELD_PANES_BYTES": ("held_panes_bytes", parse_size),
    "CALIBRANT_HOUSEKEEPING": ("housekeeping_s", _seconds),
    "CALIBRANT_CHILD_TIMEOUT": ("child_timeout_s", _seconds),
    "CALIBRANT_CHILD_MEMORY": ("child_memory_bytes", parse_size),
    "CALIBRANT_COMPUTE_THREADS": ("compute_threads", int),
    "CALIBRANT_ANSWER_DEADLINE": ("answer_deadline_s", _seconds),
    "CALIBRANT_REASK": ("reask_s", _seconds),
    "CALIBRANT_MAX_QUESTIONS": ("max_questions", int),
    "CALIBRANT_CACHE_TTL": ("cache_ttl_s", _whole_seconds),
    "CALIBRANT_WINDOW_CACHE_ENTRIES": ("window_cache_entries", int),
    "CALIBRANT_PANE_CACHE_BYTES": ("pane_cache_bytes", parse_size),
    "CALIBRANT_WEBHOOK_TIMEOUT": ("webhook_timeout_s", _seconds),
    "CALIBRANT_WEBHOOK_NETWORKS": ("webhook_networks", _networks),
    "CALIBRANT_WEBHOOK_CA": ("webhook_ca", _authorities),
}
