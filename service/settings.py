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
from calibrant_server.workers.settings import EnvironmentSettings, Fixed
from calibrant_server.workers.store.model_config import SERVE, Mode

MIB = 1024 * 1024
MIN_PROXY_SECRET = 16
HEADER = r"^[A-Za-z0-9-]{1,100}$"
ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


def _networks(text: str) -> str:
    networks_of(text)
    return text


class Settings(EnvironmentSettings):
    """Settings of the HTTP service for operators."""

    model_config = SettingsConfigDict(env_prefix="CALIBRANT_", extra="ignore", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(
        8000, ge=0, le=65535, validation_alias=AliasChoices("CALIBRANT_PORT", "PORT", "port")
    )
    data_dir: Path = Field(
        Path("data"), validation_alias=AliasChoices("CALIBRANT_DATA_DIR", "DATA_DIR", "data_dir")
    )
    processes: int = Field(1, ge=1, le=64, description="Processes that serve on the port.")
    redis_url: str | None = Field(
        None, description="Redis or Valkey. Default: the service starts one."
    )

    keys: str | None = Field(None, description="The keys document as JSON, instead of a file.")
    keys_file: Path | None = Field(None, description="File that holds the keys document.")
    create_key: bool = Field(False, description="Make a first key if the file is not there yet.")

    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        ("127.0.0.1", "::1"),
        description="Addresses or networks of proxies whose headers count, separated by commas.",
    )
    proxy_secret: str | None = Field(
        None,
        min_length=MIN_PROXY_SECRET,
        pattern=r"^[\x21-\x7e]+$",
        description="Secret that the proxy sends with the name of a person.",
    )
    proxy_user_header: str = Field(
        "X-Forwarded-User",
        pattern=HEADER,
        description="Header in which the proxy names the person.",
    )
    proxy_roles_header: str = Field(
        "X-Forwarded-Groups",
        pattern=HEADER,
        description="Header with the person's roles, separated by commas.",
    )
    roles: str | None = Field(
        None, description="Scopes by role of people whom a proxy names, as JSON."
    )
    people_tenant: str = Field("default", description="Tenant of these people.")
    create_models: bool = Field(True, description="A first batch creates an unknown model.")
    mode: Mode = Field(
        SERVE,
        description="observe: maps of all models are advice and cannot be promoted or applied.",
    )
    max_body_bytes: int = Field(32 * MIB, gt=0, description="Request body as sent.")
    # The memory of two bodies as sent: parsing takes several times these bytes. `MAX_EXPANSION` bounds small bodies.
    max_decoded_bytes: Fixed[int] = Field(
        default_factory=lambda given: 2 * given["max_body_bytes"],
        description="Request body once decompressed.",
    )
    max_import_bytes: int = Field(128 * MIB, gt=0, description="Lines of an imported model.")
    # The bytes of a body bound most batches first. This bounds the objects that the smallest rows become.
    max_rows: Fixed[int] = Field(1_000_000, description="Predictions in one batch.")
    max_bytes_in_hand: int = Field(
        256 * MIB, gt=0, description="Bodies being read or checked at one time, together."
    )
    tenant_rate: float = Field(1000, ge=0, description="Requests per second of a tenant; 0: any.")
    key_rate: float = Field(1000, ge=0, description="Requests per second of a key; 0: any.")
    tenant_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Part of each shared bound that one of several tenants may use.",
    )
    tenant_models: int = Field(1000, ge=1, description="Models of a tenant.")
    archive_bytes: int = Field(
        64 * MIB, ge=0, description="Archived reports of a model, as stored; 0: none are archived."
    )
    max_streams: int = Field(100, ge=0, description="Event streams open at one time.")
    metrics_models: int = Field(
        100, ge=0, description="Models of a tenant in /metrics/models, by name."
    )
    webhook_networks: Annotated[str, AfterValidator(_networks)] | None = Field(
        None,
        description="Networks where receivers of alarms may be, in addition to the public internet.",
    )
    allowed_origins: Annotated[tuple[str, ...] | None, NoDecode] = Field(
        None, description="Origins of pages that may read and embed responses, separated by commas."
    )
    log_requests: bool = Field(True, description="Log one line per request to standard error.")

    def part_of_process(self) -> "Settings":
        """Return the settings of one process: an equal part of each bound of all processes together.

        Each part of the body memory has room for one largest body, sent and decompressed: no body is rejected for ever.
        """
        n = self.processes
        least = min(self.max_bytes_in_hand, self.max_body_bytes + self.max_decoded_bytes)
        parts = {
            "max_bytes_in_hand": max(self.max_bytes_in_hand // n, least),
            "max_streams": -(-self.max_streams // n),
        }
        return self.model_copy(update=parts)

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
