"""Every error is a problem document, and every problem has its page."""

from types import SimpleNamespace

import orjson
import pytest
from redis.exceptions import ResponseError

from calibrant_server.service.http.problems import (
    PROBLEMS,
    Saturated,
)
from calibrant_server.service.security import admission
from calibrant_server.service.security.admission import Admission
from calibrant_server.service.security.keys import ApiKey, Keyring
from calibrant_server.workers.ingest.inbox_errors import (
    BacklogFullError,
    IdsFullError,
    StoreFullError,
)
from calibrant_server.workers.queries.ask import SubjectGone
from calibrant_server.workers.store.file_store import FilesUnavailable
from tests.service.conftest import PREDICTIONS, problem
from tests.service.fakes import unavailable

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits/predictions"


async def test_unknown_paths(client):
    for url in ("/v1", "/v2/models", "/v1/models/", "/icon.ico", "/docs/../etc/passwd"):
        problem(await client.get(url), 404, "path-unknown")


async def test_other_methods(client):
    for method, url in (("DELETE", "/v1/models"), ("GET", URL), ("POST", "/livez")):
        answer = await client.request(method, url)
        problem(answer, 405, "method-not-allowed")
        assert answer.headers["allow"]


@pytest.mark.parametrize(
    ("method", "url", "allow"),
    [
        ("POST", "/v1/models/m", "DELETE, GET, HEAD, PATCH, PUT"),
        ("DELETE", "/v1/models/m/maps", "GET, HEAD, POST"),
        ("POST", "/v1/models/m/maps/current", "GET, HEAD, PUT"),
        ("OPTIONS", "/v1/score", "POST"),
    ],
)
async def test_every_method_that_a_path_answers_is_listed(client, method, url, allow):
    answer = await client.request(method, url)
    assert allow in problem(answer, 405, "method-not-allowed")["detail"]
    assert answer.headers["allow"] == allow


async def test_a_slash_at_the_end_is_named_as_what_is_wrong(client):
    for url in ("/v1/models/", "/v1/models/m/metrics/", "/docs/"):
        assert (
            "no slash at the end" in problem(await client.get(url), 404, "path-unknown")["detail"]
        )
    assert "/docs" in problem(await client.get("/no"), 404, "path-unknown")["detail"]


@pytest.mark.parametrize("url", ["/v1/models/m", "/v1/models/m/maps/current", "/v1/problems"])
async def test_a_query_where_none_is_read_is_rejected(client, url):
    [error] = problem(await client.get(f"{url}?limit=3"), 422, "invalid-query")["errors"]
    assert (error["pointer"], error["rule"]) == ("/limit", "unknown_parameter")


async def test_probes_may_add_a_query(client):
    for url in ("/livez", "/readyz", "/metrics", "/version"):
        assert (await client.get(f"{url}?verbose")).status_code == 200


@pytest.mark.parametrize(
    "header", ["Content-Type", "Content-Encoding", "Idempotency-Key", "Authorization"]
)
async def test_a_header_that_is_repeated_is_rejected(client, app, header):
    if header == "Authorization":
        app.state.keyring = Keyring((ApiKey(sha256="0" * 64),))
    values = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    headers = [("Content-Type", "application/json"), *2 * [(header, values.get(header, "a"))]]
    headers = headers[1:] if header == "Content-Type" else headers
    answer = await client.post(URL, content=orjson.dumps(PREDICTIONS), headers=headers)
    [error] = problem(answer, 400, "malformed-request")["errors"]
    assert (error["pointer"], error["rule"]) == (f"/{header.lower()}", "repeated_header")


async def test_the_instance_is_the_path_asked_for(client):
    assert (await client.get("/nothing")).json()["instance"] == "/nothing"


async def test_a_fault_of_ours_says_nothing_of_the_inside(client, inbox):
    inbox.trouble = RuntimeError("secret")
    answer = await client.post(URL, json=PREDICTIONS)
    problem(answer, 500, "internal-error")
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_each_problem_has_a_page(client):
    for slug, kind in PROBLEMS.items():
        json = (await client.get(f"/v1/problems/{slug}")).json()
        assert (json["status"], json["description"]) == (kind.status, kind.message()), slug
        html = await client.get(f"/v1/problems/{slug}", headers={"Accept": "text/html,*/*;q=0.8"})
        assert html.headers["content-type"].startswith("text/html"), slug
        assert kind.title in html.text, slug


async def test_the_list_of_problems(client):
    listed = (await client.get("/v1/problems")).json()["problems"]
    assert {each["type"] for each in listed} == {f"/v1/problems/{slug}" for slug in PROBLEMS}
    html = await client.get("/v1/problems", headers={"Accept": "text/html"})
    assert "Body too large" in html.text
    problem(await client.get("/v1/problems/none"), 404, "path-unknown")


