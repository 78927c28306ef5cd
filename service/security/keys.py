"""Who is calling: keys, tenants and scopes.

A keys document is `{"keys": [{"sha256": "...", "name": "...", "tenant": "...", "scopes": [...]}]}`.
Only the SHA-256 of a key is kept: keys are 256 random bits, so a slow hash would protect nothing
more. A key is looked for by comparing with every hash in constant time.

Scopes: `ingest` sends batches, `read` reads every result, `maps:read` reads temperature and
calibration maps only (for the process that applies them), `admin` changes models.
"""

import hashlib
import hmac
import ipaddress
import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibrant_server.service.http.errors import (
    KeyRequired,
    KeysNotConfigured,
    KeyUnknown,
    ScopeMissing,
)
from calibrant_server.service.http.headers import only
from calibrant_server.service.reads.queries import refuse_unread
from calibrant_server.service.settings import Settings

Scope = Literal["ingest", "read", "maps:read", "admin"]
SCOPES: tuple[Scope, ...] = ("ingest", "read", "maps:read", "admin")
DEFAULT_TENANT = "default"


class KeysUnreadable(ValueError):
    """The keys document cannot be used."""


class Key(BaseModel):
    """One key, known by its hash."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    name: str = ""
    tenant: str = Field(DEFAULT_TENANT, pattern=r"^[A-Za-z0-9._:@-]{1,128}$")
    scopes: tuple[Scope, ...] = SCOPES


class KeysDocument(BaseModel):
    """Content of the keys file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: tuple[Key, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Caller:
    """Whose models a request may see, and what it may do with them."""

    tenant: str
    scopes: frozenset[str]
    name: str = ""


OPEN_CALLER = Caller(DEFAULT_TENANT, frozenset(SCOPES))


class Keyring:
    """The keys of this service; without keys it is open, on loopback only."""

    def __init__(self, keys: tuple[Key, ...] = ()) -> None:
        self.keys = keys

    @property
    def is_open(self) -> bool:
        """Whether the service runs without keys."""
        return not self.keys

    def caller(self, key: str) -> Caller:
        """Return the caller with `key`."""
        digest = hashlib.sha256(key.encode()).hexdigest()
        held = [each for each in self.keys if hmac.compare_digest(each.sha256, digest)]
        if not held:
            raise KeyUnknown()
        return Caller(held[0].tenant, frozenset(held[0].scopes), held[0].name)


def load_keyring(settings: Settings) -> Keyring:
    """Read the configured keys; make a first one where that is asked for."""
    if settings.keys:
        return Keyring(_parsed(settings.keys.encode(), "CALIBRANT_KEYS"))
    if settings.keys_file is None:
        return Keyring()
    try:
        if settings.create_key and not settings.keys_file.exists():
            create_first_key(settings.keys_file)
        return Keyring(_parsed(settings.keys_file.read_bytes(), str(settings.keys_file)))
    except OSError as error:
        reason = f"{(error.strerror or str(error)).lower()}: {error.filename or settings.keys_file}"
        raise KeysUnreadable(f"the keys file cannot be read or made: {reason}") from error


def _parsed(document: bytes, source: str) -> tuple[Key, ...]:
    try:
        return KeysDocument.model_validate_json(document).keys
    except ValidationError as error:
        # Without the values: whoever mistook the form may have put a key there.
        first = error.errors(include_input=False)[0]
        place = "".join(f"/{part}" for part in first["loc"])
        raise KeysUnreadable(
            f"{source} is not a keys document: {place} {first['msg']}".replace(":  ", ": ")
        ) from None


def create_first_key(path: Path) -> None:
    """Write a keys file with one new key that carries every scope, and print the key once."""
    key = "ck_" + secrets.token_urlsafe(32)
    entry = {
        "sha256": hashlib.sha256(key.encode()).hexdigest(),
        "name": "first",
        "tenant": DEFAULT_TENANT,
        "scopes": list(SCOPES),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(orjson.dumps({"keys": [entry]}, option=orjson.OPT_INDENT_2) + b"\n")
    print(f"Calibrant made its first key. It is shown only now:\n\n    {key}\n", file=sys.stderr)


def is_loopback(host: str) -> bool:
    """Return whether an address or name means this machine only."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def caller_of(request: Request) -> Caller:
    """Return the caller of this request, or reject it."""
    keyring: Keyring = request.app.state.keyring
    if keyring.is_open:
        _only_from_this_machine(request)
        return OPEN_CALLER
    scheme, _, key = (only(request, "authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise KeyRequired()
    return keyring.caller(key.strip())


def _only_from_this_machine(request: Request) -> None:
    """Reject other machines, and pages of other sites that a local browser may run.

    A page can point a name of its own at 127.0.0.1; such a name has a dot, and a browser says in
    Sec-Fetch-Site that the request crosses sites.
    """
    if request.client is not None and not is_loopback(request.client.host):
        raise KeysNotConfigured()
    name = request.url.hostname or ""
    if "." in name and not is_loopback(name):
        raise KeysNotConfigured(
            f"Received host name {name}; without keys only loopback names are accepted. Configure keys."
        )
    if request.headers.get("sec-fetch-site") == "cross-site":
        raise KeysNotConfigured(
            "Received a request from a page of another site; without keys it is rejected. Configure keys."
        )


def needs(*scopes: Scope) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency that lets a caller pass who carries one of `scopes`."""

    async def authorised(request: Request) -> Caller:
        caller = caller_of(request)
        if caller.scopes.isdisjoint(scopes):
            raise ScopeMissing(
                f"Received a key without the scope; expected {' or '.join(scopes)}. Use another key."
            )
        if request.scope["query_string"]:
            refuse_unread(request)  # behind the key, before everything else that an operation reads
        return caller

    authorised.scopes = scopes  # type: ignore[attr-defined]  # for the document
    return authorised
