"""How many files a reader goes through to follow one GET: the files with an executed function are counted.

Bounded are the files of the HTTP service and of the engine, where a request is carried, and apart from them those of the
library, where the numbers are made.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tracing import Trace, one_process, traced

MAX_FILES_OF_A_GET = 32
MAX_FILES_OF_THE_LIBRARY = 32
THREADS = ("MainThread", "compute-", "AnyIO")
ROWS = {"probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], "labels": [0, 1]}
ROOT = Path(__file__).parents[2]
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
    assert "workers/queries/kinds/metrics.py" in path
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert [each for each in path if each not in page and each not in OF_THE_PROCESS] == []
    assert len(path) <= MAX_FILES_OF_A_GET
    assert len(library) <= MAX_FILES_OF_THE_LIBRARY
    assert len(path_of_cached) + len(library_of_cached) <= MAX_FILES_OF_A_GET


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
