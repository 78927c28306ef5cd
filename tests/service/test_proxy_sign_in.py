"""Sign-in through a proxy's headers: only from trusted addresses, with the scopes of roles, and recorded by person and role."""

import hashlib
import json
from dataclasses import replace

import httpx
import pytest

from calibrant_server.service import main
from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.security.proxy_sign_in import PEER, proxy_sign_in
from calibrant_server.service.security.roles import RoleSettingsError
from calibrant_server.service.settings import Settings
from calibrant_server.workers.queries.ask import ResultFailedError
from tests.service.conftest import problem
from tests.service.test_alarms import episode

pytestmark = pytest.mark.anyio
ROLES = {"quality": {"scopes": ["read", "admin"]}, "readers": {"scopes": ["read"]}, "senders": {"scopes": ["ingest"]}}  # fmt: skip
KEYS = {"keys": [{"sha256": hashlib.sha256(b"robot").hexdigest(), "name": "robot", "scopes": ["ingest"]}]}  # fmt: skip
PROXY = "10.1.2.3"


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(
        data_dir=tmp_path,
        log_requests=False,
        keys=json.dumps(KEYS),
        proxy_addresses="10.1.0.0/16, ::1",
        roles=json.dumps(ROLES),
    )


def client_at(app, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, client=(address, 5000), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def named(user: str | None, *roles: str, **more: str) -> dict[str, str]:
    found = {"X-Forwarded-Groups": ", ".join(roles)} | more
    return found if user is None else found | {"X-Forwarded-User": user}


MODEL, SETTINGS = "/v1/models/digits", {"task": "binary"}


async def test_roles_give_scopes(app):
    async with client_at(app, PROXY) as client:
        made = await client.put(MODEL, json=SETTINGS, headers=named("ann", "staff", "quality"))
        assert made.status_code == 201, made.text
        assert (await client.get(MODEL, headers=named("bo", "readers"))).status_code == 200
        for roles in (("readers",), ("staff",), (), ("Quality",)):
            rejected = await client.patch(MODEL, json={}, headers=named("bo", *roles))
            problem(rejected, 403, "scope-missing")
        both = named("cy", "readers", "senders")
        rows = {"confidences": [0.2], "labels": [0]}
        assert (await client.post(f"{MODEL}/predictions", json=rows, headers=both)).status_code == 202  # fmt: skip
        assert (await client.get(MODEL, headers=both)).status_code == 200


@pytest.mark.parametrize(
    ("address", "headers"),
    [
        ("10.2.0.1", named("ann", "quality")),
        ("127.0.0.1", named("ann", "quality")),
        ("10.2.0.1", named("ann", "quality", **{"X-Forwarded-For": PROXY})),
        (PROXY, named(None, "quality")),
        (PROXY, named("  ", "quality")),
        (PROXY, named("a" * 201, "quality")),
    ],
)
async def test_others_need_a_key(app, address, headers):
    async with client_at(app, address) as client:
        problem(await client.put(MODEL, json=SETTINGS, headers=headers), 401, "key-required")


async def test_the_address_is_that_of_the_connection(app):
    """A middleware may have replaced the client's address by that of a header."""

    def as_if_forwarded(peer: str):
        async def outer(scope, receive, send):
            await app({**scope, PEER: (peer, 1)}, receive, send)

        return outer

    for peer, address, status in (("10.9.9.9", PROXY, 401), (PROXY, "192.0.2.1", 201)):
        if peer != PROXY:
            peer = "192.0.2.9"
        async with client_at(as_if_forwarded(peer), address) as client:
            found = await client.put(MODEL, json=SETTINGS, headers=named("ann", "quality"))
            assert found.status_code == status, found.text


async def test_a_key_is_that_of_the_key(app):
    async with client_at(app, PROXY) as client:
        robot = {"Authorization": "Bearer robot"}
        rejected = await client.put(MODEL, json=SETTINGS, headers=named("ann", "quality") | robot)
        problem(rejected, 403, "scope-missing")
        wrong = named("ann", "quality") | {"Authorization": "Bearer nope"}
        problem(await client.get(MODEL, headers=wrong), 401, "key-unknown")


async def test_repeated_headers_are_rejected(app):
    async with client_at(app, PROXY) as client:
        twice = [("X-Forwarded-User", "ann"), ("X-Forwarded-User", "eve"), ("X-Forwarded-Groups", "quality")]  # fmt: skip
        problem(await client.get(MODEL, headers=twice), 400, "malformed-request")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_pages_of_other_sites_cannot_use_the_session_at_the_proxy(app, site):
    async with client_at(app, PROXY) as client:
        headers = named("ann", "quality", **{"Sec-Fetch-Site": site})
        found = problem(await client.put(MODEL, json=SETTINGS, headers=headers), 401, "key-required")  # fmt: skip
        assert "another site" in found["detail"]
        link = headers | {"Sec-Fetch-Mode": "navigate"}
        assert (await client.get(MODEL, headers=link)).status_code == 404
        own = named("ann", "quality", **{"Sec-Fetch-Site": "same-origin"})
        assert (await client.put(MODEL, json=SETTINGS, headers=own)).status_code == 201


async def test_the_audit_names_person_and_role(app, inbox):
    async with client_at(app, PROXY) as client:
        assert (await client.put(MODEL, json=SETTINGS, headers=named("Ann Lee", "quality"))).status_code == 201  # fmt: skip
        entries = (await client.get("/v1/audit", headers=named("bo", "quality"))).json()["entries"]
    assert entries[0]["key"]["name"] == "Ann Lee" and entries[0]["key"]["role"] == "quality"
    assert entries[0]["key"]["id"].startswith("u_")


async def test_a_person_gives_a_reason_that_is_recorded_with_their_role(app, inbox, registry):
    async with client_at(app, PROXY) as client:
        ann = named("Ann Lee", "quality")
        alarms = {**SETTINGS, "label_horizon": "P1D"}
        assert (await client.put(MODEL, json=alarms, headers=ann)).status_code == 201
        generation = registry.configs["default", "digits"].generation
        inbox.alarms.held = [episode(generation=generation)]
        url = f"/v1/alarms/{inbox.alarms.held[0].id}/acknowledge"
        for body in ({}, {"note": " "}):
            found = problem(await client.post(url, json=body, headers=ann), 422, "invalid-input")
            assert (found["errors"][0]["pointer"], found["errors"][0]["rule"]) == ("/note", "missing")  # fmt: skip
        done = await client.post(url, json={"note": "new scanner"}, headers=ann)
        assert done.status_code == 200, done.text
        order = inbox.orders[-1][1]
        assert (order["by"], order["role"], order["note"]) == ("Ann Lee", "quality", "new scanner")


async def test_pages_open_without_a_key(app):
    async with client_at(app, PROXY) as client:
        page = await client.get("/", headers=named("ann", "quality"))
        assert page.status_code == 200, page.text
        nobody = await client.get("/", headers={"Accept": "text/html"})
        assert nobody.status_code in (302, 303) and "/sign-in" in nobody.headers["location"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"proxy_addresses": "10.0.0.1"}, "CALIBRANT_ROLES is not set"),
        ({"proxy_addresses": "proxy.local", "roles": "{}"}, "proxy.local"),
        ({"proxy_addresses": "10.0.0.1", "roles": "["}, "not JSON"),
        (
            {"proxy_addresses": "10.0.0.1", "roles": '{"a": {"scopes": ["all"]}}'},
            "a/scopes/0",
        ),
    ],
)
def test_settings_that_cannot_be_used(given, words):
    with pytest.raises(RoleSettingsError, match=words):
        proxy_sign_in(Settings(**given))


