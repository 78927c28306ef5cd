"""Sign-in through a proxy's headers: only from trusted addresses, with the scopes of roles, and recorded by person and role."""

import hashlib
import json
import re

import httpx
import pytest
from pydantic import ValidationError

from calibrant_server.service import main
from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.security.proxy_sign_in import (
    PEER,
    SECRET_HEADER,
    RoleSettingsError,
    proxy_sign_in,
)
from calibrant_server.service.settings import Settings
from calibrant_server.service.startup import REMOVED
from tests.service.conftest import problem
from tests.service.test_alarms import episode

pytestmark = pytest.mark.anyio
ROLES = {"quality": {"scopes": ["read", "admin"]}, "readers": {"scopes": ["read"]}, "senders": {"scopes": ["ingest"]}}  # fmt: skip
KEYS = {
    "keys": [
        {"sha256": hashlib.sha256(b"robot").hexdigest(), "name": "robot", "scopes": ["ingest"]},
        {"sha256": hashlib.sha256(b"reader").hexdigest(), "name": "reader", "scopes": ["read"]},
    ]
}
PROXY, SECRET = "10.1.2.3", "0123456789abcdef"


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(
        data_dir=tmp_path,
        log_requests=False,
        keys=json.dumps(KEYS),
        trusted_proxies="10.1.0.0/16, ::1",
        proxy_secret=SECRET,
        roles=json.dumps(ROLES),
    )


def client_at(app, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, client=(address, 5000), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def named(user: str | None, *roles: str, **more: str) -> dict[str, str]:
    found = {"X-Forwarded-Groups": ", ".join(roles), SECRET_HEADER: SECRET} | more
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
        # An address alone does not show who sends: other programs may be in the proxy's network.
        (PROXY, named("ann", "quality", **{SECRET_HEADER: ""})),
        (PROXY, named("ann", "quality", **{SECRET_HEADER: SECRET[:-1]})),
        (PROXY, named("ann", "quality", **{SECRET_HEADER: SECRET.upper()})),
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
        twice = [("X-Forwarded-User", "ann"), ("X-Forwarded-User", "eve"), ("X-Forwarded-Groups", "quality"), (SECRET_HEADER, SECRET)]  # fmt: skip
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
        ({"roles": "{}"}, "CALIBRANT_PROXY_SECRET is not set"),
        (
            {"roles": "{}", "proxy_secret": SECRET, "trusted_proxies": ""},
            "TRUSTED_PROXIES is empty",
        ),
        ({"roles": "[", "proxy_secret": SECRET}, "not JSON"),
        ({"roles": '{"a": {"scopes": ["all"]}}', "proxy_secret": SECRET}, "a/scopes/0"),
    ],
)
def test_settings_that_cannot_be_used(given, words):
    with pytest.raises(RoleSettingsError, match=words):
        proxy_sign_in(Settings(**given))


@pytest.mark.parametrize(
    "given",
    [
        {"trusted_proxies": "proxy.local"},
        {"proxy_secret": "too short"},
        {"proxy_secret": "a b" * 8},
    ],
)
def test_settings_of_another_form_are_rejected(given):
    with pytest.raises(ValidationError):
        Settings(**given)


def test_without_keys_it_does_not_start(monkeypatch):
    monkeypatch.setenv("CALIBRANT_ROLES", json.dumps(ROLES))
    monkeypatch.setenv("CALIBRANT_PROXY_SECRET", SECRET)
    monkeypatch.setattr(main, "bound_to", lambda *_: pytest.fail("it listens"))
    with pytest.raises(SystemExit, match="no keys are configured"):
        main.main()


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_setting_stops_the_start(name, monkeypatch):
    """It protected something: the service does not start with less than its operator believes."""
    monkeypatch.setenv(name, "true")
    monkeypatch.setattr(main, "bound_to", lambda *_: pytest.fail("it listens"))
    with pytest.raises(SystemExit, match=f"{name} is removed"):
        main.main()


async def forms_of(app, path: str = "/keys") -> str:
    """Return the token of the forms on a page of a person."""
    async with client_at(app, PROXY) as client:
        page = await client.get(path, headers=named("ann", "quality"))
    assert page.status_code == 200, page.text
    return re.search(r'name="token" value="([0-9a-f]{64})"', page.text)[1]


async def test_a_form_of_one_replica_is_accepted_by_another(app, settings, inbox, registry):
    """People whom a proxy names have no session: their forms hang on a secret of the store, the same on every replica."""
    other = create_app(settings, Connection(inbox, registry))
    form = {"token": await forms_of(app), "name": "made", "scope": "read"}
    async with client_at(other, PROXY) as client:
        made = await client.post("/keys", data=form, headers=named("ann", "quality"))
        assert (made.status_code, "ck_" in made.text) == (200, True)
        for wrong in (form | {"token": "0" * 64}, {**form, "name": "x"} | {"token": ""}):
            refused = await client.post("/keys", data=wrong, headers=named("ann", "quality"))
            assert refused.status_code == 403
        of_another = await client.post("/keys", data=form, headers=named("bo", "quality"))
        assert of_another.status_code == 403


async def test_forwarded_addresses_count_from_trusted_proxies_only(app, settings):
    """One setting: the log's addresses, https, and the sign-in of people."""
    seen = []

    async def inner(scope, receive, send):
        seen.append((scope["client"][0], scope["scheme"]))
        await app(scope, receive, send)

    forwarded = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
    for peer in (PROXY, "10.2.0.1"):
        async with client_at(main.with_peer(inner, settings.trusted_proxies), peer) as client:
            await client.get("/livez", headers=forwarded)
    assert seen == [("192.0.2.7", "https"), ("10.2.0.1", "http")]


@pytest.mark.parametrize(
    ("host", "cookie"),
    [
        ("calibrant.example", "__Host-calibrant_session"),
        ("10.0.0.5", "__Host-calibrant_session"),
        ("localhost", "calibrant_session"),
        ("127.0.0.1", "calibrant_session"),
    ],
)
async def test_a_session_goes_over_https_except_on_one_machine(app, host, cookie):
    """Also where the service does not know that a proxy in front serves https."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        done = await client.post("/sign-in", data={"key": "reader"})
        [header] = done.headers.get_list("set-cookie")
        assert header.startswith(f"{cookie}=")
        assert ("Secure" in header) is cookie.startswith("__Host-")
        token = header.partition("=")[2].partition(";")[0]
        page = await client.get("/", headers={"Cookie": f"{cookie}={token}"})
        assert page.status_code == 200
        is_warned = "CALIBRANT_TRUSTED_PROXIES" in (await client.get("/sign-in")).text
        assert is_warned is (cookie != "calibrant_session")


def test_a_service_without_a_proxy_ignores_the_headers(tmp_path, inbox, registry):
    settings = Settings(data_dir=tmp_path, keys=json.dumps(KEYS), log_requests=False)
    assert create_app(settings, Connection(inbox, registry)).state.proxy is None
