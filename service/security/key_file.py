"""The configured keys: the keys file, or the same document in a variable.

A keys document is `{"keys": [{"sha256": "...", "name": "...", "tenant": "...", "scopes": [...]}]}`; `models` and
`expires_at` are optional.
"""

import fcntl
import hashlib
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibrant_server.service.security.keys import DEFAULT_TENANT, SCOPES, ApiKey, Keyring
from calibrant_server.service.settings import Settings

SECRET_PREFIX = "ck_"


class KeysUnreadable(ValueError):
    """The keys document cannot be used."""


class KeysDocument(BaseModel):
    """Content of the keys file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: tuple[ApiKey, ...] = Field(min_length=1)


def load_keyring(settings: Settings) -> Keyring:
    """Read the configured keys; create a first one if requested."""
    if settings.keys:
        return Keyring(parsed(settings.keys.encode(), "CALIBRANT_KEYS"))
    if settings.keys_file is None:
        return Keyring()
    if settings.create_key and not settings.keys_file.exists():
        create_first_key(settings.keys_file)
    return Keyring(read_keys(settings.keys_file))


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Return the keys of a file.

    Raises
    ------
    KeysUnreadable
    """
    try:
        return parsed(path.read_bytes(), str(path))
    except OSError as error:
        raise _unreadable(error, path) from error


def parsed(document: bytes, source: str) -> tuple[ApiKey, ...]:
    """Return the keys of a document; the message of an error has no value, which may be a key."""
    try:
        return KeysDocument.model_validate_json(document).keys
    except ValidationError as error:
        result = error.errors(include_input=False)[0]
        place = "".join(f"/{part}" for part in result["loc"])
        raise KeysUnreadable(
            f"{source} is not a keys document: {place} {result['msg']}".replace(":  ", ": ")
        ) from None


def new_secret() -> str:
    """Return a new key."""
    return SECRET_PREFIX + secrets.token_urlsafe(32)


def hash_of(secret: str) -> str:
    """Return what is stored of a key."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create_first_key(path: Path) -> None:
    """Write a keys file with one new key that carries every scope, and print the key once."""
    secret = add_key(path, name="first", tenant=DEFAULT_TENANT, scopes=SCOPES)
    print(f"Calibrant made its first key. It is shown only now:\n\n    {secret}\n", file=sys.stderr)


def add_key(path: Path, **members: Any) -> str:
    """Add a new key to a keys file, which is created if it is absent; return the key.

    The file is replaced in one step, so that a service that reads it meanwhile reads either content.

    Raises
    ------
    KeysUnreadable
    """
    secret = new_secret()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_name(path.name + ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            present = read_keys(path) if path.exists() else ()
            entry = ApiKey.model_validate({"sha256": hash_of(secret), **members})
            _write(path, (*present, entry))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise KeysUnreadable(f"{'/'.join(map(str, first['loc']))}: {first['msg']}") from None
    except OSError as error:
        raise _unreadable(error, path) from error
    return secret


def _write(path: Path, keys: Sequence[ApiKey]) -> None:
    entries = [each.model_dump(mode="json", exclude_none=True) for each in keys]
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(orjson.dumps({"keys": entries}, option=orjson.OPT_INDENT_2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _unreadable(error: OSError, path: Path) -> KeysUnreadable:
    reason = f"{(error.strerror or str(error)).lower()}: {error.filename or path}"
    return KeysUnreadable(f"the keys file cannot be read or made: {reason}")
