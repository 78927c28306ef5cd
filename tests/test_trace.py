"""How many files a reader opens to follow one request: a bound, so that the path stays short enough to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tracing import one_process, traced

MAX_POST_FILES = 40
TWO_ROWS = {"probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], "labels": [0, 1]}


@pytest.mark.anyio
async def test_a_post_runs_through_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALIBRANT_PARTITIONS", "1")
    monkeypatch.setenv("CALIBRANT_HOUSEKEEPING_S", "3600")
    url, headers = "/v1/models/m/predictions", {"Prefer": "wait=30"}
    with traced() as trace:
        async with one_process(tmp_path) as client:
            for _ in range(2):
                assert (await client.post(url, json=TWO_ROWS, headers=headers)).status_code == 200
            # A response may overtake the last steps of the loop after the commit.
            trace.recording = True
            await trace.until("partition-", "PartitionLoop._read")
            trace.calls.clear()
            response = await client.post(url, json=TWO_ROWS, headers=headers)
            await trace.until("partition-", "PartitionLoop._read")
            trace.recording = False
    assert response.json()["status"] == "merged"
    threads = ("MainThread", "partition-")
    files = trace.files(*threads, without="accumulators")
    print(*(f"{place:3d} {file}" for place, file in enumerate(files, 1)), sep="\n")
    below = [file for file in trace.files(*threads) if file not in files]
    print("in accumulators only:", *below, sep="\n    ")
    assert "workers/store/commit.py" in files, "the trace misses the commit"
    assert len(files) <= MAX_POST_FILES
