"""Tokens of an OpenID Connect issuer: what is accepted, what is rejected, and an issuer that is away."""

import asyncio
import hashlib
import json
import sys
import time

import pytest
from joserfc.jwk import OctKey, RSAKey

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.security import oidc
from calibrant_server.service.security.oidc import issuer_keys, oidc_sign_in
from calibrant_server.service.security.roles import RoleSettingsError
from calibrant_server.service.settings import Settings
from tests.service.conftest import client_of, problem
from tests.service.issuer import AUDIENCE, Issuer

pytestmark = pytest.mark.anyio
ROLES = json.dumps({"quality": {"scopes": ["read", "admin"]}, "readers": {"scopes": ["read"]}})
KEYS = {"keys": [{"sha256": hashlib.sha256(b"robot").hexdigest(), "name": "robot", "scopes": ["read"]}]}  # fmt: skip
MODEL, SETTINGS = "/v1/models/digits", {"task": "binary"}


@pytest.fixture(scope="module")
def issuer():
    with Issuer() as found:
        yield found


@pytest.fixture
def settings(tmp_path, issuer) -> Settings:
    return Settings(
        data_dir=tmp_path, log_requests=False, keys=json.dumps(KEYS), roles=ROLES,
        oidc_issuer=issuer.url, oidc_audience=AUDIENCE,
    )  # fmt: skip


@pytest.fixture
async def client(app):
    await app.state.oidc.read_keys()
    async with client_of(app) as found:
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_token_gives_the_scopes_of_its_roles(client, issuer):
    ann = bearer(issuer.token())
    assert (await client.put(MODEL, json=SETTINGS, headers=ann)).status_code == 201
    reader = bearer(issuer.token(sub="8", preferred_username="Bo", groups="readers, staff"))
    assert (await client.get(MODEL, headers=reader)).status_code == 200
    problem(await client.put(MODEL, json=SETTINGS, headers=reader), 403, "scope-missing")
    nobody = bearer(issuer.token(groups=None))
    problem(await client.get(MODEL, headers=nobody), 403, "scope-missing")
    entries = (await client.get("/v1/audit", headers=ann)).json()["entries"]
    assert (entries[0]["key"]["name"], entries[0]["key"]["role"]) == ("Ann Lee", "quality")


async def test_keys_are_accepted_as_before(client):
    assert (await client.get("/v1/models", headers=bearer("robot"))).status_code == 200


def changed(token: str) -> str:
    """Return the token with another last character of its content."""
    head, content, signature = token.split(".")
    return f"{head}.{content[:-1]}{'A' if content[-1] != 'A' else 'B'}.{signature}"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda issuer: issuer.token(exp=int(time.time()) - 120), "expired_token"),
        (lambda issuer: issuer.token(nbf=int(time.time()) + 600), "not valid"),
        (lambda issuer: issuer.token(aud="another"), "invalid_claim"),
        (lambda issuer: issuer.token(aud=None), "missing_claim"),
        (lambda issuer: issuer.token(iss="https://evil.example"), "invalid_claim"),
        (lambda issuer: issuer.token(exp=None), "missing_claim"),
        (lambda issuer: issuer.token(sub=None), "missing_claim"),
        (lambda issuer: issuer.token(preferred_username="a\nb"), "name of a person"),
        (lambda issuer: changed(issuer.token()), "not valid"),
        (lambda issuer: "a.b.c", "not valid"),
        (
            lambda issuer: issuer.token(
                key=RSAKey.generate_key(2048, {"kid": issuer.keys[-1].kid})
            ),
            "not valid",
        ),
        (lambda issuer: forged(issuer), "not valid"),
        (lambda issuer: unsigned(issuer), "not valid"),
    ],
)
async def test_other_tokens_are_rejected(client, issuer, make, words):
    found = problem(
        await client.get("/v1/models", headers=bearer(make(issuer))), 401, "key-unknown"
    )
    assert words in found["detail"]


def forged(issuer: Issuer) -> str:
    """Return a token signed with the issuer's public key as a shared secret."""
    public = json.dumps(issuer.keys[-1].as_dict(private=False))
    secret = OctKey.import_key(public, {"kid": issuer.keys[-1].kid})
    return issuer.token(key=secret, alg="HS256")


def unsigned(issuer: Issuer) -> str:
    """Return a token whose head says that it has no signature."""
    _, content, _ = issuer.token().split(".")
    return f"eyJhbGciOiJub25lIn0.{content}."


async def test_a_new_key_of_the_issuer_is_read(app, issuer, monkeypatch):
    monkeypatch.setattr(oidc, "MIN_REFRESH_S", 0.05)
    async with issuer_keys(app.state.oidc), client_of(app) as client:
        await app.state.oidc.read_keys()
        before = issuer.token()
        assert (await client.get("/v1/models", headers=bearer(before))).status_code == 200
        issuer.rotate()
        after = bearer(issuer.token())
        for _ in range(600):
            response = await client.get("/v1/models", headers=after)
            if response.status_code == 200:
                break
            await asyncio.sleep(0.05)
        assert response.status_code == 200
        problem(await client.get("/v1/models", headers=bearer(before)), 401, "key-unknown")


async def test_an_issuer_that_is_away_is_no_verdict(app, issuer):
    sign_in = app.state.oidc
    async with client_of(app) as client:
        token = bearer(issuer.token())
        issuer.is_away = True
        try:
            await sign_in.read_keys()
            found = await client.get("/v1/models", headers=token)
            problem(found, 503, "issuer-unavailable")
            assert int(found.headers["retry-after"]) >= 1
            assert (await client.get("/v1/models", headers=bearer("robot"))).status_code == 200
        finally:
            issuer.is_away = False
        await sign_in.read_keys()
        assert (await client.get("/v1/models", headers=token)).status_code == 200
        issuer.is_away = True
        try:
            await sign_in.read_keys()  # What was read before stays in use.
            assert (await client.get("/v1/models", headers=bearer(issuer.token(sub="9")))).status_code == 200  # fmt: skip
        finally:
            issuer.is_away = False


async def test_the_description_must_be_of_the_issuer(app, issuer):
    issuer.claimed = "https://another.example"
    try:
        await app.state.oidc.read_keys()
        async with client_of(app) as client:
            problem(await client.get("/v1/models", headers=bearer(issuer.token())), 503, "issuer-unavailable")  # fmt: skip
    finally:
        issuer.claimed = issuer.url


def test_addresses_without_https_are_not_fetched():
    with pytest.raises(ValueError, match="not on https"):
        oidc.fetched("http://issuer.example/keys")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"oidc_issuer": "https://i.example", "roles": ROLES}, "CALIBRANT_OIDC_AUDIENCE"),
        ({"oidc_issuer": "http://i.example", "oidc_audience": "c", "roles": ROLES}, "https"),
        ({"oidc_issuer": "https://i.example", "oidc_audience": "c"}, "CALIBRANT_ROLES"),
    ],
)
def test_settings_that_cannot_be_used(given, words):
    with pytest.raises(RoleSettingsError, match=words):
        oidc_sign_in(Settings(**given))


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "joserfc", None)
    given = {"oidc_issuer": "https://i.example", "oidc_audience": "c", "roles": ROLES}
    with pytest.raises(RoleSettingsError, match=r"calibrant\[server,oidc\]"):
        oidc_sign_in(Settings(**given))


def test_a_service_without_an_issuer_takes_keys_only(tmp_path, inbox, registry):
    settings = Settings(data_dir=tmp_path, keys=json.dumps(KEYS), log_requests=False)
    assert create_app(settings, Connection(inbox, registry)).state.oidc is None
