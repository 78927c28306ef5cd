"""Capacity is reserved for bytes that arrived, in time, and one tenant leaves some to the others."""

import asyncio
import hashlib
import json

import pytest

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.http.problems import Saturated
from calibrant_server.service.security.admission import Admission, ServedRequests
from calibrant_server.service.settings import Settings
from tests.service.conftest import PREDICTIONS, client_of, problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits/predictions"
JSON = {"Content-Type": "application/json"}
BODY = json.dumps(PREDICTIONS).encode()


@pytest.fixture
async def two(tmp_path, inbox, registry):
    """An app with two tenants, and the headers of each."""
    keys = [
        {"sha256": hashlib.sha256(name.encode()).hexdigest(), "name": name, "tenant": name}
        for name in ("one", "other")
    ]
    settings = Settings(data_dir=tmp_path, keys=json.dumps({"keys": keys}), log_requests=False)
    app = create_app(settings, Connection(inbox, registry))
    async with client_of(app) as client:
        yield app, client, *({**JSON, "Authorization": f"Bearer {n}"} for n in ("one", "other"))


async def stalling(first: bytes, until: asyncio.Event):
    if first:
        yield first
    await until.wait()
    yield b"{}"


async def arrived(app, n_bytes: int) -> None:
    """Wait until so many bytes are in hand."""
    for _ in range(1000):
        if app.state.admission.bytes_in_hand >= n_bytes:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{app.state.admission.bytes_in_hand} bytes arrived")


async def test_announced_bytes_reserve_nothing(client, app):
    announced = JSON | {"Content-Length": str(32 * 1024 * 1024)}
    until = asyncio.Event()
    silent = [
        asyncio.create_task(client.post(URL, content=stalling(b"", until), headers=announced))
        for _ in range(8)
    ]
    await asyncio.sleep(0.05)
    assert (await client.post(URL, content=BODY, headers=JSON)).status_code == 202
    assert app.state.admission.bytes_in_hand == 0
    until.set()
    await asyncio.gather(*silent)


async def test_one_tenant_leaves_room_for_the_body_of_another(two):
    app, client, one, other = two
    app.state.admission.max_bytes_in_hand = 1_000_000
    until = asyncio.Event()
    held = [
        asyncio.create_task(client.post(URL, content=stalling(b"{" * 250_000, until), headers=one))
        for _ in range(2)
    ]
    await arrived(app, 500_000)
    more = await client.post(URL, content=b"{" * 250_000, headers=one)
    problem(more, 503, "saturated")
    large = BODY + b" " * 390_000
    assert (await client.post(URL, content=large, headers=other)).status_code == 202
    until.set()
    await asyncio.gather(*held)
    assert app.state.admission.bytes_in_hand == 0 and not app.state.admission.bytes_of


async def test_open_requests_of_one_tenant_are_bounded(two):
    app, client, one, other = two
    app.state.served.limit = 2
    until = asyncio.Event()
    held = [
        asyncio.create_task(client.post(URL, content=stalling(b"{", until), headers=one))
        for _ in range(2)
    ]
    await arrived(app, 2)
    problem(await client.get("/v1/models", headers=one), 503, "saturated")
    assert (await client.get("/v1/models", headers=other)).status_code == 200
    until.set()
    await asyncio.gather(*held)
    assert (await client.get("/v1/models", headers=one)).status_code == 200
    assert not app.state.served.of


def test_a_request_is_counted_once():
    served, scope = ServedRequests(1), {}
    served.enter(scope, "one")
    served.enter(scope, "one")
    served.leave(scope)
    served.leave(scope)
    assert not served.of


def test_without_keys_every_body_may_use_all():
    admission = Admission(100)
    with admission.hold() as first, admission.hold() as second:
        first.reach(60)
        second.reach(40)
        with pytest.raises(Saturated):
            second.reach(41)
    assert admission.bytes_in_hand == 0
