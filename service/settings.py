"""Settings of the HTTP service, read from the environment once.

Every name has the prefix `CALIBRANT_`. `PORT` and `DATA_DIR` are also read without it, because
process managers set them so. The store has settings of its own, read by the engine.
"""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from calibrant_server.workers.alarm.url_guard import networks_of
from calibrant_server.workers.settings import Bytes, EnvironmentSettings, Fixed
from calibrant_server.workers.store.model_config import SERVE, Mode

MIB = 1024 * 1024
MIN_PROXY_SECRET = 16
HEADER = r"^[A-Za-z0-9-]{1,100}$"
ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


def _networks(text: str) -> str:
    networks_of(text)
    return text


class Settings(EnvironmentSettings):
    """Settings of the HTTP service. The text after a field is its row in docs/operations.md."""

    model_config = SettingsConfigDict(env_prefix="CALIBRANT_", extra="ignore", frozen=True)

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(
        8000, ge=0, le=65535, validation_alias=AliasChoices("CALIBRANT_PORT", "PORT", "port")
    )
    """Port to listen on."""
    data_dir: Path = Field(
        Path("data"), validation_alias=AliasChoices("CALIBRANT_DATA_DIR", "DATA_DIR", "data_dir")
    )
    redis_url: str | None = None

    keys: str | None = None
    """The document of `CALIBRANT_KEYS_FILE` in the variable itself."""
    keys_file: Path | None = None
    """File with the [keys](#keys)."""
    create_key: bool = False
    """If the file does not exist, create it with one key of all scopes and print that key once."""

    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = ("127.0.0.1", "::1")
    """Addresses or networks of proxies, separated by commas, whose `X-Forwarded-For` (in logs) and `X-Forwarded-Proto`
    (https) count."""
    proxy_secret: str | None = Field(None, min_length=MIN_PROXY_SECRET, pattern=r"^[\x21-\x7e]+$")
    """Secret with which a proxy names people, 16 characters or more; required with `CALIBRANT_ROLES`."""
    proxy_user_header: str = Field("X-Forwarded-User", pattern=HEADER)
    """Header in which the proxy names the person."""
    proxy_roles_header: str = Field("X-Forwarded-Groups", pattern=HEADER)
    """Header with the person's roles, separated by commas."""
    roles: str | None = None
    """Scopes by role of people whom a proxy names: `{"quality": {"scopes": ["read", "admin"]}}`."""
    people_tenant: str = "default"
    """Tenant of people whom a proxy names."""
    create_models: bool = True
    mode: Mode = SERVE
    """`observe`: maps of all models are advice; none can be promoted, read as the current one or applied
    ([maps.md](maps.md#observe-mode))."""
    max_body_bytes: Bytes = Field(32 * MIB, gt=0)
    """Request body as sent; decompressed, it may have twice as many bytes."""
    # The memory of two bodies as sent: parsing takes several times these bytes. `MAX_EXPANSION` bounds small bodies.
    max_decoded_bytes: Fixed[int] = Field(
        default_factory=lambda given: 2 * given["max_body_bytes"],
        description="Request body once decompressed.",
    )
    max_import_bytes: Bytes = Field(128 * MIB, gt=0)
    """Total size of the lines of an imported model."""
    # The bytes of a body bound most batches first. This bounds the objects that the smallest rows become.
    max_rows: Fixed[int] = Field(1_000_000, description="Predictions in one batch.")
    max_bytes_in_hand: Bytes = Field(256 * MIB, gt=0)
    """Total size of the bodies that are being read or checked at one time; above it 503."""
    tenant_rate: float = Field(1000, ge=0)
    """Requests per second of a tenant, in all services together; 0: unlimited; [Tenants](#tenants)."""
    key_rate: float = Field(1000, ge=0)
    """Requests per second of a key, likewise."""
    tenant_share: float = Field(0.5, gt=0, le=1)
    """Part of each shared bound that one of several tenants may use."""
    tenant_models: int = Field(1000, ge=1)
    """Maximum number of models of a tenant, which concurrent requests may exceed by their number."""
    archive_bytes: Bytes = Field(64 * MIB, ge=0)
    """Archived reports of a model, as stored (at most 500); above it 409. 0: none."""
    max_streams: int = Field(100, ge=0)
    """Event streams of alarms open at one time; above it 503."""
    metrics_models: int = Field(100, ge=0)
    """Maximum number of models of a tenant in `/metrics/models`; the first by name are included."""
    webhook_networks: Annotated[str, AfterValidator(_networks)] | None = None
    allowed_origins: Annotated[tuple[str, ...] | None, NoDecode] = None
    """Origins of pages that may read responses (CORS) and embed them, separated by commas: `https://dashboard.example`."""
    log_requests: bool = True
    """Log one line of JSON per request to standard error."""

    @property
    def max_objects(self) -> int:
        """Lists and objects in one JSON body: some for each row, and for the body itself."""
        return 3 * self.max_rows + 100

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _proxies(cls, value: Any) -> Any:
        found = value.split(",") if isinstance(value, str) else value or ()
        listed = tuple(filter(None, (str(each).strip() for each in found)))
        for each in listed:
            ip_network(each)  # its message names the text, and what was expected
        return listed

    @field_validator("allowed_origins", mode="before")
    @classmethod
    def _origins(cls, value: Any) -> Any:
        """Read a list with commas; reject what is not an origin, such as `*`, which would allow every site."""
        found = (
            [each.strip() for each in value.split(",")] if isinstance(value, str) else value or ()
        )
        for each in filter(None, found):
            if not ORIGIN.fullmatch(each):
                raise ValueError("expected origins such as https://host or https://host:8443")
        return tuple(filter(None, found))