@pytest.fixture
async def guarded(settings, inbox, registry):
    """A service whose alarms take two people, and an open alarm."""
    two = settings.model_copy(update={"second_person_alarms": True})
    app = create_app(two, Connection(inbox, registry))
    async with client_at(app, PROXY) as client:
        await client.put(MODEL, json=SETTINGS, headers=ANN)
        generation = registry.configs["default", "digits"].generation
        inbox.alarms.held = [episode(generation=generation)]
        # The page shows the reason in place of each figure.
        kinds = ("metrics", "reliability", "temperature", "drift")
        inbox.failing = {kind: ResultFailedError("no worker") for kind in kinds}
        yield client


ANN, BO = named("ann", "quality"), named("bo", "quality")
ALARM = "/v1/alarms/al_000_00000000000000000001"


async def acknowledged(client, who, note):
    return await client.post(f"{ALARM}/acknowledge", json={"note": note}, headers=who)


async def test_an_alarm_takes_two_people(guarded):
    first = await acknowledged(guarded, ANN, "known scanner")
    assert first.status_code == 202, first.text
    pending = first.json()["pending"]
    assert (pending["requested_by"], pending["reason"]) == ("ann", "known scanner")
    assert "identity" not in pending and first.json()["acknowledged_by"] is None
    again = await acknowledged(guarded, ANN, "known scanner, ticket 7")
    assert again.status_code == 202
    assert again.json()["pending"]["reason"] == "known scanner, ticket 7"
    [listed] = (await guarded.get("/v1/alarms?acknowledged=false", headers=BO)).json()["alarms"]
    assert listed["pending"] == again.json()["pending"]
    page = await guarded.get("/models/digits", headers=BO)
    assert "Waiting for a second person" in page.text and "ticket 7" in page.text
    problem(await acknowledged(guarded, BO, " "), 422, "invalid-input")
    done = await acknowledged(guarded, BO, "checked")
    found = done.json()
    assert (done.status_code, found["pending"]) == (200, None)
    assert (found["acknowledged_by"], found["note"]) == ("bo", "checked")
    assert (found["requested_by"], found["requested_reason"]) == ("ann", "known scanner, ticket 7")
    assert (await guarded.get(ALARM, headers=ANN)).json() == found
    assert (await acknowledged(guarded, ANN, "again")).json() == found
    page = await guarded.get("/models/digits", headers=BO)
    assert "requested by ann" in page.text and "Waiting for a second" not in page.text


