"""`GET /v1/models?view=status` over a fleet: what it computes, what it takes from the index, and what it flags."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import orjson
import pytest

from calibrant.results.base import short_estimate
from calibrant_server.service.reads.fleet_flags import fleet_flags
from calibrant_server.service.reads.model_documents import shown
from calibrant_server.service.reads.model_list import row_of
from calibrant_server.workers.queries.ask import ResultTimeoutError, WindowDamaged
from calibrant_server.workers.store.model_config import ModelConfig

pytestmark = pytest.mark.anyio


@pytest.fixture
async def models(client, registry, inbox):
    """120 models, each with a status."""
    for number in range(120):
        await registry.put(ModelConfig("default", f"m{number:03d}", "binary", 2), None)
    inbox.answers["drift"] = {"status": "ok"}
    inbox.answers["model_status"] = {"error": {"value": 0.5, "n": 3}, "temperature": 1.5}


async def page(client, **query):
    found = await client.get("/v1/models", params={"view": "status", "limit": 1000, **query})
    assert found.status_code == 200, found.text
    return found.json()["models"]


def computed(inbox) -> int:
    """Models that were queried since the last call; each by two queries."""
    n = len(inbox.asked)
    inbox.asked.clear()
    assert n % 2 == 0
    return n // 2


async def test_a_page_computes_a_bounded_number_and_then_none(client, inbox, models):
    for expected in (50, 50, 20, 0, 0):
        rows = await page(client)
        assert len(rows) == 120 and computed(inbox) == expected
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["error"]["value"] for row in rows} == {0.5}
    assert all(row["as_of"] and row["reason"] is None for row in rows)


async def test_models_without_an_entry_say_so(client, inbox, models):
    rows = await page(client)
    missing = [row for row in rows if row["as_of"] is None]
    assert len(missing) == 70
    assert {(row["status"], row["reason"]) for row in missing} == {(None, "not_ready")}


async def test_a_changed_model_is_computed_again(client, inbox, models):
    for _ in range(3):
        await page(client)
    computed(inbox)
    inbox.answers["drift"] = {"status": "alarm"}
    inbox.statuses.states["default/m007"] = "another"
    rows = await page(client)
    assert computed(inbox) == 1
    assert [row["model"] for row in rows if row["status"] == "alarm"] == ["m007"]


async def test_an_entry_is_outdated_after_an_hour_the_oldest_first(client, inbox, models):
    for _ in range(3):
        await page(client)
    computed(inbox)
    for number in range(60):
        key = f"default/m{number:03d}"
        old = inbox.statuses.entries[key]
        inbox.statuses.entries[key] = replace(old, at_s=old.at_s - 3600 - number)
    before = {row["model"]: row["as_of"] for row in await page(client)}
    assert computed(inbox) == 50
    after = {row["model"]: row["as_of"] for row in await page(client)}
    # The first page took those that were 10 to 59 s older; the second the rest.
    assert computed(inbox) == 10
    assert {name for name in after if after[name] != before[name]} >= {
        f"m{n:03d}" for n in range(9)
    }


async def test_a_status_that_is_not_ready_is_not_indexed(client, inbox, models):
    inbox.failing["model_status"] = ResultTimeoutError("late")
    await page(client, limit=10)
    assert not inbox.statuses.entries
    del inbox.failing["model_status"]
    await page(client, limit=10)
    assert len(inbox.statuses.entries) == 10


async def test_the_last_status_is_shown_until_the_next_is_ready(client, inbox, models, registry):
    """After a midnight's sealing, a model with an open alarm was listed last, with the word "unknown"."""
    inbox.answers["drift"] = {"status": "watch"}
    before = (await page(client, limit=1))[0]
    inbox.statuses.states["default/m000"] = "sealed"
    inbox.failing["drift"] = ResultTimeoutError("late")
    assert (await page(client, limit=1)) == [before]
    [config] = [each for each in await registry.list("default") if each.model == "m000"]
    inbox.alarms.result = {"default/m000": {"generation": config.generation, "n_alarms": 1}}
    assert (await page(client, limit=1)) == [before | {"status": "alarm"}]
    inbox.answers["drift"] = {"status": "alarm"}
    del inbox.failing["drift"]
    assert (await page(client, limit=1))[0]["status"] == "alarm"


async def test_an_open_alarm_is_listed_before_a_status_is_computed(client, inbox, models, registry):
    [config] = [each for each in await registry.list("default") if each.model == "m000"]
    inbox.alarms.result = {"default/m000": {"generation": config.generation, "n_alarms": 1}}
    inbox.failing["drift"] = ResultTimeoutError("late")
    first, second = await page(client, limit=2)
    assert (first["status"], first["reason"], second["status"]) == ("alarm", "not_ready", None)
    del inbox.failing["drift"]
    inbox.answers["drift"] = {"status": "alarm"}
    assert {row["status"] for row in await page(client, limit=2)} == {"alarm"}
    inbox.alarms.result = {}
    inbox.statuses.states["default/m001"] = "acknowledged"
    inbox.failing["drift"] = ResultTimeoutError("late")
    second = (await page(client, limit=2))[1]
    assert (second["status"], second["reason"]) == (None, "not_ready")


async def test_a_first_status_turned_when_its_alarm_was_raised(client, inbox, models):
    """Of five alarms of one hour, those whose status had not been computed before were not "new"."""
    inbox.answers["drift"] = {"status": "alarm", "alarm": "al_000_1"}
    inbox.alarms.held = [SimpleNamespace(tenant="default", id="al_000_1", raised_s=1_700_000_000)]
    row = (await page(client, limit=1))[0]
    assert (row["status"], row["turned_at"]) == ("alarm", "2023-11-14T22:13:20Z")


