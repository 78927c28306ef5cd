"""Pages: who sees them, their headers, their forms, and what their cookie does not open."""

import json
import re
import time

import httpx
import pytest

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.http.problems import AnswerLate
from calibrant_server.service.openapi.schema import document
from calibrant_server.service.pages.api import ApiResponse
from calibrant_server.service.pages.raters_page import _problem
from calibrant_server.service.pages.visitors import local_path
from calibrant_server.service.reads.reports import _readers_missing
from calibrant_server.service.settings import Settings
from calibrant_server.workers.queries.ask import (
    ResultFailedError,
    ResultTimeoutError,
)
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.status_index import UNKNOWN_STATUS, IndexedStatus
from tests.service.conftest import PREDICTIONS, client_of, problem
from tests.service.figure_marks import Figure
from tests.service.test_diagrams import ANSWER
from tests.service.test_keys import bearer, entry

pytestmark = pytest.mark.anyio
POST = "/v1/models/digits/predictions"
PAGES = ("/", "/models/digits", "/models/digits/raters", "/keys")
TOKEN = re.compile(r'name="token" value="([0-9a-f]{64})"')


def people(app, **options) -> httpx.AsyncClient:
    """A browser without scripts. Pages are not in the API document, so nothing is compared with it."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", **options)


@pytest.fixture
def keyed(tmp_path, inbox, registry):
    entries = [
        entry("boss", "ingest", "read", "maps:read", "admin") | {"name": "boss"},
        entry("reader", "read"),
        entry("sender", "ingest"),
        entry("other", "read", "admin", tenant="other"),
    ]
    settings = Settings(data_dir=tmp_path, keys=json.dumps({"keys": entries}), log_requests=False)
    return create_app(settings, Connection(inbox, registry))


async def signed_in(client: httpx.AsyncClient, key: str, then: str = "/") -> httpx.Response:
    return await client.post("/sign-in", data={"key": key, "next": then})


async def test_without_a_session_a_page_leads_to_the_page_to_sign_in(keyed):
    async with people(keyed) as client:
        for path in PAGES:
            answer = await client.get(path)
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/sign-in")
        asked = await client.get("/models/digits?window=P7D")
        assert asked.headers["location"] == "/sign-in?next=%2Fmodels%2Fdigits%3Fwindow%3DP7D"
        form = await client.get(asked.headers["location"])
        assert 'value="/models/digits?window=P7D"' in form.text


async def test_a_key_is_exchanged_for_a_cookie_that_opens_pages_only(keyed, inbox):
    async with people(keyed) as client:
        wrong = await signed_in(client, "nope")
        assert wrong.status_code == 401
        assert "set-cookie" not in wrong.headers
        answer = await signed_in(client, " reader ", "/models/digits")
        assert (answer.status_code, answer.headers["location"]) == (303, "/models/digits")
        cookie = answer.headers["set-cookie"]
        for attribute in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
            assert attribute in cookie
        assert "reader" not in cookie
        assert (await client.get("/")).status_code == 200
        # The API does not read the cookie, and its value is not a key.
        problem(await client.get("/v1/models"), 401, "key-required")
        [session] = inbox.page_sessions.digests
        problem(await client.get("/v1/models", headers=bearer(session)), 401, "key-unknown")


async def test_a_cookie_is_secure_over_https(keyed):
    async with people(keyed) as client:
        answer = await client.post("https://localhost/sign-in", data={"key": "reader"})
        assert "Secure" in answer.headers["set-cookie"]


async def test_signing_in_counts_against_the_rates_of_key_and_tenant(tmp_path, inbox, registry):
    keys = json.dumps({"keys": [entry("reader", "read"), entry("other", "read", tenant="other")]})
    settings = Settings(data_dir=tmp_path, keys=keys, log_requests=False, tenant_rate=3)
    async with people(create_app(settings, Connection(inbox, registry))) as client:
        first = await signed_in(client, "reader")
        assert first.headers["ratelimit"].startswith('"tenant";r=2')
        statuses = [(await signed_in(client, "reader")).status_code for _ in range(4)]
        assert statuses == [303, 303, 429, 429]
        late = await signed_in(client, "reader")
        assert int(late.headers["retry-after"]) >= 1 and "text/html" in late.headers["content-type"]
        # A key that is unknown spends nobody's tokens; another tenant has its own.
        assert (await signed_in(client, "nope")).status_code == 401
        assert (await signed_in(client, "other")).status_code == 303
        assert len(inbox.page_sessions.digests) == 4


async def test_signing_out_ends_the_session(keyed, inbox):
    async with people(keyed) as client:
        await signed_in(client, "reader")
        [token] = set(TOKEN.findall((await client.get("/")).text))
        answer = await client.post("/sign-out", data={"token": token})
        assert answer.headers["location"] == "/sign-in"
        assert inbox.page_sessions.digests == {}
        assert (await client.get("/")).status_code == 303


async def test_a_revoked_key_ends_its_sessions(keyed):
    async with people(keyed) as client:
        await signed_in(client, "reader")
        keyed.state.keyring.replace(configured=keyed.state.keyring.configured[:1])
        answer = await client.get("/")
        assert answer.status_code == 303
        assert "Max-Age=0" in answer.headers["set-cookie"]


async def test_a_form_needs_the_token_of_its_session(keyed, inbox):
    async with people(keyed) as client, people(keyed) as another:
        await signed_in(client, "boss")
        await signed_in(another, "boss")
        [token] = set(TOKEN.findall((await client.get("/keys")).text))
        [theirs] = set(TOKEN.findall((await another.get("/keys")).text))
        new = {"name": "n", "scope": "read"}
        for wrong in ({}, {"token": ""}, {"token": theirs}, {"token": "é"}):
            assert (await client.post("/keys", data=new | wrong)).status_code == 403
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            answer = await client.post("/keys", data=new | {"token": token}, headers=headers)
            assert answer.status_code == 403
            assert "Nothing was changed" in answer.text
        assert inbox.access_keys.entries == {}
        made = await client.post("/keys", data=new | {"token": token})
        assert made.status_code == 200
        [key] = inbox.access_keys.entries.values()
        assert (key["name"], key["scopes"], key["tenant"]) == ("n", ["read"], "default")


async def test_the_page_of_keys_names_changed_settings_in_words(keyed):
    async with people(keyed) as client:
        await signed_in(client, "boss")
        headers = bearer("boss") | {"If-Match": "*"}
        url, made = "/v1/models/digits", {"task": "binary", "label_horizon": "P3D"}
        assert (await client.put(url, headers=bearer("boss"), json=made)).status_code == 201
        patch = {"label_horizon": "P5D"}
        assert (await client.patch(url, headers=headers, json=patch)).status_code == 200
        text = (await client.get("/keys")).text
    assert "Change some settings of a model: label_horizon P3D → P5D<" in text
    assert "Create a model, or replace its settings" in text
    assert "patchModel" not in text and "putModel" not in text


async def test_a_change_on_a_page_is_in_the_audit_log_like_one_over_the_api(keyed, inbox):
    async with people(keyed) as client:
        await signed_in(client, "boss")
        [token] = set(TOKEN.findall((await client.get("/keys")).text))
        fields = {"name": "n", "scope": ["read", "ingest"], "models": "a, b*", "token": token}
        await client.post("/keys", data=fields)
        [logged] = inbox.audit.logs["default"]
        assert logged["action"] == "createKey"
        assert logged["key"]["name"] == "boss"
        assert logged["details"]["models"] == ["a", "b*"]
        [key] = inbox.access_keys.entries
        assert "Create a key of your tenant<" in (await client.get("/keys")).text
        await client.post(f"/keys/{key}/revoke", data={"token": token})
        assert inbox.access_keys.entries == {}
        assert [each["action"] for each in inbox.audit.logs["default"]] == [
            "createKey",
            "revokeKey",
        ]


async def test_scopes_hold_on_pages(keyed, inbox):
    async with people(keyed) as client:
        await signed_in(client, "sender")
        for path in PAGES[:3]:
            answer = await client.get(path)
            assert answer.status_code == 403
            assert "scope" in answer.text
        await signed_in(client, "reader")
        page = await client.get("/")
        assert "/keys" not in page.text
        token = TOKEN.findall(page.text)[0]
        for path in (
            "/keys",
            "/models/m/maps",
            "/models/m/maps/1/promote",
            "/models/m/alarms/a/acknowledge",
        ):
            answer = await client.post(path, data={"token": token, "name": "n", "scope": "admin"})
            assert answer.status_code == 403, path
        assert inbox.access_keys.entries == {} and inbox.audit.logs == {}


async def test_another_tenants_model_is_an_unknown_page(keyed, inbox):
    async with client_of(keyed) as sender:
        await sender.post(POST, json=PREDICTIONS, headers=bearer("boss"))
    async with people(keyed) as client:
        await signed_in(client, "other")
        for path in ("/models/digits", "/models/no-such-model"):
            answer = await client.get(path)
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert "Model unknown" in answer.text
        assert "digits" not in (await client.get("/")).text


async def test_a_browser_gets_a_page_where_nothing_is_and_a_program_a_problem(app, keyed):
    asked = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    async with people(app) as client, people(keyed) as other:
        for path in ("/nope", "/models/digits/nope", "/assets/nope.js", "/models"):
            answer = await client.get(path, headers=asked)
            assert (answer.status_code, answer.headers["content-type"]) == (
                404,
                "text/html; charset=utf-8",
            )
            assert (
                "Path unknown" in answer.text
                and "default-src" in answer.headers["content-security-policy"]
            )
            assert "Sign in" not in answer.text
            assert "Sign in" in (await other.get(path, headers=asked)).text
        for path, headers in (("/nope", {}), ("/nope", {"Accept": "*/*"}), ("/v1/nope", asked)):
            problem(await client.get(path, headers=headers), 404, "path-unknown")


async def test_every_page_has_a_strict_policy(app, keyed):
    async with people(app) as client, people(keyed) as other:
        answers = [await client.get(path) for path in (*PAGES, "/models/%20")]
        answers += [await other.get("/sign-in"), await other.get("/")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        # Inline scripts and styles, which the policy forbids, and files of other sites.
        assert not re.search(
            r"<script(?![^>]*src=\"/assets/)|<style|\sstyle=|\son[a-z]+=", answer.text
        )
        assert not re.search(r"(src|href|action)=\"(?!/|#)", answer.text)


async def test_browsers_find_the_icon_of_documents_that_name_none(client):
    answer = await people(client._transport.app).get("/favicon.ico")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")


async def test_assets_come_with_their_licences(client):
    for name, kind in (
        ("pages.css", "text/css"),
        ("pages.js", "text/javascript"),
        ("htmx.min.js", "text/javascript"),
        ("uplot.min.js", "text/javascript"),
        ("htmx.LICENSE", "text/plain"),
        ("uplot.LICENSE", "text/plain"),
    ):
        answer = await people(client._transport.app).get(f"/assets/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
    for name in ("nothing.js", "..%2Fpages.py"):
        answer = await people(client._transport.app).get(f"/assets/{name}")
        assert answer.status_code == 404


async def test_figures_of_a_page_are_those_of_the_api_and_asked_for_once(app, inbox):
    answer = {name: ANSWER[name] for name in ANSWER if name != "window"}
    inbox.answers["reliability"] = answer | {"error": {"value": 0.0831}}
    async with people(app) as client:
        await client.post(POST, json=PREDICTIONS)
        found = await client.get("/models/digits/figures/reliability?bins=3")
        assert (found.status_code, found.headers["content-type"]) == (200, "image/svg+xml")
        assert "style-src 'unsafe-inline'" in found.headers["content-security-policy"]
        assert "ECE 0.083" in Figure.of(found.content).texts
        known = {"If-None-Match": found.headers["etag"]}
        again = await client.get("/models/digits/figures/reliability?bins=3", headers=known)
        assert (again.status_code, again.content) == (304, b"")
        for path, status in (("digits/figures/raters", 404), ("unknown/figures/reliability", 404)):
            assert (await client.get(f"/models/{path}")).status_code == status


async def test_pages_are_not_in_the_api_document(app):
    paths = document(app)["paths"]
    assert not [
        path for path in paths if path == "/" or path.startswith(("/models", "/keys", "/sign"))
    ]


async def test_the_page_of_a_good_model_has_no_step_to_take(app, inbox):
    words = {name: {"word": "good", "sentence": name} for name in ("calibration", "change")}
    inbox.answers["drift"] = words | {
        "status": "ok",
        "scores": {"word": "none_seen", "sentence": "scores"},
        "recommendation": {"action": "none", "reason": "No action is needed.", "evidence": {}},
    }
    inbox.failing = dict.fromkeys(("metrics", "temperature"), ResultTimeoutError("late"))
    async with people(app) as client:
        await client.post(POST, json=PREDICTIONS)
        found = await client.get("/models/digits")
    assert found.status_code == 200
    assert "No action is needed." in found.text and "Fit and freeze this map" not in found.text


async def test_the_raters_of_a_model_with_several_labels_are_listed_label_by_label(app, inbox):
    one = {"n": 39, "value": 0.25}
    found = {"disagreement": None, "policies": {"pooled": 0.25}, "by_rater": {"ann": one}}
    inbox.answers["raters"] = {"labels": {"car": found, "dog": found | {"by_rater": {}, "reason": "no_labels"}}}  # fmt: skip
    inbox.failing = {"cases": ResultTimeoutError("late")}
    async with people(app) as client:
        await client.post(POST, json=PREDICTIONS)
        page = await client.get("/models/digits/raters")
    assert page.status_code == 200
    assert [page.text.count(text) for text in ("<h3>car</h3>", "<h3>dog</h3>", "No named raters")] == [1, 1, 1]  # fmt: skip


async def test_the_page_of_raters_names_the_one_who_differs(app, inbox):
    """Only a sentence in the fourth section of the report named the reader who differs."""
    by_rater = {
        name: {"n": 40, "value": value, "agreement": 0.8, "kappa": {"x": 0.6, "y": 0.4}}
        for name, value in (("ito", 0.04), ("klein", 0.03), ("novak", 0.09))
    }
    odd = {"name": "novak", "kappa": 0.58, "kappa_of_others": 0.89, "p_value": 1e-9}
    odd |= {"shares": [0.7, 0.2, 0.1], "shares_of_others": [0.5, 0.3, 0.2]}
    inbox.answers["raters"] = {"disagreement": 0.2, "policies": None, "by_rater": by_rater, "odd_rater": odd}  # fmt: skip
    inbox.failing = {"cases": ResultTimeoutError("late")}
    async with people(app) as client:
        await client.post(POST, json=PREDICTIONS)
        page = (await client.get("/models/digits/raters?window=P7D")).text
    assert "novak differs from the other readers: kappa 0.580 with them, 0.890 among" in page
    assert "in 70\u00a0% of the predictions, the others in 50\u00a0%" in page
    assert "0.090 against novak, and 0.030 to 0.040 against the others" in page
    assert '<td class="right">0.500</td>' in page and "80\u00a0%" in page
    assert 'raters?window=P28D">Last 28 days' in page and 'aria-current="true">Last 7 days' in page


def test_readers_of_a_segmentation_are_not_told_to_shorten_the_window():
    """A time slice of images has more ratings than a request reads, so no window is short enough."""
    detail = "The window contains more than 75000 ratings. Request a shorter window."
    found = {"reason": "too_many_records", "detail": detail}
    for task, is_short in (("segmentation", False), ("multiclass", True)):
        config = ModelConfig("acme", "m", task, 2)
        text = _readers_missing(found, config)
        assert (text == detail) == is_short
        assert ("`calibrant score --manifest` compares the readers" in text) != is_short
        errors = {"detail": detail, "errors": [{"rule": "too_many_records"}]}
        assert _problem(ApiResponse(422, errors), {"task": task}) == text


async def test_open_mode_serves_this_machine_only(app):
    async with people(app) as client:
        assert (await client.get("/")).status_code == 200
        for headers in ({"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = await client.get("/", headers=headers)
            assert answer.status_code == 403
            assert "text/html" in answer.headers["content-type"]
        assert (await client.get("/sign-in")).headers["location"] == "/"


async def test_without_a_model_the_page_guides_to_a_first_post(app):
    async with people(app) as client:
        page = (await client.get("/")).text
        assert "curl -s http://localhost/v1/models/triage/predictions" in page
        assert "Bearer" not in page
        [body] = re.findall(r"-d &#39;(\{.*?\})&#39;</code>", page.replace("'", "&#39;"), re.S)[:1]
        posted = await client.post(
            "/v1/models/triage/predictions", json=json.loads(body.replace("&#34;", '"'))
        )
        assert posted.status_code == 202
        assert "triage" in (await client.get("/")).text


async def test_forms_are_bounded(app):
    async with people(app) as client:
        assert (await client.post("/keys", data={"name": "n" * 20_000})).status_code == 413
        many = {f"f{i}": "1" for i in range(50)}
        assert (await client.post("/keys", data=many)).status_code == 400
        assert (await client.post("/keys", json={})).status_code == 415


async def test_free_text_is_escaped(keyed, inbox):
    async with people(keyed) as client:
        await signed_in(client, "boss")
        [token] = set(TOKEN.findall((await client.get("/keys")).text))
        name = "<script>alert(1)</script>"
        made = await client.post("/keys", data={"name": name, "scope": "read", "token": token})
        for page in (made.text, (await client.get("/keys")).text):
            assert "<script>alert" not in page
            assert "&lt;script&gt;" in page
        searched = await client.get("/", params={"q": '"><script>alert(1)</script>'})
        assert "<script>alert" not in searched.text


@pytest.mark.parametrize(
    "path",
    ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:x", "", "/a\nb"],
)
def test_signing_in_leads_to_this_site_only(path):
    assert local_path(path) == "/"
    assert local_path("/models/a?window=P7D") == "/models/a?window=P7D"
    assert local_path("/models/\u0416?a=%41") == "/models/%D0%96?a=%41"


async def test_addresses_that_cannot_be_read_are_no_errors_of_the_service(keyed):
    async with people(keyed) as client:
        for path in ("//[", "http://[", "//[::1"):
            assert (await client.get("/sign-in", params={"next": path})).status_code == 200
            assert (await signed_in(client, "boss", path)).headers["location"] == "/"
        beyond = await signed_in(client, "boss", "/models/\u0416")
        assert beyond.headers["location"] == "/models/%D0%96"
        for origin in ("http://[", "null", "localhost"):
            form = {"key": "boss"}
            sent = await client.post("/sign-in", data=form, headers={"Origin": origin})
            assert sent.status_code == 403
        form = {"key": "boss"}
        same = {"Origin": "http://localhost"}
        assert (await client.post("/sign-in", data=form, headers=same)).status_code == 303


@pytest.mark.parametrize("days", ["0003650000", "0003650000000000", "9" * 5000, "0"])
async def test_days_out_of_range_are_rejected(keyed, days):
    async with people(keyed) as client:
        await signed_in(client, "boss")
        [token] = set(TOKEN.findall((await client.get("/keys")).text))
        form = {"name": "n", "scope": "read", "days": days, "token": token}
        assert (await client.post("/keys", data=form)).status_code == 422


async def models_of(client: httpx.AsyncClient, **query: str) -> tuple[list[str], str]:
    """The names in the order of their rows, and the text of the page."""
    text = (await client.get("/", params=query)).text
    return re.findall(r'<th scope="row"><a href="/models/([^"]+)">', text), text


async def test_the_list_of_models_states_its_order_and_has_it(app, registry, inbox):
    for name in ("b", "a", "d", "c", "e"):
        await registry.put(ModelConfig("default", name, "binary", 2), None)
    inbox.answers["drift"] = {"status": "ok"}
    inbox.alarms.result = {
        "default/d": {"n_alarms": 1},
        "default/e": {"n_alarms": 1},
        "default/c": {"n_alarms": 0},
    }
    async with people(app) as client:
        for _ in range(3):
            names, text = await models_of(client)
            assert names == ["d", "e", "a", "b", "c"]
            assert (
                "Order: open alarm, watch, no recent data, undecided, OK; equal ones by name"
                in text
            )
        names, text = await models_of(client, sort="name")
        assert names == ["a", "b", "c", "d", "e"] and "Order: by name." in text


async def test_the_list_is_sorted_by_what_is_known_and_filtered_by_status(app, registry, inbox):
    for name, value, share in (("a", 0.01, 0.9), ("b", 0.3, 0.2), ("c", None, None)):
        config = ModelConfig("default", name, "binary", 2)
        await registry.put(config, None)
        error = None if value is None else {"value": value}
        fields = {**UNKNOWN_STATUS, "status": "ok", "error": error, "label_coverage": share}
        inbox.statuses.states[config.key] = "s"
        await inbox.statuses.write({config.key: (config, IndexedStatus("s", time.time(), fields))})
    inbox.alarms.result = {"default/b": {"n_alarms": 1}}
    async with people(app) as client:
        assert (await models_of(client, sort="error"))[0] == ["b", "a", "c"]
        assert (await models_of(client, sort="labels"))[0] == ["b", "a", "c"]
        assert (await models_of(client, status="alarm"))[0] == ["b"]
        assert (await models_of(client, status="ok", sort="name"))[0] == ["a", "c"]


async def test_the_list_is_filtered_by_tags_and_by_what_is_new(app, registry, inbox):
    for name, tags in (("a", {"owner": "ann"}), ("b", {"owner": "bo"}), ("c", {})):
        await registry.put(ModelConfig("default", name, "binary", 2, tags=tags), None)
    inbox.answers["drift"] = {"status": "ok"}
    async with people(app) as client:
        assert (await models_of(client, tag="owner:bo"))[0] == ["b"]
        names, text = await models_of(client)
        assert names == ["a", "b", "c"] and '<span class="tag">owner: ann</span>' in text
        assert (await models_of(client, status="new"))[0] == []
        # A promotion makes each status be computed again; that of one model has turned.
        inbox.answers["drift"] = {"status": "watch"}
        inbox.statuses.states["default/b"] = "map 1|"
        assert (await models_of(client))[1].count('class="new"') == 1
        assert (await models_of(client, status="new"))[0] == ["b"]


async def test_the_first_view_has_the_order_of_the_statuses_that_it_shows(app, registry, inbox):
    await registry.put(ModelConfig("default", "a", "binary", 2), None)
    inbox.answers["drift"] = {"status": "ok"}
    async with people(app) as client:
        await models_of(client)
        await registry.put(ModelConfig("default", "b", "binary", 2), None)
        inbox.answers["drift"] = {"status": "watch"}
        names, _ = await models_of(client)
        assert names == ["b", "a"]


async def test_the_list_shows_a_decision_at_once_and_new_data_after_a_minute(app, registry, inbox):
    await registry.put(ModelConfig("default", "a", "binary", 2), None)
    async with people(app) as client:

        async def shown(status: str | None, state: str) -> str:
            """The badge of the row, if this is the status of this state."""
            inbox.answers["drift"] = {"status": status}
            inbox.statuses.states["default/a"] = state
            [found] = re.findall(r'class="badge ([a-z_]+)"', (await models_of(client))[1])
            return found

        assert await shown("ok", "no map|1 row") == "ok"
        n_asked = len(inbox.asked)
        assert await shown("watch", "no map|2 rows") == "ok"
        assert len(inbox.asked) == n_asked, "new data alone are not computed within the minute"
        assert await shown("watch", "map 1|2 rows") == "watch"
        # A status from before the decision is not shown, even where the new one is late.
        inbox.failing["drift"] = ResultTimeoutError("late")
        assert await shown("ok", "map 2|2 rows") == "insufficient_data"
        assert "Being computed" in (await models_of(client))[1]


async def test_commands_in_problems_are_shown_as_code(app):
    async with people(app) as client:
        text = (await client.get("/keys")).text
    assert "<code>calibrant keys create</code>" in text and "`" not in text


async def test_a_report_that_cannot_be_archived_says_why(keyed, registry, inbox):
    await registry.put(ModelConfig("default", "a", "binary", 2), None)
    async with people(keyed) as client:
        await signed_in(client, "boss")
        [token] = set(TOKEN.findall((await client.get("/")).text))
        inbox.failing = {"report_metrics": ResultTimeoutError("late")}
        found = await client.post("/models/a/reports", data={"note": "all", "token": token})
        assert found.status_code == 503 and AnswerLate.title in found.text


async def test_a_report_that_several_requests_read_loads_again(app, registry, inbox):
    await registry.put(ModelConfig("default", "a", "binary", 2), None)
    async with people(app) as client:
        for error, again in ((ResultTimeoutError, True), (ResultFailedError, False)):
            inbox.failing = dict.fromkeys(("metrics", "reliability", "temperature"), error("late"))
            found = await client.get("/models/a/report")
            assert found.status_code == (503 if again else 500)
            assert found.headers.get("Retry-After") == ("1" if again else None)
            assert ('data-reload-after="1"' in found.text) is again