async def test_an_old_request_does_not_count(guarded, inbox):
    await acknowledged(guarded, ANN, "known scanner")
    [alarm] = inbox.alarms.held
    old = alarm.pending | {"expires_at": "2026-01-01T00:00:00Z"}
    inbox.alarms.held = [replace(alarm, pending=old)]
    assert (await guarded.get(ALARM, headers=BO)).json()["pending"] is None
    second = await acknowledged(guarded, BO, "checked")
    assert (second.status_code, second.json()["pending"]["requested_by"]) == (202, "bo")


@pytest.mark.parametrize(
    "name",
    ["CALIBRANT_SECOND_PERSON", "CALIBRANT_SECOND_PERSON_ALARMS", "CALIBRANT_PROXY_ADDRESSES"],
)
def test_without_keys_it_does_not_start(name, monkeypatch):
    monkeypatch.setenv(name, "10.0.0.1" if "PROXY" in name else "true")
    monkeypatch.setenv("CALIBRANT_ROLES", json.dumps(ROLES) if "PROXY" in name else "")
    monkeypatch.setattr(main, "bound_to", lambda *_: pytest.fail("it listens"))
    with pytest.raises(SystemExit, match="no keys are configured"):
        main.main()


def test_a_service_without_a_proxy_ignores_the_headers(tmp_path, inbox, registry):
    settings = Settings(data_dir=tmp_path, keys=json.dumps(KEYS), log_requests=False)
    assert create_app(settings, Connection(inbox, registry)).state.proxy is None