async def test_a_status_that_failed_is_computed_again_after_a_minute(client, inbox, models):
    inbox.failing["drift"] = WindowDamaged("a pane cannot be read", [])
    failed = await page(client, limit=10)
    assert {(row["status"], row["temperature"], row["reason"]) for row in failed} == {
        (None, 1.5, "not_computed")
    }
    assert computed(inbox) == 10
    del inbox.failing["drift"]
    assert (await page(client, limit=10)) == failed and computed(inbox) == 0
    for key, old in inbox.statuses.entries.items():
        inbox.statuses.entries[key] = replace(old, at_s=old.at_s - 60)
    assert {row["status"] for row in await page(client, limit=10)} == {"ok"}


def naive(p: dict[tuple[str, str], float], share: float) -> set[tuple[str, str]]:
    """Benjamini and Yekutieli: the largest k of which k p-values are at most k share / (m Σ 1/i)."""
    m = len(p)
    harmonic = sum(1 / i for i in range(1, m + 1))
    best: set[tuple[str, str]] = set()
    for k in range(1, m + 1):
        enough = {name for name, value in p.items() if value <= k * share / (m * harmonic)}
        if len(enough) >= k:
            best = set(sorted(enough, key=lambda name: (p[name], name))[:k])
    return best


def config(name: str, generation: str = "g") -> ModelConfig:
    return ModelConfig("t", name, "binary", 2, generation=generation)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_flags_of_the_fleet_equal_the_definition(seed, share):
    rng = random.Random(seed)
    configs = [config(f"m{number}") for number in range(30)]
    names = ["score|", "score|site:A", "score|site:B"]
    summaries = {
        each.key: {
            "generation": "g",
            "p": {name: 10 ** -rng.uniform(0, 6) for name in rng.sample(names, 2)},
        }
        for each in configs
    }
    evidence = {
        (key, name): value
        for key, summary in summaries.items()
        for name, value in summary["p"].items()  # type: ignore[attr-defined]
    }
    found = fleet_flags(summaries, configs, share)
    pairs = {
        (key, f"score|{each['slice'] or ''}") for key, several in found.items() for each in several
    }
    assert pairs == naive(evidence, share)
    assert pairs, "the case flags nothing"


def test_the_fleet_needs_more_evidence_than_one_model():
    """One of 1,000 models with a p-value of .001: alone it is flagged, in the fleet it is not."""
    strong = {"generation": "g", "p": {"score|": 0.001}}
    weak = {"generation": "g", "p": {"score|": 1.0}}
    fleet_of_many = [config(f"m{number}") for number in range(1000)]
    summaries = {each.key: weak for each in fleet_of_many} | {"t/m0": strong}
    assert fleet_flags(summaries, fleet_of_many[:1], 0.05)["t/m0"]
    assert not fleet_flags(summaries, fleet_of_many, 0.05)
    many = summaries | {f"t/m{number}": strong for number in range(300)}
    assert fleet_flags(many, fleet_of_many, 0.05)["t/m0"]


def test_evidence_of_another_generation_does_not_count():
    summaries = {"t/m": {"generation": "old", "p": {"score|": 1e-9}}}
    assert fleet_flags(summaries, [config("m")], 0.05) == {}


async def test_a_key_of_few_models_sees_the_flags_of_the_complete_fleet(client, inbox, models):
    configs = await inbox.registry.list("default")
    inbox.alarms.result = {
        each.key: {
            "generation": each.generation,
            "n_alarms": 0,
            "p": {"score|": 1e-6 if each.model == "m003" else 1.0},
        }
        for each in configs
    }
    rows = await page(client, limit=10)
    assert [row["model"] for row in rows if row["flagged"]] == ["m003"]
    assert rows[3]["flagged"] == [{"scope": None, "slice": None, "p": 1e-6}]
    rows = await page(client, limit=10, false_flags=0.00001)
    assert not any(row["flagged"] for row in rows)
    assert (await client.get("/v1/models?view=status&false_flags=0")).status_code == 422


def test_a_row_with_long_sentences_is_at_most_1200_bytes():
    """Rows of thirty real classifiers had up to 1,369 bytes."""
    sentence = "Not known: the error may be up to 0.04 (allowed 0.02), measured on 12,000 labelled units; about 5,200 more would decide. "
    word = {"word": "no_recent_predictions", "sentence": 2 * sentence, "value": 0.0401706542042}
    numbers = dict.fromkeys(("value", "null_mean", "null_q95", "corrected"), 0.01234567890123456)
    estimate = numbers | {"interval": [0.01234567890123456] * 2, "above_null": True, "n": 12000}
    status = {
        "calibration": word | {"n": 12000.0},
        "change": word | {"smallest_change": 0.0799108031205833, "start": None, "n": 12000.0},
        "scores": word | {"start": None},
        "error": short_estimate(estimate),
        "temperature": 0.7743916763401629,
        "label_coverage": 0.7142857142857143,
        "last_seen": "2026-11-28T00:00:00Z",
        "reason": None,
    }
    settings = shown(config("a-name-of-thirty-characters-at")) | {"tags": {"owner": "ann"}}
    assert len(orjson.dumps(row_of(settings, status, details=False))) <= 1200
    assert row_of(settings, status, details=True)["scores"]["sentence"] == 2 * sentence


async def test_a_good_word_of_a_selection_has_its_bounds(client, inbox, models):
    inbox.answers["drift"] = {"calibration": {"word": "good", "bounds": [0.003, 0.43], "n": 8.0}}
    [row, *_] = await page(client, limit=1)
    assert row["calibration"] == {"word": "good", "n": 8.0, "bounds": [0.003, 0.43]}
