"""Who is calling: keys, tenants, scopes and models.

Only the SHA-256 of a key is stored: keys are 256 random bits, so a slow hash would protect nothing more. Hashes are
looked up under a secret of the process, so that the time of a look-up tells nothing about a stored hash.

Scopes: `ingest` sends batches, `read` reads every result, `maps:read` reads temperature and calibration maps only (for the
process that applies them), `admin` changes models and manages keys.
"""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated, Literal

from fastapi import Request
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from calibrant_server.service.http.parameters import only
from calibrant_server.service.http.problems import (
    KeyLimitedToModels,
    KeyRequired,
    KeysNotConfigured,
    KeyUnknown,
    ModelUnknown,
    ScopeMissing,
)
from calibrant_server.service.http.threads import tenant_of_request
from calibrant_server.service.reads.queries import reject_unread
from calibrant_server.service.security.audit import audit_of
from calibrant_server.service.security.rates import Rates

Scope = Literal["ingest", "read", "maps:read", "admin"]
SCOPES: tuple[Scope, ...] = ("ingest", "read", "maps:read", "admin")
DEFAULT_TENANT = "default"
ID_DIGITS = 16
# In the scope of a request that a page makes inside this process: the caller whom its session stands for. No client can set it.
SIGNED_IN = "calibrant.signed_in"
# Begins the identity of a person; that of a key begins with `k_`.
PERSON_PREFIX = "u_"
MAX_COMPARED = 1000  # names
MODEL_PATTERN = r"^(?:[A-Za-z0-9._:@-]{1,128}|[A-Za-z0-9._:@-]{0,127}\*)$"


class ApiKey(BaseModel):
    """One key, known by its hash."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    name: str = Field("", max_length=200)
    tenant: str = Field(DEFAULT_TENANT, pattern=r"^[A-Za-z0-9._:@-]{1,128}$")
    scopes: tuple[Scope, ...] = SCOPES
    models: tuple[Annotated[str, Field(pattern=MODEL_PATTERN)], ...] | None = None
    expires_at: AwareDatetime | None = None
    created_at: AwareDatetime | None = None
    created_by: str | None = None
    role: str = Field("", max_length=200)

    @property
    def id(self) -> str:
        """Public name of the key: it reveals nothing of 256 random bits."""
        return f"k_{self.sha256[:ID_DIGITS]}"

    def has_expired(self) -> bool:
        """Return whether the key's time is over."""
        return self.expires_at is not None and self.expires_at <= datetime.now(UTC)


@dataclass(frozen=True)
class Caller:
    """Whose models a request may see, and what it may do with them.

    Attributes
    ----------
    name, role : of the person, or of the key
    key_id : identity: of the key, or of the person whom a proxy names
    expires_at : end of the key
    """

    tenant: str
    scopes: frozenset[str]
    name: str = ""
    key_id: str = ""
    models: tuple[str, ...] | None = None
    role: str = ""
    expires_at: datetime | None = None

    @property
    def is_person(self) -> bool:
        """Whether a proxy names the caller."""
        return self.key_id.startswith(PERSON_PREFIX)

    def may_use(self, model: str) -> bool:
        """Return whether the key covers a model; a pattern ends in `*`."""
        return self.models is None or any(covers(pattern, model) for pattern in self.models)

    def unknown(self, model: str, names: Sequence[str] = ()) -> ModelUnknown:
        """Return the problem of a model that the caller does not have; `names` are those of its models."""
        where = " among the models of your key" if self.key_id else ""
        near = get_close_matches(model, names[:MAX_COMPARED], 1)
        hint = f" The nearest name is {near[0]}." if near else ""
        return ModelUnknown(f"There is no model {model!r}{where}.{hint}")


def covers(pattern: str, model: str) -> bool:
    """Return whether a pattern covers a model, or everything that another pattern covers."""
    if pattern.endswith("*"):
        return model.startswith(pattern[:-1])
    return model == pattern


OPEN_CALLER = Caller(DEFAULT_TENANT, frozenset(SCOPES))


