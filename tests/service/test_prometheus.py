"""Series for Prometheus, and the names that rules, dashboards and documents use."""

import asyncio
import hashlib
import json
import re
from pathlib import Path

import httpx
import pytest
import yaml

import calibrant as cal
from calibrant_server.service.reads import fleet, observation
from calibrant_server.service.security.keys import ApiKey, Keyring
from calibrant_server.workers.ingest.inbox_errors import StoreUnavailableError
from calibrant_server.workers.queries.ask import ResultTimeoutError
from scripts.grafana_dashboards import FOLDER, dashboards, written
from tests.service.conftest import PREDICTIONS, problem

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
NAME = re.compile(r"\bcalibrant_[a-z0-9_]+|\bcalibrant:[a-z0-9_:]+")
TALLIES = {
    **{"pending": 3, "waiting": 0, "joined": 2, "deleted": 1, "bytes": 700},
    **{"conflicts": 4, "duplicates": 5, "expired": 6, "expired_unlabelled": 1},
}


def summary(**changes):
    bins = [[1.0] * 15, [0.5] * 15, [0.0] * 15]
    counts = {"generation": "g", "n_detectors": 3, "n_alarms": 1}
    cohorts = {"first_cohort": 0, "cohort": 86_400, "scope": "score", "bins": bins}
    return counts | cohorts | changes


@pytest.fixture
async def watched(client, inbox):
    """One model with a value for every series."""
    await client.put("/v1/models/m", json={"classes": 3, "label_horizon": "P7D"})
    inbox.alarms.result = {"default/m": summary()}
    inbox.tallies_by_model = {"default/m": TALLIES}
    inbox.answers["drift"] = {
        "status": "watch",
        "calibration": {"word": "off", "sentence": "Off.", "value": 0.1},
        "change": {"word": "none_seen", "sentence": "None."},
        "scores": {"word": "shifted", "sentence": "Shifted.", "value": 0.25},
    }
    estimate = {"value": 0.5, "null_mean": 0.2, "null_q95": 0.3, "n": 3}
    inbox.answers["model_status"] = {
        "error": estimate, "label_coverage": 0.75, "temperature": 1.5,
    }  # fmt: skip
    return client


async def samples(client: httpx.AsyncClient, url: str) -> dict[str, float]:
    """Return every sample by its name and labels."""
    text = (await client.get(url)).raise_for_status().text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


async def test_a_model_has_its_status_and_the_sums_of_its_cohorts(watched):
    found = await samples(watched, "/metrics/models")
    model = '{model="m",tenant="default"}'
    expected = {
        "calibrant_model_calibration_error": 0.5,
        "calibrant_model_calibration_error_null_mean": 0.2,
        "calibrant_model_calibration_error_null_q95": 0.3,
        "calibrant_model_temperature": 1.5,
        "calibrant_model_label_horizon_seconds": 7 * 86_400,
        "calibrant_model_last_sealed_cohort_end_timestamp_seconds": 2 * 86_400,
        "calibrant_drift_alarms": 1.0,
        "calibrant_model_score_shift": 0.25,
        "calibrant_records_bytes": 700,
        "calibrant_records_conflicts_total": 4,
    }
    assert {name: found[name + model] for name in expected} == expected
    for name, word, value in (
        ("calibration", "off", 1),
        ("calibration", "good", 0),
        ("change", "none_seen", 1),
        ("scores", "shifted", 1),
    ):
        assert found[f'calibrant_model_{name}{{model="m",tenant="default",word="{word}"}}'] == value
    labels = '{bin="0.06667",model="m",scope="score",tenant="default"}'
    assert found["calibrant_drift_bin_confidence_total" + labels] == 0.5
    # What is not known has no sample: a zero would be believed.
    assert "calibrant_model_map_version" + model not in found
    assert not any(
        name.startswith("calibrant_drift") for name in await samples(watched, "/metrics")
    )


async def test_a_status_is_computed_after_a_change_and_a_late_one_keeps_the_last(
    watched, inbox, monkeypatch
):
    name = 'calibrant_model_temperature{model="m",tenant="default"}'
    assert (await samples(watched, "/metrics/models"))[name] == 1.5
    n_asked = len(inbox.asked)
    await samples(watched, "/metrics/models")
    assert len(inbox.asked) == n_asked
    monkeypatch.setattr(fleet, "STATUS_AGE_S", 0.0)
    await samples(watched, "/metrics/models")
    assert len(inbox.asked) == n_asked, "an unchanged model is not computed again"
    [entry] = inbox.statuses.entries.values()
    inbox.statuses.states["default/m"] = f"{entry.decisions}|other data"
    inbox.failing["model_status"] = ResultTimeoutError("late")
    assert (await samples(watched, "/metrics/models"))[name] == 1.5
    assert len(inbox.asked) > n_asked
    # The status of a deleted model is not that of a new one of the same name.
    del inbox.statuses.states["default/m"]
    await watched.delete("/v1/models/m")
    await watched.put("/v1/models/m", json={"classes": 3})
    assert name not in await samples(watched, "/metrics/models")


async def test_series_have_a_bound_and_report_what_is_beyond_it(client, inbox, app):
    app.state.settings = app.state.settings.model_copy(update={"metrics_models": 2})
    for name in "abc":
        await client.put(f"/v1/models/{name}", json={"classes": 3})
    inbox.alarms.result = {f"default/{name}": summary(first_cohort=None) for name in "abc"}
    found = await samples(client, "/metrics/models")
    alarms = [name for name in found if name.startswith("calibrant_drift_alarms{")]
    assert [name.split('"')[1] for name in alarms] == ["a", "b"]
    assert found["calibrant_models_left_out"] == 1.0
    assert not any(name.startswith("calibrant_drift_first_cohort") for name in found)


