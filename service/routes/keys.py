"""Keys of callers: created with scopes, models and an expiry, listed, revoked."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Request
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from calibrant.core.errors import Violation
from calibrant_server.service.http.problems import (
    InvalidInput,
    KeyConfigured,
    KeyIdUnknown,
    KeysNotConfigured,
    QuotaFull,
)
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.operations import Access, Created, Operations, Page
from calibrant_server.service.security.audit import audit_of
from calibrant_server.service.security.key_file import hash_of, new_secret
from calibrant_server.service.security.keys import (
    MODEL_PATTERN,
    SCOPES,
    ApiKey,
    Caller,
    Keyring,
    Scope,
    needs,
)
from calibrant_server.workers.store.access_keys import MAX_KEYS, TooManyKeys

router = Operations("keys")

FULL_RETRY_S = 60
KeyId = Annotated[str, Path(description="Key id", pattern=r"^k_[0-9a-f]{16}$")]
Models = Annotated[str, StringConstraints(pattern=MODEL_PATTERN)]


class NewKey(BaseModel):
    """A key to create."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(
        min_length=1, max_length=200, description="Name in logs and in the audit log."
    )
    scopes: list[Scope] = Field(min_length=1, max_length=len(SCOPES))
    models: list[Models] | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Ids of the models that the key covers; `*` at the end covers every id that begins so. Default: all.",
    )
    role: str = Field(
        "", max_length=200, description="Role of the person who has the key; recorded with changes."
    )
    expires_at: AwareDatetime | None = Field(
        None,
        description="Time from which the key is rejected, at most that of your key. Default: that of your key.",
    )


class RevocationQuery(BaseModel):
    """Which keys."""

    model_config = ConfigDict(extra="forbid")

    descendants: bool = Field(
        False,
        description="Also revoke the keys that this key created, those that these created, and so on.",
    )


class KeyResponse(BaseModel):
    """A key without its secret."""

    id: str
    name: str
    role: str = ""
    scopes: list[Scope]
    models: list[str] | None = Field(description="Null: all models of the tenant.")
    expires_at: str | None
    created_at: str | None = Field(description="Null for a configured key.")
    created_by: str | None = Field(description="Id of the key that created this one.")
    source: Literal["configured", "created"] = Field(
        description="`configured`: in the keys file or variable; `created`: through this API."
    )


class CreatedKeyResponse(KeyResponse):
    """A new key with its secret."""

    secret: str = Field(description="The key itself. It is returned only here and not stored.")


async def _keyring(request: Request) -> Keyring:
    keyring: Keyring = request.app.state.keyring
    if keyring.is_open:
        raise KeysNotConfigured(
            "The service runs without keys, so it manages none. Configure a first key: "
            "`calibrant keys create` writes it to the keys file."
        )
    return keyring


KeyAdmin = Annotated[Caller, Depends(needs("admin", every_model=True))]


KEYS = Collection(router, "/v1/keys", "keys", KeyResponse, KeyAdmin, "A page of keys")


@KEYS.lists()
async def list_keys(access: Access) -> Page:
    """List the keys of your tenant, sorted by id."""
    keyring = await _keyring(access.request)
    await access.request.app.state.key_refresh.read_store()
    found = [(each, "configured") for each in keyring.configured]
    found += [(each, "created") for each in keyring.created]
    mine = [each for each in found if each[0].tenant == access.caller.tenant]
    return KEYS.paged(access, mine, lambda each: [each[0].id, each[1]], lambda each: _shown(*each))


@KEYS.creates(
    NewKey,
    "The key",
    KeyAdmin,
    {201: success(CreatedKeyResponse, "The key, with its secret", Location="The key.")},
)
async def create_key(access: Access) -> Created:
    """Create a key of your tenant, with at most your own scopes and until your own expiry; the secret is returned once."""
    await _keyring(access.request)
    wanted, caller, request = access.body, access.caller, access.request
    now = datetime.now(UTC)
    _reject_more_scopes(wanted, caller)
    expires_at = _expiry(wanted, caller, now)
    secret = new_secret()
    key = ApiKey(
        sha256=hash_of(secret),
        name=wanted.name,
        tenant=caller.tenant,
        scopes=tuple(each for each in SCOPES if each in wanted.scopes),
        models=None if wanted.models is None else tuple(dict.fromkeys(wanted.models)),
        expires_at=expires_at,
        created_at=now,
        created_by=caller.key_id,
        role=wanted.role,
    )
    try:
        stored = key.model_dump(mode="json")
        await access.connection.inbox.access_keys.add(caller.tenant, key.id, stored)
        await request.app.state.key_refresh.read_store()
    except TooManyKeys as error:
        detail = f"Your tenant has {MAX_KEYS} keys, the maximum. Revoke one first."
        raise QuotaFull(detail, retry_after_s=FULL_RETRY_S) from error
    shown = _shown(key, "created")
    audit_of(request).details = shown
    headers = {"Cache-Control": "no-store"}
    return Created({**shown, "secret": secret}, f"/v1/keys/{key.id}", headers=headers)


@KEYS.deletes(("key", KeyId), "The keys are revoked", KeyAdmin, 409, query=RevocationQuery)
async def revoke_key(access: Access) -> None:
    """Revoke a key, and the keys that it created if requested: every process rejects them within 5 s."""
    request, key, tenant = access.request, access.id, access.caller.tenant
    keyring = await _keyring(request)
    if any(each.id == key and each.tenant == tenant for each in keyring.configured):
        raise KeyConfigured()
    await request.app.state.key_refresh.read_store()
    if not any(each.id == key and each.tenant == tenant for each in keyring.created):
        raise KeyIdUnknown()
    below = keyring.descendants(key) if access.query.descendants else []
    # The key itself first: it creates no others meanwhile.
    revoked = [key, *(each.id for each in below)]
    for each in revoked:
        await access.connection.inbox.access_keys.revoke(tenant, each)
    await request.app.state.key_refresh.read_store()
    audit_of(request).details = {"revoked": revoked}


def _reject_more_scopes(wanted: NewKey, caller: Caller) -> None:
    """Reject scopes that the caller lacks: else every key with the scope `admin` could have all of them."""
    errors = [
        Violation(f"/scopes/{i}", "scope_of_key", f"Your key lacks the scope {scope}.")
        for i, scope in enumerate(wanted.scopes)
        if scope not in caller.scopes
    ]
    if errors:
        own = ", ".join(each for each in SCOPES if each in caller.scopes)
        raise InvalidInput(
            f"Received scopes that your key lacks; expected some of {own}. Use a key that has them.",
            errors=errors,
        )


def _expiry(wanted: NewKey, caller: Caller, now: datetime) -> datetime | None:
    """Return when the key expires: as requested, not after the key that creates it, and by default with it."""
    asked, own = wanted.expires_at, caller.expires_at
    if asked is None:
        return own
    if asked <= now:
        detail = f"Received {asked.isoformat()}; expected a time after {now.isoformat()}."
        raise InvalidInput(detail, errors=[Violation("/expires_at", "future", detail)])
    if own is not None and asked > own:
        detail = f"Received {asked.isoformat()}; expected at most {own.isoformat()}, when your key expires."
        raise InvalidInput(detail, errors=[Violation("/expires_at", "expiry_of_key", detail)])
    return asked


def _shown(key: ApiKey, source: str) -> dict[str, Any]:
    fields = key.model_dump(mode="json", include=set(KeyResponse.model_fields) - {"id", "source"})
    return {"id": key.id, **fields, "source": source}
