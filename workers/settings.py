"""Settings of the engine: what an operator can set. Read once at start; the HTTP service shares them.

Every name is an environment variable with the prefix `CALIBRANT_`. Durations are ISO 8601 (`PT24H`) or plain seconds.
What no operator should change is a constant, with its reason, where it is used. A constant that tests or other parts of the
program choose differently is a `Fixed` field here: no environment variable sets it.
"""

from __future__ import annotations

import re
import ssl
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasGenerator,
    BeforeValidator,
    Field,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from calibrant.core.durations import parse_duration
from calibrant_server.workers.store.addresses import parse_address

PREFIX = "CALIBRANT_"
_SIZE = re.compile(r"(\d+)\s*(|k|m|g)(i?b)?\Z", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class SettingsError(ValueError):
    """A setting cannot be used. The message names it and its rule, never its value, which may be a secret."""


def parse_size(text: str) -> int:
    """Bytes of `64MB`, `64MiB`, `64m` or a plain number (units are powers of two).

    >>> parse_size("64 MB")
    67108864
    """
    found = _SIZE.match(text.strip())
    if not found:
        raise ValueError("expected a number of bytes, or one with a unit: 64MB, 1GB")
    return int(found[1]) * _SIZE_UNITS[found[2].lower()]


def _bytes(given: Any) -> Any:
    return parse_size(given) if isinstance(given, str) else given


def _seconds(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    text = given.strip()
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else float(parse_duration(text))


def _whole_seconds(given: Any) -> Any:
    return int(_seconds(given)) if isinstance(given, str) else given


def _store_url(url: str) -> str:
    parse_address(url)
    return url


def _networks(text: str) -> str:
    for part in text.split(","):
        ip_network(part.strip())
    return text


def _authorities(path: Path) -> Path:
    try:
        ssl.create_default_context().load_verify_locations(path)
    except OSError as error:
        raise ValueError(f"expected a PEM file of certificates: {error}") from error
    return path


_FIXED = "fixed"
T = TypeVar("T")
Fixed = Annotated[T, _FIXED]
Bytes = Annotated[int, BeforeValidator(_bytes)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
WholeSeconds = Annotated[int, BeforeValidator(_whole_seconds)]


def _variable(field: str) -> AliasChoices:
    """The variable of a field, `CALIBRANT_LEASE` of `lease_s`, or the field's own name in a call."""
    return AliasChoices(PREFIX + field.removesuffix("_s").upper(), field)


class _Environment(EnvSettingsSource):
    """The environment, which sets no `Fixed` field."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        if _is_fixed(field):
            return None, field_name, False
        return super().get_field_value(field, field_name)


def _is_fixed(field: FieldInfo) -> bool:
    return _FIXED in field.metadata


class EnvironmentSettings(BaseSettings):
    """Settings that are read from the environment, except `Fixed` ones."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **others: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read what a call gives, then the environment."""
        return init_settings, _Environment(settings_cls)


class EngineSettings(EnvironmentSettings):
    """Settings of the engine. Times in seconds, sizes in bytes. The text after a field is its row in docs/operations.md.

    Raises
    ------
    SettingsError
        A value cannot be used.
    """

    model_config = SettingsConfigDict(
        alias_generator=AliasGenerator(validation_alias=_variable),
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    redis_url: Annotated[str, AfterValidator(_store_url)] | None = Field(None, repr=False)
    """`redis://`, `rediss://` (TLS) or `unix://` for one server, `redis+cluster://`, `redis+sentinel://`
    ([cluster or sentinels](#a-cluster-or-sentinels)); without it the embedded store is started."""
    data_dir: Path = Field(
        Path("data"), validation_alias=AliasChoices("CALIBRANT_DATA_DIR", "DATA_DIR", "data_dir")
    )
    """Directory of the embedded store's files."""
    server_binary: str | None = None
    """Another `valkey-server` or `redis-server` for the embedded store. Default: that of the package."""
    server_memory_bytes: Bytes = Field(
        0, ge=0, validation_alias=AliasChoices("CALIBRANT_SERVER_MEMORY", "server_memory_bytes")
    )
    """`maxmemory` of the embedded store; 0 for no bound."""
    namespace: str = Field("calibrant", pattern=r"^[A-Za-z0-9_-]{1,40}$")
    """First part of every key: several deployments may share a store."""
    partitions: int = Field(64, ge=1, le=1000)
    """Number of partitions of a new store: at least the number of workers that you will ever run. That of an existing store
    does not change (`partitions_are_those_of_the_store` in the log)."""
    durability: Literal["everysec", "fsync", "replicated"] = "everysec"
    """`everysec`, `replicated` or `fsync`: [what a 202 promises](#what-a-202-promises)."""

    idempotency_ttl_s: WholeSeconds = Field(86_400, ge=1)
    """How long batch ids are remembered."""
    idempotency_bytes: Bytes = 2 << 30
    """Memory of batch ids, a [total of the store](#totals-of-the-store); at the bound ingest returns 429."""
    backlog_bytes: Bytes = 512 << 20
    """Queued bytes at which ingest returns 429, a total of the store."""
    retained_bytes: Bytes = 4 << 30
    """Predictions retained by id for later labels, a total of the store; at the bound ingest returns 429."""
    retained_records: int = 40_000_000
    """Bound of `CALIBRANT_RETAINED_BYTES` as a number of predictions."""
    parked_bytes: Bytes = 2 << 30
    """Parked batches, a total of the store; at the bound a partition waits until some are replayed or discarded."""
    # Panes that one batch may touch: it is filled in one commit. Clients divide their batches by the same number
    # (`calibrant/client/numbered_panes.py`), which they cannot ask for.
    max_panes: Fixed[int] = 64
    # Panes of an open slice key: state grows with its values, which no user has counted. A model declares the
    # values of a key that has more.
    max_slice_values: Fixed[int] = 50
    compact_after_s: WholeSeconds = 14 * 86_400
    """Age at which the panes of a day are merged into one, with a label horizon not before the day is sealed. 0: never."""
    cold_url: str | None = Field(None, repr=False)
    """[Files of old days](#old-days-in-files): a path, or a URL of fsspec such as `s3://bucket/prefix`."""
    cold_after_s: WholeSeconds = Field(15 * 86_400, ge=0)
    """Age at which a day is moved to files, if it is merged and sealed. 0: no day is moved; moved days are still read."""
    cold_keep_s: WholeSeconds = Field(600, ge=60)
    """Time before a replaced file is removed, at least one minute."""
    # Footers and columns of files that are needed again soon. The others are read again: a larger cache saves only time.
    cold_cache_bytes: Fixed[int] = 64 << 20
    sample_bytes: Bytes = Field(1 << 20, ge=0, le=8 << 20)
    """Stored sample of complete rows of each model and day, at most 8 MiB; 0: none, and then no map with parameters per
    class."""
    # More than synchronised clocks differ. A sender with a wrong clock is told so before it fills panes of later hours.
    future_skew_s: Fixed[int] = 300
    create_models: bool = True
    """A first batch creates an unknown model."""

    # Above the time for which a read of the stream waits for entries.
    socket_timeout_s: Seconds = Field(2.5, gt=0.3)
    """How long to wait for a response of the store. In a cluster, it must be less than the node timeout."""

    lease_s: Seconds = Field(4.0, gt=0)
    """Time within which other workers take over the partitions of a dead worker; the unit of the limits that health uses."""
    held_panes_bytes: Bytes | None = None
    """Memory of the panes and rows that one process caches between commits, for all its partitions together. Default: a
    quarter of the memory limit."""
    housekeeping_s: Seconds = 60.0
    """Interval of housekeeping: retention, removal of expired data."""
    pane_cache_bytes: Bytes = 128 << 20
    """Memory of the panes and merges of neighbouring panes that are cached for queries."""

    webhook_networks: Annotated[str, AfterValidator(_networks)] | None = None
    """Networks where receivers of alarms may be, in addition to the public internet: `10.1.0.0/16,127.0.0.0/8`."""
    webhook_ca: Annotated[Path, AfterValidator(_authorities)] | None = None
    """PEM file of authorities that may sign the receivers' certificates, in addition to those of the system."""
    public_url: Annotated[str, Field(pattern=r"^https?://[^\s?#]+$")] | None = None
    """Address of the pages as people open it, for links in notifications: `https://calibrant.example.org`. Without
    it, they have the path only."""
    smtp_url: Annotated[str, Field(pattern=r"^smtps?://[^/\s]+$")] | None = None
    """Server of e-mails: `smtp://user:password@mail.example.org:587` (encrypted if the server offers it, and always with a
    password), or `smtps://…`; `@` in a password is `%40`."""
    smtp_from: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    """Sender of e-mails."""

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            # The cause would show the values.
            raise SettingsError(explained(error)) from None

    def replace(self, **changes: Any) -> EngineSettings:
        """Return the same settings with other values, which are not checked."""
        return self.model_copy(update=changes)

    def with_url(self, url: str) -> EngineSettings:
        """Return the same settings on a server that has been started or found."""
        return self.replace(redis_url=url)

    @property
    def store_dir(self) -> Path:
        """Directory of the embedded server."""
        return self.data_dir / "store"


def explained(error: ValidationError) -> str:
    """Return what is wrong with settings: each variable and its rule, never its value, which may be a secret."""
    reported = error.errors(include_input=False, include_url=False)
    return "; ".join(
        f"{_name(str(each['loc'][0]))}: {each['msg'].removeprefix('Value error, ')}"
        for each in reported
    )


def _name(place: str) -> str:
    return place if place.isupper() else PREFIX + place.upper()


def variables(settings: type[BaseSettings]) -> dict[str, str]:
    """Environment variables of settings, and the fields that they set."""
    found = {}
    for field, info in settings.model_fields.items():
        if _is_fixed(info):
            continue
        alias = info.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [PREFIX + field.upper()]
        found.update({str(name): field for name in choices if str(name).isupper()})
    return found