async def test_a_key_sees_the_models_of_its_tenant_only(app, watched, inbox):
    await watched.put("/v1/models/m", json={"classes": 3})
    inbox.alarms.result["other/secret"] = summary()
    keys = {
        name: ApiKey.model_validate({"sha256": _hash(name), "name": name, "tenant": tenant, "scopes": scopes})
        for name, tenant, scopes in (("mine", "default", ["read"]), ("theirs", "other", ["read"]), ("in", "default", ["ingest"]))
    }  # fmt: skip
    app.state.keyring = Keyring(tuple(keys.values()))

    async def read(name: str) -> httpx.Response:
        return await watched.get("/metrics/models", headers={"Authorization": f"Bearer {name}"})

    assert 'model="m"' in (await read("mine")).text and "secret" not in (await read("mine")).text
    assert 'model="m"' not in (await read("theirs")).text
    problem(await read("in"), 403, "scope-missing")
    problem(await watched.get("/metrics/models"), 401, "key-required")
    assert (await watched.get("/metrics")).status_code == 200


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


async def test_accepted_rows_and_durations_are_counted_once(client, inbox):
    url = "/v1/models/m/predictions"
    for _ in range(2):
        answer = await client.post(url, json={**PREDICTIONS, "batch_id": "b"})
        assert answer.status_code in (200, 202)
    await client.get("/v1/models/m/metrics")
    found = await samples(client, "/metrics")
    assert found['calibrant_accepted_rows_total{kind="predictions"}'] == 2.0
    assert found["calibrant_ingest_seconds_count"] == 2.0
    assert found["calibrant_query_seconds_count"] == 1.0


@pytest.mark.parametrize("path", ["/metrics", "/readyz"])
async def test_requests_of_one_second_share_one_computation(client, inbox, monkeypatch, path):
    """Nobody needs a key for these: without a bound, a few connections would take the time of all tenants."""
    monkeypatch.setattr(observation, "RECENT_S", 60.0)
    n_computed, troubles = 0, inbox.troubles

    async def counted():
        nonlocal n_computed
        n_computed += 1
        await asyncio.sleep(0.01)
        return await troubles()

    monkeypatch.setattr(inbox, "troubles", counted)
    for _ in range(3):
        answers = await asyncio.gather(*(client.get(path) for _ in range(20)))
        assert {each.status_code for each in answers} == {200}
        assert len({each.content for each in answers}) == 1
    assert n_computed == 1


async def test_an_error_is_shared_for_a_second_and_then_computed_again(client, inbox, monkeypatch):
    monkeypatch.setattr(observation, "RECENT_S", 60.0)
    troubles, n_asked = inbox.troubles, 0

    async def away():
        nonlocal n_asked
        n_asked += 1
        raise StoreUnavailableError("away")

    monkeypatch.setattr(inbox, "troubles", away)
    for _ in range(5):
        problem(await client.get("/readyz"), 503, "store-unavailable")
    assert n_asked == 1
    monkeypatch.setattr(inbox, "troubles", troubles)
    monkeypatch.setattr(observation, "RECENT_S", 0.0)
    assert (await client.get("/readyz")).status_code == 200


async def test_no_series_has_the_time_of_its_beginning(client):
    await client.get("/livez")
    assert "_created" not in (await client.get("/metrics")).text


async def test_every_series_that_is_used_is_exposed(watched, inbox):
    """Rules, dashboards and documents name only series that exist or that the rules record."""
    await watched.get("/v1/models/m/metrics")
    text = (await watched.get("/metrics")).text + (await watched.get("/metrics/models")).text
    exposed = set(NAME.findall(text))
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    each = [rule for group in rules["groups"] for rule in group["rules"]]
    recorded = {rule["record"] for rule in each if "record" in rule}
    used = {name for rule in each for name in NAME.findall(rule["expr"])}
    for board in dashboards().values():
        for panel in board["panels"]:
            queries = [target.get("expr", "") for target in panel["targets"]]
            used |= {name for query in queries for name in NAME.findall(query)}
    for page in (ROOT / "docs").glob("*.md"):
        for block in re.findall(
            r"```promql\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
        ):
            used |= set(NAME.findall(block))
    assert len(used) > 25
    assert used <= exposed | recorded


@pytest.mark.parametrize("name", sorted(dashboards()))
def test_the_committed_dashboards_are_those_of_the_script(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == written(dashboards()[name])
    board = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in board["panels"]]
    assert len(set(places)) == len(places) and len(places) == (
        4 if name == "calibration.json" else 8
    )


async def test_the_dashboard_without_prometheus_asks_for_what_the_service_returns(client):
    """Each address is one of the document, and each column is in a series of metrics."""
    parameters = (await client.get("/openapi.json")).json()["paths"]
    known = parameters["/v1/models/{model}/metrics"]["get"]["parameters"]
    names = {each.get("name") or each["$ref"].rpartition("/")[2] for each in known}
    probabilities, labels = [0.9, 0.2, 0.7, 0.4] * 20, [1, 0, 0, 1] * 20
    for panel in dashboards()["calibration.json"]["panels"]:
        (target,) = panel["targets"]
        address, _, query = target["url"].partition("?")
        asked = dict(each.split("=") for each in query.split("&"))
        assert address == "/v1/models/${model}/metrics" and set(asked) <= names
        report = cal.evaluate(probabilities, labels, asked["metrics"])
        point = {name: each.to_dict() for name, each in report.items()}
        time, *columns = (each["selector"] for each in target["columns"])
        assert time == "window.from"
        for selector in columns:
            _, slug, part = selector.split(".")
            assert re.sub(r"\[[01]\]$", "", part) in point[slug], selector
