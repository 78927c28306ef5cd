"""The configured keys: the keys file, or the same document in a variable; and changes of keys while the service runs.

A keys document is `{"keys": [{"sha256": "...", "name": "...", "tenant": "...", "scopes": [...]}]}`; `models` and
`expires_at` are optional. The file and the keys created through the API are looked at every two seconds, which costs one `stat` and one read
of the store. What cannot be read changes nothing: the keys that were read last stay active, and the log names the reason once.
"""

import asyncio
import fcntl
import hashlib
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from logging import getLogger
from pathlib import Path
from typing import Any, Protocol

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis.exceptions import RedisError

from calibrant_server.service.security.keys import DEFAULT_TENANT, SCOPES, ApiKey, Keyring
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.inbox_errors import StoreUnavailableError

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


REFRESH_S = 2.0

log = getLogger("service.keys")


class CreatedKeys(Protocol):
    """The keys in the store."""

    async def changes(self) -> int:
        """Return the number of changes so far."""

    async def all(self) -> tuple[int, Mapping[str, Mapping[str, object]]]:
        """Return the number of changes so far, and every key by its id."""


class KeyRefresh:
    """Keeps the keys of one process up to date."""

    def __init__(self, keyring: Keyring, path: Path | None, store: CreatedKeys) -> None:
        self._keyring, self._path, self._store = keyring, path, store
        self._file = None if path is None else _signature(path)
        self._n_changes: int | None = None
        self._reported = ""

    async def look(self) -> None:
        """Read what has changed. An open service stays open until it is started with keys."""
        if self._keyring.is_open:
            return
        try:
            self._read_file()
            await self.read_store()
            self._reported = ""
        except (KeysUnreadable, StoreUnavailableError, RedisError) as error:
            if str(error) != self._reported:
                log.error("keys_not_refreshed error=%s", error)
            self._reported = str(error)

    def _read_file(self) -> None:
        if self._path is None or (found := _signature(self._path)) == self._file:
            return
        self._keyring.replace(configured=read_keys(self._path))
        self._file = found
        log.info("keys_file_read n_keys=%d", len(self._keyring.configured))

    async def read_store(self) -> None:
        """Read the created keys if any has changed; only new ones are validated, because a key never changes."""
        if await self._store.changes() != self._n_changes:
            n_changes, found = await self._store.all()
            known = {each.id: each for each in self._keyring.created}
            created = [known.get(key) or ApiKey.model_validate(found[key]) for key in found]
            self._keyring.replace(created=created)
            self._n_changes = n_changes

    async def forever(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.look()


@asynccontextmanager
async def refreshed(refresh: KeyRefresh) -> AsyncIterator[None]:
    """Keep keys up to date during the block."""
    await refresh.look()
    task = asyncio.create_task(refresh.forever())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _signature(path: Path) -> tuple[int, ...] | None:
    """Return what changes with the content of a file; None if it is absent."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
