"""Routes of dead letters: pages, replay, discard, and what they reject."""

import pytest

from calibrant_server.workers.ingest.dead_letters import DEAD, PARKED, DeadLetter
from tests.service.conftest import PREDICTIONS, problem

pytestmark = pytest.mark.anyio
PATH = "/v1/models/m/dead-letters"


def letter(number, kept=PARKED, received_ms=1_763_800_000_000):
    return DeadLetter(
        0, kept, f"{number}-0", "default/m", "g", f"b{number}", "predictions", "why not", 1_763_800_000_000 + number,
        received_ms, 70,
    )  # fmt: skip


@pytest.fixture
async def letters(client, inbox):
    await client.post("/v1/models/m/predictions", json=PREDICTIONS)
    inbox.letters.letters["default/m"] = [letter(1), letter(2, DEAD, None), letter(3)]
    return inbox.letters


async def test_a_page_has_the_reason_of_each(client, letters):
    first = (await client.get(PATH, params={"limit": 2})).json()
    assert first["dead_letters"][0] == {
        "id": "parked-1-0",
        "status": "parked",
        "batch_id": "b1",
        "kind": "predictions",
        "reason": "why not",
        "received_at": "2025-11-22T08:26:40Z",
        "stored_at": "2025-11-22T08:26:40.001000Z",
        "n_bytes": 70,
    }
    assert first["dead_letters"][1]["status"] == "dead_lettered"
    assert first["dead_letters"][1]["received_at"] is None
    second = (await client.get(PATH, params={"limit": 2, "cursor": first["next"]})).json()
    assert [each["id"] for each in second["dead_letters"]] == ["parked-3-0"]
    assert second["next"] is None


async def test_each_is_replayed_or_discarded_once(client, letters):
    replayed = await client.post(f"{PATH}/parked-1-0/replay")
    assert (replayed.status_code, replayed.json()) == (
        202,
        {"id": "parked-1-0", "status": "accepted"},
    )
    problem(await client.post(f"{PATH}/parked-1-0/replay"), 404, "dead-letter-unknown")
    assert (await client.delete(f"{PATH}/dead-2-0")).status_code == 204
    problem(await client.delete(f"{PATH}/dead-2-0"), 404, "dead-letter-unknown")
    assert [what for what, *_ in letters.done] == ["replay", "replay", "discard", "discard"]


@pytest.mark.parametrize("name", ["other-1-0", "dead-1", "parked-x-0", "dead-1-0-0"])
async def test_other_names_reach_no_store(client, letters, name):
    assert (await client.post(f"{PATH}/{name}/replay")).status_code == 422
    assert letters.done == []


async def test_without_the_model_there_is_no_list(client):
    problem(await client.get(PATH), 404, "model-unknown")
