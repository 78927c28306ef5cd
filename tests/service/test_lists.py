"""Pages of lists: limits, cursors, links, ETags."""

import pytest
from fastapi import Request

from calibrant_server.service.http.lists import MAX_LIMIT, PageQuery, link_to, page_of
from calibrant_server.service.http.problems import InvalidQuery
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio


def pages(entries, limit):
    """All pages of a list, by following the cursors."""
    cursor, found = None, []
    while True:
        page, cursor = page_of(
            entries, lambda each: list(each), PageQuery(limit=limit, cursor=cursor)
        )
        found.append(page)
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_pages_hold_every_entry_once_and_in_order(limit):
    entries = [
        (-2.5, "b"),
        (-2.5, "a"),
        (0.1, "a"),
        (3.0, "x"),
        (-2.5, "c"),
        (7.0, "é"),
        (0.1, "b"),
    ]
    found = pages(entries, limit)
    assert [each for page in found for each in page] == sorted(entries)
    assert all(len(page) == limit for page in found[:-1]) and 1 <= len(found[-1]) <= limit


def test_an_empty_list_has_one_empty_page():
    assert page_of([], lambda each: [each], PageQuery()) == ([], None)


def test_entries_that_come_and_go_hide_no_others():
    page, cursor = page_of("bdf", lambda each: [each], PageQuery(limit=2))
    assert page == ["b", "d"]
    page, _ = page_of("aef", lambda each: [each], PageQuery(limit=2, cursor=cursor))
    assert page == ["e", "f"]


@pytest.mark.parametrize("cursor", ["%", "bm90IGpzb24", "e30", "W10", "WzFd", "é"])
def test_other_cursors_are_rejected(cursor):
    with pytest.raises(InvalidQuery):
        page_of("ab", lambda each: [each], PageQuery(cursor=cursor))


def test_the_link_keeps_the_other_parameters():
    scope = {"type": "http", "path": "/v1/alarms", "query_string": b"state=open&cursor=x&limit=2"}
    request = Request({**scope, "headers": [], "server": ("localhost", 80), "scheme": "http"})
    assert link_to(request, "y") == '</v1/alarms?state=open&limit=2&cursor=y>; rel="next"'


@pytest.fixture
async def five(client):
    for name in ("m3", "m1", "m5", "m2", "m4"):
        await client.put(f"/v1/models/{name}", json={"classes": 3})
    return client


async def test_models_are_read_page_by_page(five):
    url, found = "/v1/models?limit=2", []
    while url:
        answer = await five.get(url)
        found += [each["model"] for each in answer.json()["models"]]
        url = answer.links["next"]["url"] if "next" in answer.links else None
        assert (url is None) == (answer.json()["next"] is None)
    assert found == ["m1", "m2", "m3", "m4", "m5"]


async def test_a_page_that_has_not_changed_is_304(five):
    first = await five.get("/v1/models?limit=2")
    tag = {"If-None-Match": first.headers["etag"]}
    assert (await five.get("/v1/models?limit=2", headers=tag)).status_code == 304
    assert (await five.get("/v1/models?limit=3", headers=tag)).status_code == 200
    await five.delete("/v1/models/m1")
    assert (await five.get("/v1/models?limit=2", headers=tag)).status_code == 200


@pytest.mark.parametrize(
    "query", ["limit=0", f"limit={MAX_LIMIT + 1}", "cursor=x", "limit=a", "page=2"]
)
async def test_a_page_that_cannot_be_named_is_rejected(five, query):
    problem(await five.get(f"/v1/models?{query}"), 422, "invalid-query")


@pytest.mark.parametrize("path", ["maps", "baselines", "alarm/deliveries"])
async def test_lists_of_a_model_have_pages(five, path):
    answer = await five.get(f"/v1/models/m1/{path}?limit=1")
    assert answer.status_code == 200 and answer.json()["next"] is None
    assert answer.headers["etag"]
    problem(await five.get(f"/v1/models/m1/{path}?cursor=%25"), 422, "invalid-query")