class Keyring:
    """The keys of this service; without configured keys it is open, on loopback only.

    Parameters
    ----------
    configured : keys of the keys file or of the variable
    """

    def __init__(self, configured: Iterable[ApiKey] = ()) -> None:
        self._secret = secrets.token_bytes(32)
        self.configured: tuple[ApiKey, ...] = tuple(configured)
        self.created: tuple[ApiKey, ...] = ()
        self._callers: dict[bytes, tuple[ApiKey, Caller]] = {}
        self._index()

    @property
    def is_open(self) -> bool:
        """Whether the service runs without keys."""
        return not self.configured

    def replace(
        self, configured: Iterable[ApiKey] | None = None, created: Iterable[ApiKey] | None = None
    ) -> None:
        """Use other configured or created keys from now on."""
        self.configured = self.configured if configured is None else tuple(configured)
        self.created = self.created if created is None else tuple(created)
        self._index()

    def caller(self, key: str) -> Caller:
        """Return the caller with `key`."""
        return self.caller_with_digest(hashlib.sha256(key.encode()).hexdigest())

    def caller_with_digest(self, digest: str) -> Caller:
        """Return the caller whose key has this SHA-256."""
        found = self._callers.get(self._place(digest))
        if found is None or not hmac.compare_digest(found[0].sha256, digest):
            raise KeyUnknown()
        if found[0].has_expired():
            raise KeyUnknown("Received a key that has expired. Send another key.")
        return found[1]

    def descendants(self, key_id: str) -> list[ApiKey]:
        """Return the keys that a key created, those that these created, and so on; the last ones first."""
        mine = [each for each in self.created if each.created_by == key_id]
        return [found for each in mine for found in (*self.descendants(each.id), each)]

    def n_created(self, tenant: str) -> int:
        """Return the number of keys of a tenant that were created through the API."""
        return sum(each.tenant == tenant for each in self.created)

    @property
    def has_tenants(self) -> bool:
        """Whether there are keys of several tenants."""
        return self._n_tenants > 1

    def share_of_tenant(self, share: float) -> float:
        """Return the part of a shared bound that a tenant may use: all of it if there is no other tenant."""
        return share if self.has_tenants else 1.0

    def _place(self, digest: str) -> bytes:
        return hashlib.blake2b(digest.encode(), key=self._secret, digest_size=16).digest()

    def _index(self) -> None:
        self._n_tenants = len({each.tenant for each in (*self.created, *self.configured)})
        self._callers = {
            self._place(each.sha256): (each, _caller(each))
            for each in (*self.created, *self.configured)
        }


def _caller(key: ApiKey) -> Caller:
    scopes = frozenset(key.scopes)
    return Caller(key.tenant, scopes, key.name, key.id, key.models, key.role, key.expires_at)


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
    signed_in: Caller | None = request.scope.get(SIGNED_IN)
    caller = signed_in or named_by_proxy(request) or _bearer(request, keyring)
    spend_request(request, caller)
    return caller


def spend_request(request: Request, caller: Caller) -> None:
    """Count a request against the rates of its tenant and key, once: a conditional GET asks for its caller twice.

    Raises
    ------
    RateExceeded
    """
    if "rate_limit" not in request.scope:
        rates: Rates = request.app.state.rates
        request.scope["rate_policy"] = rates.policy()
        request.scope["rate_limit"] = rates.spend(caller.tenant, caller.key_id)


def named_by_proxy(request: Request) -> Caller | None:
    """Return the person whom a trusted proxy names; a request with a key is that key's."""
    proxy = getattr(request.app.state, "proxy", None)
    if proxy is None or "authorization" in request.headers:
        return None
    found: Caller | None = proxy.caller(request)
    return found


def _bearer(request: Request, keyring: Keyring) -> Caller:
    """Return the caller of the key in the header."""
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
    allowed: Sequence[str] = request.app.state.settings.allowed_origins or ()
    is_allowed = request.headers.get("origin") in allowed
    if request.headers.get("sec-fetch-site") == "cross-site" and not is_allowed:
        raise KeysNotConfigured(
            "Received a request from a page of another site; without keys it is rejected. Configure keys."
        )


def needs(*scopes: Scope, every_model: bool = False) -> Callable[[Request], Awaitable[Caller]]:
    """Return a dependency that lets a caller pass who carries one of `scopes`.

    A request that changes something and needs `admin` is recorded in the audit log.

    Parameters
    ----------
    every_model : reject keys that are limited to some models
    """

    async def authorised(request: Request) -> Caller:
        caller = caller_of(request)
        request.scope["caller"] = caller
        keyring: Keyring = request.app.state.keyring
        if not keyring.is_open:
            request.app.state.served.enter(request.scope, caller.tenant)
            tenant_of_request.set(caller.tenant if keyring.has_tenants else None)
        if caller.scopes.isdisjoint(scopes):
            raise ScopeMissing(
                f"Received a key without the scope; expected {' or '.join(scopes)}. Use another key."
            )
        _check_models(request, caller, every_model)
        if request.scope["query_string"]:
            reject_unread(request)  # behind the key, before everything else that an operation reads
        if scopes == ("admin",) and request.method != "GET":
            audit_of(request).is_due = True
        return caller

    authorised.scopes = scopes  # type: ignore[attr-defined]  # for the document
    return authorised


def _check_models(request: Request, caller: Caller, every_model: bool) -> None:
    """Reject a key that is limited to other models than the one in the path."""
    if caller.models is None:
        return
    if every_model:
        raise KeyLimitedToModels()
    model = request.path_params.get("model")
    if model is not None and not caller.may_use(model):
        raise caller.unknown(model)
