"""Settings of the alarm, alarms, deliveries and meters at the door."""

import base64
from dataclasses import replace

import pytest

from calibrant_server.workers.alarm.deliveries import delivery_of
from calibrant_server.workers.alarm.episodes import CLOSED, OPEN, Episode
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOOK = "https://pager.example.org/x"


def with_alarm(**alarm):
    return {"classes": ["no", "maybe", "yes"], "label_horizon": "P7D", "alarm": alarm}


@pytest.mark.parametrize(
    ("alarm", "pointer", "rule"),
    [
        ({"tolerance": 1.0}, "/alarm/tolerance", "less_than"),
        ({"tolerance": -0.1}, "/alarm/tolerance", "greater_than_equal"),
        ({"false_alarms": "rarely"}, "/alarm/false_alarms", "false_alarms"),
        ({"false_alarms": "9 per P1D"}, "/alarm/false_alarms", "run_length"),
        ({"bucket": "PT90M"}, "/alarm/bucket", "whole_panes"),
        ({"bucket": "a day"}, "/alarm/bucket", "iso_8601"),
        ({"bets": ["never"]}, "/alarm/bets", "unknown_class"),
        ({"bets": [3]}, "/alarm/bets", "unknown_class"),
        ({"bets": ["no", 0]}, "/alarm/bets", "repeated"),
        ({"bets": []}, "/alarm/bets", "classes"),
        ({"raters": "loudest"}, "/alarm/raters", "unknown_value"),
        ({"raters": "rater:"}, "/alarm/raters", "unknown_value"),
        ({"raters": "rater:a\nb"}, "/alarm/raters", "unknown_value"),
        ({"rater_detectors": 65}, "/alarm/rater_detectors", "less_than_equal"),
        ({"scores": "cooked"}, "/alarm/scores", "unknown_value"),
        ({"colour": "red"}, "/alarm/colour", "unknown_field"),
        ({"bets": "everything"}, "/alarm/bets", "bets"),
        ({"bets": [True]}, "/alarm/bets", "bets"),
        ({"bets": "positive"}, "/alarm/bets", "other_score"),
        ({"webhooks": [{"url": "ftp://a.b/c"}]}, "/alarm/webhooks/0/url", "url"),
        ({"webhooks": [{"url": "https://me:it@a.b/c"}]}, "/alarm/webhooks/0/url", "url"),
        ({"webhooks": [{"url": HOOK, "secret": "s"}]}, "/alarm/webhooks/0/secret", "secret"),
        ({"webhooks": [{"url": HOOK, "secret": "whsec_…"}]}, "/alarm/webhooks/0/secret", "secret"),
        ({"webhooks": [{"url": HOOK, "format": "email"}]}, "/alarm/webhooks/0", "format"),
        ({"webhooks": [{"url": "mailto:a@b.c"}]}, "/alarm/webhooks/0", "format"),
        ({"webhooks": [{"url": HOOK, "format": "pagerduty"}]}, "/alarm/webhooks/0", "secret"),
        (
            {"webhooks": [{"url": HOOK, "format": "slack", "secret": SECRET}]},
            "/alarm/webhooks/0",
            "secret",
        ),
        ({"webhooks": [{"url": HOOK}, {"url": HOOK}]}, "/alarm/webhooks", "repeated"),
    ],
)
async def test_settings_that_break_a_rule(client, alarm, pointer, rule):
    found = problem(await client.put(URL, json=with_alarm(**alarm)), 422, "invalid-input")
    assert any(
        each["pointer"].startswith(pointer) and each["rule"] == rule for each in found["errors"]
    ), found["errors"]


@pytest.mark.parametrize(
    "url",
    [
        "https://10.1.2.3/hook", "https://169.254.169.254/latest", "https://[::1]:8443/", "https://localhost/x",
        "https://0x7f.1/x", "https://2130706433/", "http://pager.example.org/x", "http://1.1.1.1/",
    ],
)  # fmt: skip
async def test_a_receiver_that_is_blocked_is_rejected_when_it_is_declared(client, url):
    hooks = [{"url": HOOK}, {"url": url}]
    made = await client.put(URL, json=with_alarm(webhooks=hooks))
    [error] = problem(made, 422, "invalid-input")["errors"]
    assert error["pointer"] == "/alarm/webhooks/1/url" and error["rule"] == "blocked_receiver"
    assert "CALIBRANT_WEBHOOK_NETWORKS" in error["detail"]
    assert (await client.put(URL, json=with_alarm())).status_code == 201
    patch = {"alarm": {"webhooks": hooks}}
    answer = await client.patch(URL, json=patch, headers={"If-Match": "*"})
    assert problem(answer, 422, "invalid-input")["errors"] == [error]


async def test_a_receiver_that_was_stored_before_stays(client, registry):
    """An upgrade does not make the settings of a model unchangeable."""
    await client.put(URL, json=with_alarm(webhooks=[{"url": HOOK}]))
    kept = registry.configs["default", "digits"]
    old = {"webhooks": [{"url": "https://10.0.0.1/x", "secret": SECRET}]}
    registry.configs["default", "digits"] = replace(kept, alarm=old)
    patch = {"alarm": {"tolerance": 0.05}}
    assert (await client.patch(URL, json=patch, headers={"If-Match": "*"})).status_code == 200


