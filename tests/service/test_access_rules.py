"""Every scope, operation and tenant, derived from the API document: a new route without a rule fails."""

import hashlib
import json
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.openapi.schema import document
from calibrant_server.service.security.keys import SCOPES
from calibrant_server.service.settings import Settings
from tests.conforming import CONFORMING, resolved
from tests.service.conftest import PREDICTIONS
from tests.service.fakes import FakeInbox, FakeRegistry

pytestmark = pytest.mark.anyio

OWNER, OTHER, MODEL, NOBODYS = "tenant-a", "tenant-b", "digits-of-a", "digits-of-0"
ALLOWED = "allowed-model"
SECRET = "class-known-to-a-only"
# Operations that need no key. Everything else needs one of the scopes that the document lists.
PUBLIC = {"getLive", "getReady", "getVersion", "getServiceMetrics", "listProblems", "getProblem"}
# Operations that compute from what is posted and store nothing: the only ones that are not GET and accept a reading key.
COMPUTATIONS = {
    "applyCalibrationMap",
    "compareCalibrations",
    "computePosterior",
    "scoreConfidenceHistogram",
    "scoreMap",
    "scoreOnce",
}
READING = {"read", "maps:read"}


class Operation:
    """One operation of the document, and a request for it."""

    def __init__(self, described: dict[str, Any], method: str, path: str, operation: dict) -> None:
        self.id, self.method, self.path = operation["operationId"], method.upper(), path
        self.scopes = frozenset(operation["x-scopes"])
        self.described, self.operation = described, operation

    @property
    def streams(self) -> bool:
        """Whether the response has no end."""
        return "text/event-stream" in self.operation["responses"].get("200", {}).get("content", {})

    def url(self, model: str) -> str:
        """Return the path with an id for each parameter."""
        url = self.path.replace("{model}", model)
        for given in self.operation.get("parameters", ()):
            parameter = resolved(self.described, given)
            if parameter["in"] == "path":
                value = "1" if parameter["schema"].get("type") == "integer" else "x1"
                url = url.replace("{" + parameter["name"] + "}", value)
        return url + ("?unknown=1" if self.streams else "")

    def body(self) -> dict[str, Any]:
        """Return the first example of the request body as arguments of a request."""
        for media, content in (
            resolved(self.described, self.operation.get("requestBody", {}))
            .get("content", {})
            .items()
        ):
            examples = content.get("examples", {}).values()
            value = [resolved(self.described, each)["value"] for each in examples] or [{}]
            return {"content": json.dumps(value[0]), "headers": {"Content-Type": media}}
        return {}


def operations(described: dict[str, Any]) -> list[Operation]:
    found = [
        Operation(described, method, path, operation)
        for path, each in described["paths"].items()
        for method, operation in each.items()
    ]
    # Deletions last, so that the others meet what they ask for.
    return sorted(found, key=lambda each: (each.method == "DELETE", each.path, each.method))


def without_a_rule(described: dict[str, Any]) -> list[str]:
    """Return the operations whose access nobody has decided, or whose scopes let a reader write."""
    return [
        each.id
        for each in operations(described)
        if (not each.scopes and each.id not in PUBLIC)
        or (each.scopes and each.id in PUBLIC)
        or (each.method != "GET" and each.scopes & READING and each.id not in COMPUTATIONS | PUBLIC)
    ]


class Watched:
    """Part of the engine that notes what it is asked with."""

    def __init__(self, part: Any, noted: list[str]) -> None:
        self.part, self.noted = part, noted

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.part, name)
        if not callable(found):
            return found if isinstance(found, (str, int)) else Watched(found, self.noted)

        def call(*args: Any, **given: Any) -> Any:
            self.noted.append(f"{name} {args!r} {given!r}")
            return found(*args, **given)

        return call


def entry(name: str, tenant: str, *scopes: str) -> dict:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return {"sha256": digest, "name": name, "tenant": tenant, "scopes": list(scopes)}


@pytest.fixture
def noted() -> list[str]:
    return []


