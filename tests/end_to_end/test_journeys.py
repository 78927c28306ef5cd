"""How many files a reader goes through to follow one request: the files with an executed function are counted.

Bounded are the files of the HTTP service and of the engine together, where a request is carried, and apart from them those
of the library, where the numbers are made. Accumulators are left out; for a POST also what only they call.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tracing import ROOT, Trace, one_process, traced

PAGE = ROOT / "docs" / "architecture.md"

# One of them receives the rest of a rejected body, and two of the library names of classes and warnings.
MAX_FILES_OF_A_POST = 45
MAX_LIBRARY_FILES_OF_A_POST = 14
MAX_FILES_OF_A_GET = 33
# One of them the interval of a mean.
MAX_LIBRARY_FILES_OF_A_GET = 36
MAX_FILES_OF_A_CACHED_GET = 36
THREADS = ("MainThread", "compute-", "AnyIO")
ROWS = {"probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], "labels": [0, 1]}
OF_THE_PROCESS = ("service/startup.py",)
URL = "/v1/models/m/metrics?metrics=ece,brier"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_get_of_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm: the model is known and its panes are cached. First computed, then found in the cache."""
    monkeypatch.setenv("CALIBRANT_PARTITIONS", "1")
    with traced() as trace:
        async with one_process(tmp_path) as client:
            sent = await client.post(
                "/v1/models/m/predictions", json=ROWS, headers={"Prefer": "wait=60"}
            )
            assert sent.status_code == 200, sent.text
            assert (await client.get(f"{URL}&bins=10")).status_code == 200
            trace.recording = True
            computed = await client.get(URL)
            trace.recording = False
            path, library = shown(trace, "computed")
            trace.calls.clear()
            trace.recording = True
            again = await client.get(URL)
            trace.recording = False
            path_of_cached, library_of_cached = shown(trace, "cached")
    assert computed.json() == again.json() and computed.json()["n_predictions"] == 2
    assert "calibrant/results/metrics.py" in library
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert [each for each in path if each not in page and each not in OF_THE_PROCESS] == []
    assert len(path) <= MAX_FILES_OF_A_GET
    assert len(library) <= MAX_LIBRARY_FILES_OF_A_GET
    assert len(path_of_cached) + len(library_of_cached) <= MAX_FILES_OF_A_CACHED_GET


@pytest.mark.anyio
async def test_a_post_of_two_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm: the model is known and its pane is cached."""
    monkeypatch.setenv("CALIBRANT_PARTITIONS", "1")
    monkeypatch.setenv("CALIBRANT_HOUSEKEEPING", "3600")
    url, headers = "/v1/models/m/predictions", {"Prefer": "wait=60"}
    rows = {name: ROWS[name][:2] for name in ROWS}
    threads, found = ("MainThread", "partition-"), list[tuple[list[str], list[str]]]()
    with traced() as trace:
        async with one_process(tmp_path) as client:
            for _ in range(2):
                trace.recording = True
                sent = await client.post(url, json=rows, headers=headers)
                assert sent.status_code == 200, sent.text
            # A response may overtake the last steps of the loop after the commit.
            trace.recording = True
            await trace.until("partition-", "PartitionThreads._has_work")
            for _ in range(3):
                trace.calls.clear()
                response = await client.post(url, json=rows, headers=headers)
                assert response.json()["status"] == "merged"
                await trace.until("partition-", "PartitionThreads._has_work")
                path = trace.files(*threads, without="accumulators")
                found.append((path, trace.files(*threads)))
            trace.recording = False
    # Each second the process renews its lease of tokens, reads keys and so on: a slow request may meet some of that, not all three.
    path, every = ([each for each in some[0] if all(each in one for one in some)]
                   for some in zip(*found, strict=True))  # fmt: skip
    below = [file for file in every if file not in path]
    library = [each for each in path if each.startswith("calibrant/")]
    n_carrying = len(path) - len(library)
    print(f"\nPOST: {n_carrying} files of service and engine, {len(library)} of the library,")
    print(f"and {len(below)} accumulators and what only they call")
    print(*(f"{place:3d} {file}" for place, file in enumerate(path, 1)), sep="\n")
    print("in accumulators only:", *below, sep="\n    ")
    assert "workers/store/commit.py" in path
    section = PAGE.read_text().partition("## Path of a posted batch")[2].partition("\n## ")[0]
    assert not set(path) - set(re.findall(r"`([\w/]+\.py)`", section)), "the page misses a stop"
    assert n_carrying <= MAX_FILES_OF_A_POST
    assert len(library) <= MAX_LIBRARY_FILES_OF_A_POST


def shown(trace: Trace, what: str) -> tuple[list[str], list[str]]:
    """The files of service and engine, and those of the library without accumulators; printed."""
    files = trace.files(*THREADS)
    library = [each for each in files if each.startswith("calibrant/")]
    library = [each for each in library if not each.startswith("calibrant/accumulators/")]
    path = [each for each in files if not each.startswith("calibrant/")]
    print(
        f"\nGET metrics, {what}: {len(path)} files of service and engine, {len(library)} of the library"
    )
    print(*path, *library, sep="\n")
    return path, library