async def test_a_secret_is_made_and_shown_once(client, registry):
    document = with_alarm(webhooks=[{"url": HOOK}], bets=["yes"])
    made = (await client.put(URL, json=document)).json()
    [shown] = made["alarm"]["webhooks"]
    assert len(base64.b64decode(shown["secret"].removeprefix("whsec_"))) == 24
    read = (await client.get(URL)).json()
    assert read["alarm"] == {"bets": ["yes"], "webhooks": [{"url": HOOK, "secret": "whsec_…"}]}
    assert read["alarm"]["bets"] == ["yes"]
    kept = registry.configs["default", "digits"]
    assert kept.alarm == {"bets": [2], "webhooks": [shown]}
    # What was read may be written back, and what was declared declared again, without a change.
    for same in (document, {**document, "alarm": read["alarm"]}):
        again = await client.put(URL, json=same)
        assert (again.status_code, again.json()["revision"]) == (200, 1)
    patch = {"alarm": {"tolerance": 0.0}}
    patched = await client.patch(URL, json=patch, headers={"If-Match": "*"})
    assert patched.json()["alarm"]["webhooks"] == [{"url": HOOK, "secret": "whsec_…"}]
    assert registry.configs["default", "digits"].alarm["webhooks"] == [shown]
    given = {"alarm": {"webhooks": [{"url": HOOK, "secret": SECRET}]}}
    answer = await client.patch(URL, json=given, headers={"If-Match": "*"})
    assert SECRET not in answer.text
    assert registry.configs["default", "digits"].alarm["webhooks"][0]["secret"] == SECRET


@pytest.mark.parametrize(("task", "named"), [("binary", "positive"), ("multiclass", "top_label")])
async def test_the_score_may_be_named(client, registry, task, named):
    """And is kept as the score, so that nothing begins anew."""
    document = {"task": task, "classes": ["no", "yes"]}
    url = f"/v1/models/{task}"
    await client.put(url, json={**document, "alarm": {"bets": "score"}})
    again = await client.put(url, json={**document, "alarm": {"bets": named}})
    assert (again.status_code, again.json()["revision"], again.json()["alarm"]) == (
        200,
        1,
        {"bets": "score"},
    )
    other = "top_label" if task == "binary" else "positive"
    patch = client.patch(url, json={"alarm": {"bets": other}}, headers={"If-Match": "*"})
    [violation] = problem(await patch, 422, "invalid-input")["errors"]
    assert violation["pointer"] == "/alarm/bets" and named in violation["detail"]


def episode(name="al_000_00000000000000000001", **changes):
    plain = Episode(
        name, "default", "digits", "", "score", "", OPEN, 1, 86_400, 86_400, 0, 4.0, 3.5,
        {}, {"action": "temperature", "reason": "...", "evidence": {}}, None, 1e9, 1e9,
    )  # fmt: skip
    return replace(plain, **changes)


@pytest.fixture
async def alarmed(client, inbox, registry):
    await client.put(URL, json=with_alarm(webhooks=[{"url": HOOK}]))
    generation = registry.configs["default", "digits"].generation
    second = episode("al_000_00000000000000000002", status=CLOSED, generation=generation)
    foreign = episode("al_000_00000000000000000003", tenant="other", generation=generation)
    inbox.alarms.held = [episode(generation=generation), second, foreign]
    return client


async def test_whose_labels_and_which_scores_count_can_be_set(client, registry):
    alarm = {"raters": "rater:ann@site.org", "scores": "raw", "rater_detectors": 0}
    assert (await client.put(URL, json=with_alarm(**alarm))).json()["alarm"] == alarm
    assert registry.configs["default", "digits"].alarm == alarm


async def test_alarms_are_listed_and_read(alarmed):
    listed = (await alarmed.get("/v1/alarms")).json()["alarms"]
    assert [each["id"][-1] for each in listed] == ["1", "2"]
    [opened] = (await alarmed.get("/v1/alarms?state=open&model=digits")).json()["alarms"]
    assert opened["cohort"] == {"from": "1970-01-02T00:00:00Z", "to": "1970-01-03T00:00:00Z"}
    assert "generation" not in opened and opened["title"] == "calibration drift"
    assert (await alarmed.get(f"/v1/alarms/{opened['id']}")).json() == opened
    problem(await alarmed.get("/v1/alarms/al_000_00000000000000000003"), 404, "alarm-unknown")
    problem(await alarmed.get("/v1/alarms?state=shut"), 422, "invalid-query")
    problem(await alarmed.get("/v1/alarms?model=digit"), 404, "model-unknown")


