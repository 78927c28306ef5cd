"""Keys: who may do what, whose models are whose, and running without keys."""

import hashlib
import json

import httpx
import pytest

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.security.key_file import KeysUnreadable, load_keyring
from calibrant_server.service.security.keys import is_loopback
from calibrant_server.service.settings import Settings
from tests.service.conftest import PREDICTIONS, client_of, problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits/predictions"


def entry(key: str, *scopes: str, tenant: str = "default") -> dict:
    digest = hashlib.sha256(key.encode()).hexdigest()
    return {"sha256": digest, "tenant": tenant, "scopes": list(scopes)}


@pytest.fixture
def keyed(tmp_path, inbox, registry):
    entries = [
        entry("all", "ingest", "read", "maps:read", "admin"),
        entry("sender", "ingest"),
        entry("reader", "read"),
        entry("mapper", "maps:read"),
        entry("other", "ingest", "read", "admin", tenant="other"),
    ]
    settings = Settings(data_dir=tmp_path, keys=json.dumps({"keys": entries}), log_requests=False)
    return create_app(settings, Connection(inbox, registry))


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_a_key_is_required_and_must_be_known(keyed):
    async with client_of(keyed) as client:
        missing = await client.get("/v1/models")
        problem(missing, 401, "key-required")
        assert missing.headers["www-authenticate"].startswith("Bearer")
        basic = await client.get("/v1/models", headers={"Authorization": "Basic YTpi"})
        problem(basic, 401, "key-required")
        unknown = await client.get("/v1/models", headers=bearer("nope"))
        problem(unknown, 401, "key-unknown")
        assert "invalid_token" in unknown.headers["www-authenticate"]


async def test_another_tenants_model_is_unknown(keyed):
    async with client_of(keyed) as client:
        await client.post(URL, json={**PREDICTIONS, "batch_id": "b"}, headers=bearer("all"))
        for url in ("", "/metrics", "/batches/b", "/temperature"):
            answer = await client.get(f"/v1/models/digits{url}", headers=bearer("other"))
            detail = problem(answer, 404, "model-unknown")["detail"]
            assert detail == "There is no model 'digits' among the models of your key."
        listed = await client.get("/v1/models", headers=bearer("other"))
        assert listed.json() == {"models": [], "next": None}


async def test_no_key_is_needed_to_see_health_and_problems(keyed):
    async with client_of(keyed) as client:
        for url in ("/livez", "/readyz", "/version", "/openapi.json", "/metrics", "/v1/problems"):
            assert (await client.get(url)).status_code == 200


def from_address(app, address: str, host: str = "localhost") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, client=(address, 5000))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}")


async def test_without_keys_only_this_machine_is_answered(app):
    for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "127.8.8.8"):
        async with from_address(app, address) as client:
            assert (await client.get("/v1/models")).status_code == 200
    for address in ("10.0.0.7", "192.168.1.1", "2001:db8::1", "::ffff:10.0.0.7"):
        async with from_address(app, address) as client:
            problem(await client.get("/v1/models"), 403, "keys-not-configured")
            assert (await client.get("/livez")).status_code == 200


async def test_without_keys_pages_of_other_sites_are_rejected(app):
    async with from_address(app, "127.0.0.1", "rebound.example.org") as client:
        problem(await client.get("/v1/models"), 403, "keys-not-configured")
    async with from_address(app, "127.0.0.1") as client:
        answer = await client.get("/v1/models", headers={"Sec-Fetch-Site": "cross-site"})
        problem(answer, 403, "keys-not-configured")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "api.localhost"])
def test_loopback_hosts(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.evil.org"]
)
def test_other_hosts(host):
    assert not is_loopback(host)


async def test_the_first_key_is_made_once_and_works(tmp_path, capsys, inbox, registry):
    path = tmp_path / "secrets" / "keys.json"
    settings = Settings(keys_file=path, create_key=True, log_requests=False)
    app = create_app(settings, Connection(inbox, registry))
    [key] = [line.strip() for line in capsys.readouterr().err.splitlines() if "ck_" in line]
    assert key not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    async with client_of(app, headers=bearer(key)) as client:
        assert (await client.get("/v1/models")).status_code == 200
    load_keyring(settings)
    assert "ck_" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "document",
    [
        "{}",
        "[]",
        "x",
        '{"keys": []}',
        '{"keys": [{"sha256": "abc"}]}',
        '{"keys": [{"sha256": "%s", "scopes": ["root"]}]}' % ("0" * 64),
    ],
)
def test_keys_that_cannot_be_read_stop_the_start(document):
    with pytest.raises(KeysUnreadable):
        load_keyring(Settings(keys=document))


def test_a_missing_keys_file_stops_the_start(tmp_path):
    with pytest.raises(KeysUnreadable):
        load_keyring(Settings(keys_file=tmp_path / "none.json"))


async def test_where_alarms_are_sent_is_shown_to_those_who_may_change_it(keyed):
    """The path of a receiver's URL is often all that it takes to write to it."""
    hook = {
        "url": "https://hooks.example.org:8443/services/T0/B0/key?token=t",
        "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    }
    path = "/v1/models/m"
    async with client_of(keyed) as client:
        await client.put(
            path, headers=bearer("all"), json={"task": "binary", "alarm": {"webhooks": [hook]}}
        )
        complete, reduced = [
            await client.get(path, headers=bearer(key)) for key in ("all", "reader")
        ]
        assert complete.json()["alarm"]["webhooks"] == [{"url": hook["url"], "secret": "whsec_…"}]
        by_host = [{"url": "https://hooks.example.org:8443/…", "secret": "whsec_…"}]
        assert reduced.json()["alarm"]["webhooks"] == by_host
        listed = await client.get("/v1/models", headers=bearer("reader"))
        assert listed.json()["models"][0]["alarm"]["webhooks"] == by_host
        assert complete.headers["etag"] != reduced.headers["etag"]
        for key, tag, status in (
            ("reader", complete, 200),
            ("reader", reduced, 304),
            ("all", reduced, 200),
            ("all", complete, 304),
        ):
            asked = bearer(key) | {"If-None-Match": tag.headers["etag"]}
            assert (await client.get(path, headers=asked)).status_code == status
