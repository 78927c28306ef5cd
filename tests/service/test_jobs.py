"""Missing tasks in pages: a job with every other task accepted has more ranges than one response."""

import numpy as np
import pytest

from calibrant_server.workers.store.jobs import Job
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
TASKS = 4501


async def test_missing_tasks_have_pages(client, inbox, monkeypatch):
    await client.put("/v1/models/m", json={"classes": 3})
    bits = np.packbits(np.arange(TASKS) % 2 == 0).tobytes()

    async def get(config, name):
        return Job(name, TASKS, TASKS // 2 + 1, False, 0), bits

    monkeypatch.setattr(inbox.jobs, "get", get)
    found, first, n_pages = [], 0, 0
    while first is not None:
        page = (await client.get("/v1/models/m/jobs/j", params={"from": first})).json()
        found += page["missing"]
        first, n_pages = page["missing_next"], n_pages + 1
    assert found == [[at, at + 1] for at in range(1, TASKS, 2)]
    assert n_pages == 3


async def test_a_query_that_is_no_task_is_rejected(client):
    await client.put("/v1/models/m", json={"classes": 3})
    await client.post("/v1/models/m/jobs", json={"job": "j", "tasks": 3})
    found = await client.get("/v1/models/m/jobs/j", params={"from": -1})
    assert problem(found, 422, "invalid-query")["errors"][0]["pointer"] == "/from"