async def test_an_alarm_is_acknowledged_with_a_note(alarmed, inbox):
    url = "/v1/alarms/al_000_00000000000000000001/acknowledge"
    answer = await alarmed.post(url, json={"note": "new scanner"})
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result["acknowledged_at"]
    assert (result["state"], result["note"], result["acknowledged_by"]) == (
        "acknowledged",
        "new scanner",
        "default",
    )
    assert inbox.orders[-1][1]["op"] == "acknowledge"
    again = await alarmed.post(url, json={})
    assert again.json() == result and len(inbox.orders) == 1
    for state, n in (("open", 0), ("acknowledged", 1), ("closed", 1)):
        found = (await alarmed.get(f"/v1/alarms?state={state}")).json()["alarms"]
        assert [each["state"] for each in found] == [state] * n
    closed = url.replace("0001/", "0002/")
    problem(await alarmed.post(closed, json={}), 409, "alarm-closed")
    problem(await alarmed.post(url, json={"colour": "red"}), 422, "invalid-input")


async def test_webhooks_are_tried_and_their_log_is_read(alarmed, inbox):
    answer = await alarmed.post(f"{URL}/alarm/test")
    assert (answer.status_code, answer.json()["receivers"]) == (202, 1)
    sent = delivery_of("default/digits", "g", HOOK, "alarm.test", "x", {}, 1e9)
    inbox.alarms.sent = [sent.attempted(1e9, 500, None)]
    [shown] = (await alarmed.get(f"{URL}/alarm/deliveries")).json()["deliveries"]
    assert (shown["status"], shown["attempts"][0]["status"]) == ("waiting", 500)
    assert "secret" not in shown
    await alarmed.put("/v1/models/mute", json={"classes": 3})
    problem(await alarmed.post("/v1/models/mute/alarm/test"), 409, "webhooks-missing")


async def test_the_verdict_names_a_class_by_its_index(client, inbox):
    await client.put(URL, json=with_alarm(bets=["yes"]))
    for path in ("drift", "drift/history"):
        assert (await client.get(f"{URL}/{path}?scope=class:yes")).status_code == 200
        assert inbox.asked[-1][2]["scope"] == "class:2"
        answer = await client.get(f"{URL}/{path}?scope=class:never")
        problem(answer, 422, "invalid-query")


async def test_a_class_that_is_not_watched_is_rejected(client, inbox):
    """Its history was "being evaluated" forever."""
    await client.put(URL, json=with_alarm())
    rejected = await client.get(f"{URL}/drift?scope=class:1")
    [error] = problem(rejected, 422, "invalid-query")["errors"]
    assert (error["pointer"], error["rule"]) == ("/scope", "not_watched")
    assert "class:1" in error["detail"] and "bets" in error["detail"] and "PATCH" in error["detail"]
    problem(await client.get(f"{URL}/drift/history?scope=class:1"), 422, "invalid-query")
    changed = {"alarm": {"bets": ["maybe"]}}
    assert (await client.patch(URL, json=changed, headers={"If-Match": "*"})).status_code == 200
    inbox.answers["drift"] = {}
    assert (await client.get(f"{URL}/drift?scope=class:maybe")).status_code != 422
    [error] = problem(await client.get(f"{URL}/drift?scope=class:0"), 422, "invalid-query")[
        "errors"
    ]
    assert "watches: class:1." in error["detail"]


@pytest.mark.parametrize(
    ("receiver", "detail"),
    [
        ({"format": "pagerduty"}, "Received no secret; expected the integration key of PagerDuty"),
        ({"format": "pagerduty", "secret": SECRET}, "Received another secret; expected the"),
        ({"secret": "a" * 32}, "key of PagerDuty for the format standard; expected it for"),
    ],
)
async def test_a_wrong_secret_is_told_as_it_was_sent(client, receiver, detail):
    rejected = await client.put(URL, json=with_alarm(webhooks=[{"url": HOOK, **receiver}]))
    [error] = problem(rejected, 422, "invalid-input")["errors"]
    assert detail in error["detail"]


async def test_a_hidden_key_has_no_prefix_of_another_format(client):
    receiver = {"url": HOOK, "format": "pagerduty", "secret": "a" * 32}
    await client.put(URL, json=with_alarm(webhooks=[receiver]))
    shown = (await client.get(URL)).json()["alarm"]
    assert shown["webhooks"][0]["secret"] == "…"
    kept = await client.patch(URL, json={"alarm": shown}, headers={"If-Match": "*"})
    assert kept.status_code == 200, kept.text


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        ({"bucket": "PT90M"}, "Received PT90M; expected a multiple of the model's panes of PT1H."),
        ({"bucket": "P0D"}, "expected more than 0 seconds"),
        ({"bucket": "P1M"}, "months and years have no fixed length"),
        ({"bucket": 7}, "Received 7 for bucket; expected a text such as P7D"),
        ({"bets": "positive"}, "Received positive; expected top_label"),
        ({"raters": "loudest"}, "Received 'loudest'; expected one of pooled"),
    ],
)
async def test_an_error_has_the_given_value_and_the_limit(client, given, detail):
    [error] = (await client.put(URL, json=with_alarm(**given))).json()["errors"]
    assert detail in error["detail"], error["detail"]
