"""Questions that were asked before: 304 without the route, and the ordinary way whenever anything differs."""

import pytest

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.reads.service import ValidatedQueries
from calibrant_server.service.settings import Settings
from tests.service.conftest import PREDICTIONS, client_of, problem
from tests.service.fakes import unavailable

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits/metrics?metrics=ece&window=PT3H"
KEYS = (
    '{"keys": [{"sha256": "%s", "name": "a", "tenant": "one", "scopes": ["read", "ingest"]},'
    ' {"sha256": "%s", "name": "b", "tenant": "two", "scopes": ["read", "ingest"]},'
    ' {"sha256": "%s", "name": "c", "tenant": "one", "scopes": ["ingest"]}]}'
)


@pytest.fixture
async def held(client):
    """A client that has the answer, and its ETag."""
    await client.post("/v1/models/digits/predictions", json=PREDICTIONS)
    etag = (await client.get(URL)).headers["etag"]
    return client, {"If-None-Match": etag}


async def test_one_look_is_all_that_an_unchanged_answer_takes(held, inbox, registry, monkeypatch):
    client, known = held
    ordinary = await client.get(URL.replace("PT3H", "PT4H"), headers={"If-None-Match": "*"})

    async def never(*_):
        raise AssertionError("the ordinary way was taken")

    monkeypatch.setattr(registry, "get", never)
    looks = inbox.looks
    answer = await client.get(URL, headers=known)
    assert (answer.status_code, answer.content, inbox.looks) == (304, b"", looks + 1)
    assert answer.headers["etag"] == known["If-None-Match"]
    own = {"etag", "x-request-id", "traceparent"}
    assert {k: v for k, v in answer.headers.items() if k not in own} == {
        k: v for k, v in ordinary.headers.items() if k not in own
    }
    assert own <= answer.headers.keys() & ordinary.headers.keys()
    assert (await client.head(URL, headers=known)).status_code == 304


async def test_it_is_counted_as_what_it_is(held):
    client, known = held
    for _ in range(3):
        await client.get(URL, headers=known)
    counts = (await client.get("/metrics")).text
    assert 'calibrant_requests_total{operation="getMetrics",status="304"} 3.0' in counts


@pytest.mark.parametrize("change", ["state", "model", "deleted", "etag", "query"])
async def test_what_differs_goes_the_ordinary_way(held, inbox, registry, change):
    client, known = held
    url, status = URL, 200
    if change == "state":
        inbox.version += 1
    elif change == "model":
        revised = await client.patch(
            "/v1/models/digits", json={"unit": "patient"}, headers={"If-Match": "*"}
        )
        assert revised.status_code == 200, revised.text
    elif change == "deleted":
        registry.configs.clear()
        status = 404
    elif change == "etag":
        known = {"If-None-Match": '"other"'}
    else:
        url += "&bins=10"
    answer = await client.get(url, headers=known)
    assert answer.status_code == status, answer.text


async def test_trouble_is_reported_in_the_usual_way(held, inbox):
    client, known = held
    inbox.trouble = unavailable()
    problem(await client.get(URL, headers=known), 503, "store-unavailable")


async def test_a_question_is_remembered_for_its_caller_alone(tmp_path, inbox, registry):
    from hashlib import sha256

    digests = tuple(sha256(key.encode()).hexdigest() for key in "abc")
    settings = Settings(data_dir=tmp_path, keys=KEYS % digests, log_requests=False)
    app = create_app(settings, Connection(inbox, registry))
    async with client_of(app) as client:

        def of(key: str, **more: str) -> dict[str, str]:
            return {"Authorization": f"Bearer {key}", **more}

        await client.post("/v1/models/digits/predictions", json=PREDICTIONS, headers=of("a"))
        etag = (await client.get(URL, headers=of("a"))).headers["etag"]
        known = {"If-None-Match": etag}
        assert (await client.get(URL, headers=of("a", **known))).status_code == 304
        problem(await client.get(URL, headers=of("b", **known)), 404, "model-unknown")
        problem(await client.get(URL, headers=of("c", **known)), 403, "scope-missing")
        problem(await client.get(URL, headers=of("nobody", **known)), 401, "key-unknown")
        problem(await client.get(URL, headers=known), 401, "key-required")


async def test_what_is_remembered_is_bounded(held, app, inbox):
    client, _ = held
    app.state.reads.validated = ValidatedQueries(most=2)
    tags = {}
    for bins in (5, 10, 12):
        tags[bins] = (await client.get(f"{URL}&bins={bins}")).headers["etag"]
    looks = inbox.looks
    for bins, etag in tags.items():
        again = await client.get(f"{URL}&bins={bins}", headers={"If-None-Match": etag})
        assert again.status_code == 304
    assert len(app.state.reads.validated._queries) == 2
    assert inbox.looks < looks + 3