@pytest.fixture
def guarded(tmp_path, noted):
    entries = [entry("a", OWNER, *SCOPES), entry("b", OTHER, *SCOPES)]
    entries += [entry(f"a {scope}", OWNER, scope) for scope in SCOPES]
    registry = FakeRegistry()
    inbox = FakeInbox(registry)
    inbox.merges_at_once = True
    connection = Connection(Watched(inbox, noted), Watched(registry, noted))
    entries += [{**entry("limited", OWNER, *SCOPES), "models": [ALLOWED]}]
    settings = Settings(data_dir=tmp_path, keys=json.dumps({"keys": entries}), log_requests=False)
    app = create_app(settings, connection)
    app.openapi_schema = CONFORMING.document
    return app


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def client_of(app) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def sent(
    client: httpx.AsyncClient, each: Operation, key: str | None, model: str = MODEL
) -> httpx.Response:
    given = each.body()
    headers = given.pop("headers", {}) | ({} if key is None else {"Authorization": f"Bearer {key}"})
    return await client.request(each.method, each.url(model), headers=headers, **given)


async def declare(client: httpx.AsyncClient) -> None:
    """Make the model of the owner, with a name in it that only the owner knows."""
    url, headers = f"/v1/models/{MODEL}", {"Authorization": "Bearer a"}
    made = await client.put(url, headers=headers, json={"classes": [SECRET, "b", "c"]})
    assert made.status_code == 201, made.text
    rows = await client.post(
        f"{url}/predictions", headers=headers, json={**PREDICTIONS, "batch_id": "x1"}
    )
    assert rows.status_code == 200, rows.text


def test_every_operation_has_a_rule(guarded):
    assert without_a_rule(guarded.openapi()) == []


def test_a_route_without_a_rule_is_found(guarded):
    router = APIRouter()

    @router.get("/v1/forgotten", operation_id="forgotten")
    async def forgotten() -> None:
        """Forget."""

    guarded.include_router(router)
    guarded.state.routes += router.routes
    assert without_a_rule(document(guarded)) == ["forgotten"]


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_scope_opens_the_operations_that_list_it_and_no_others(guarded, noted, scope):
    async with client_of(guarded) as client:
        await declare(client)
        for each in operations(guarded.openapi()):
            noted.clear()
            response = await sent(client, each, f"a {scope}")
            said = (each.id, response.status_code, response.text)
            if each.scopes and scope not in each.scopes:
                assert response.status_code == 403, said
                assert response.json()["type"] == "/v1/problems/scope-missing"
                assert noted == [], "rejected before the engine is asked"
            else:
                assert response.status_code not in (401, 403) and response.status_code < 500, said


async def test_an_operation_that_lists_scopes_needs_a_known_key(guarded, noted):
    async with client_of(guarded) as client:
        for each in operations(guarded.openapi()):
            for key, slug in ((None, "key-required"), ("nope", "key-unknown")):
                noted.clear()
                response = await sent(client, each, key)
                if each.scopes:
                    assert response.status_code == 401, (each.id, response.text)
                    assert response.json()["type"] == f"/v1/problems/{slug}"
                    assert noted == []
                else:
                    assert response.status_code not in (401, 403), each.id


async def test_another_tenant_meets_nothing_of_the_owner(guarded, noted):
    """The owner's model looks to the other tenant like one that does not exist, in every operation."""
    async with client_of(guarded) as client:
        await declare(client)
        before = await client.get(f"/v1/models/{MODEL}", headers={"Authorization": "Bearer a"})
        for each in operations(guarded.openapi()):
            noted.clear()
            theirs = await sent(client, each, "b", MODEL)
            nobodys = await sent(client, each, "b", NOBODYS)
            assert theirs.status_code == nobodys.status_code, (each.id, theirs.text, nobodys.text)
            assert SECRET not in theirs.text, each.id
            leaks = [call for call in noted if OWNER in call and not call.startswith("renew ")]
            assert leaks == [], each.id
            if "{" in each.path and each.method == "GET" and each.scopes:
                assert theirs.status_code in (200, 404, 422), (each.id, theirs.text)
        after = await client.get(f"/v1/models/{MODEL}", headers={"Authorization": "Bearer a"})
        assert (after.json(), after.headers["etag"]) == (before.json(), before.headers["etag"])


async def test_a_key_limited_to_a_model_reads_no_name_of_another(guarded):
    """Every GET of the document, so that no listing forgets the limit; what a full key reads shows that there is something to hide."""
    async with client_of(guarded) as client:
        await declare(client)
        await client.put(f"/v1/models/{ALLOWED}", headers=bearer("a"), json={"classes": 3})
        shows_it = set()
        for each in operations(guarded.openapi()):
            if each.method != "GET" or not each.scopes:
                continue
            path = each.url(ALLOWED)
            limited, full = [
                await client.get(path, headers=bearer(key)) for key in ("limited", "a")
            ]
            assert MODEL not in limited.text, each.id
            if MODEL in full.text:
                shows_it.add(each.id)
        assert {"listModels", "getModelSeries"} <= shows_it