@pytest.mark.parametrize(
    ("trouble", "status", "slug"),
    [
        (BacklogFullError("full", 7), 429, "backlog-full"),
        (IdsFullError("full", 7), 429, "ids-full"),
        (unavailable(), 503, "store-unavailable"),
    ],
)
async def test_trouble_of_the_store_is_remembered_and_shed_unread(
    client, inbox, trouble, status, slug
):
    inbox.trouble = trouble
    first = await client.post(URL, json=PREDICTIONS)
    problem(first, status, slug)
    assert int(first.headers["retry-after"]) == trouble.retry_after_s
    inbox.trouble = None
    unread = await client.post(URL, content=b"not even JSON", headers={"Content-Type": "text/x"})
    problem(unread, status, slug)
    assert 0 < int(unread.headers["retry-after"]) <= trouble.retry_after_s


async def test_a_store_without_memory_is_distinguished_from_one_that_is_away(client, inbox):
    inbox.trouble = StoreFullError("the store's memory is full", 5)
    found = problem(await client.post(URL, json=PREDICTIONS), 503, "store-unavailable")
    assert "memory is full" in found["detail"]


async def test_files_that_are_away_are_a_503_of_this_window_and_of_no_batch(client, inbox):
    assert (await client.post(URL, json=PREDICTIONS)).status_code == 202
    inbox.failing["metrics"] = FilesUnavailable("the store of files does not respond")
    found = await client.get(URL.replace("predictions", "metrics"))
    detail = problem(found, 503, "store-unavailable")["detail"]
    assert "the store of files does not respond" in detail and found.headers["retry-after"] == "5"
    assert (await client.post(URL, json=PREDICTIONS)).status_code == 202


async def test_a_full_backlog_of_one_model_is_not_that_of_another(client, inbox):
    inbox.trouble = BacklogFullError("full", 60)
    await client.post(URL, json=PREDICTIONS)
    inbox.trouble = None
    assert (await client.post("/v1/models/b/predictions", json=PREDICTIONS)).status_code == 202


async def test_after_a_moment_the_store_is_asked_again(client, inbox, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(admission, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    inbox.trouble = unavailable()
    await client.post(URL, json=PREDICTIONS)
    inbox.trouble = None
    problem(await client.post(URL, json=PREDICTIONS), 503, "store-unavailable")
    clock[0] += admission.BELIEVED_S + 0.1
    assert (await client.post(URL, json=PREDICTIONS)).status_code == 202


async def test_bodies_beyond_the_bytes_in_hand_are_shed(app, client):
    app.state.admission.max_bytes_in_hand = 10
    answer = await client.post(URL, json=PREDICTIONS)
    problem(answer, 503, "saturated")
    assert answer.headers["retry-after"] == "1"
    assert app.state.admission.bytes_in_hand == 0


def over(small: Admission) -> None:
    with small.hold() as hold:
        hold.reach(60)
        hold.reach(60)
        assert small.bytes_in_hand == 60
        hold.reach(101)


def test_holds_are_given_back_whatever_happens():
    small = Admission(100)
    with pytest.raises(Saturated):
        over(small)
    assert small.bytes_in_hand == 0


async def test_reads_while_the_store_is_away(client, inbox):
    await client.post(URL, json=PREDICTIONS)
    inbox.trouble = unavailable()
    answer = await client.get("/v1/models/digits/metrics")
    problem(answer, 503, "store-unavailable")
    assert answer.headers["retry-after"] == "3"
    problem(await client.get("/readyz"), 503, "store-unavailable")
    assert (await client.get("/livez")).status_code == 200


async def test_a_store_whose_disk_is_full_says_so_and_the_process_lives(client, inbox):
    """A first read of a window is a query, which the store has to write."""
    await client.post(URL, json=PREDICTIONS)
    inbox.trouble = ResponseError("MISCONF Errors writing to the AOF file: No space left on device")
    for path in ("/v1/models/digits/metrics", "/readyz"):
        found = problem(await client.get(path), 503, "store-unavailable")
        assert "No space left on device" in found["detail"] and found["retryable"] is True
    assert (await client.get("/livez")).status_code == 200


async def test_a_model_that_goes_while_it_is_asked_about_is_unknown(client, inbox):
    await client.put("/v1/models/digits", json={"classes": 3})
    inbox.trouble = SubjectGone("the model is gone")
    problem(await client.get("/v1/models/digits/metrics"), 404, "model-unknown")


async def test_the_pointer_of_other_content_is_the_batch_id(client):
    await client.post(URL, json={**PREDICTIONS, "batch_id": "a"})
    answer = await client.post(URL, json={**PREDICTIONS, "batch_id": "a", "labels": [1, 1]})
    assert problem(answer, 409, "batch-conflict")["errors"][0]["pointer"] == "/batch_id"


@pytest.mark.parametrize("path", ["/v1/models/m/jobs", "/v1/models/m/jobs/j"])
async def test_a_removed_path_names_its_replacement(client, path):
    for send in (client.get, client.post):
        found = problem(await send(path), 410, "path-removed")
        assert "source and offsets" in found["detail"]


async def test_removed_fields_and_parameters_name_their_replacement(client):
    url, rows = "/v1/models/m/predictions", {"confidences": [0.2], "job": "j"}
    found = problem(await client.post(url, json=rows), 422, "invalid-input")
    [error] = found["errors"]
    assert (error["pointer"], error["rule"]) == ("/job", "removed_field")
    found = problem(await client.post(f"{url}?job=j", json=rows), 422, "invalid-query")
    assert found["errors"][0]["rule"] == "removed_parameter"
