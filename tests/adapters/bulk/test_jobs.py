"""A bulk job against a real service: equal to a direct post of the rows, and counted once whatever is killed or repeated."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="the engines are installed by `make test-adapters`")

import httpx
import numpy as np
import polars as pl

import calibrant as cal
from tests.adapters.bulk.tables import SPEC, START_US, table, write
from tests.adapters.service import running_service
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
PATIENCE_S = 300
N = 100_000
METRICS = ["ece", "mce", "ace", "classwise_ece", "all_label_ece", "accuracy", "nll", "brier"]
WINDOW = {
    "from_": datetime.fromtimestamp(START_US / 1e6, UTC),
    "to": datetime.fromtimestamp(START_US / 1e6, UTC) + timedelta(hours=12),
}
JOB = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import polars as pl
import calibrant as cal
from bulk_polars import reduce
from tests.adapters.bulk.tables import COLUMNS, SPEC

url, model, dies, *paths = sys.argv[1:]
fill_by, n_pieces = cal.fill_by, 0

def dying(*given, **named):
    global n_pieces
    n_pieces += 1
    if dies == "reducing" and n_pieces == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return fill_by(*given, **named)

def sent(panes):
    for number, (key, pane) in enumerate(sorted(panes.items())):
        if dies == "sending" and number == 33:
            os.kill(os.getpid(), signal.SIGKILL)
        yield key, pane

cal.fill_by = dying
rows = pl.scan_parquet(paths)
panes = reduce(rows, SPEC, pieces=4, slices=["site"], combine_slices=True, **COLUMNS)
with cal.Client(url) as client:
    receipts = client.model(model).send_panes(sent(panes), source="predictions@1", wait=120)
print(*(each.duplicate for each in receipts))
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A service with the embedded store."""
    with running_service(tmp_path_factory.mktemp("service")) as address:
        yield address


def declared(url: str, name: str) -> None:
    definition = {"task": "multiclass", "classes": SPEC.n_classes, "pane": "PT1H"}
    response = httpx.put(f"{url}/v1/models/{name}", json=definition)
    assert response.status_code == 201, response.text


def job(url: str, model: str, dies: str, paths: list[str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "docs" / "examples")])
    return subprocess.run(
        [sys.executable, "-c", JOB, url, model, dies, *paths],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip


def test_a_killed_and_repeated_job_counts_once_and_equals_a_direct_post(url, tmp_path):
    rows = table(N)
    paths = write(rows, tmp_path)
    for name in ("direct", "killed"):
        declared(url, name)
    for dies in ("reducing", "sending"):
        assert job(url, "killed", dies, paths).returncode == -signal.SIGKILL
    with cal.Client(url, timeout=PATIENCE_S) as client:
        before = client.model("killed").metrics("ece", **WINDOW)
        assert 0 < before.n_labelled < N
        resumed, repeated = (job(url, "killed", "", paths) for _ in range(2))
        assert resumed.returncode == repeated.returncode == 0, resumed.stderr + repeated.stderr
        assert resumed.stdout.split() == ["True", "False"]
        assert repeated.stdout.split() == ["True", "True"]

        post(client.model("direct"), rows)
        for scope in ({}, {"slice": "site:B"}):
            found, expected = (
                client.model(name).metrics(METRICS, **WINDOW, **scope)
                for name in ("killed", "direct")
            )
            assert (found.n_labelled, found.n_ratings) == (expected.n_labelled, expected.n_ratings)
            for slug in METRICS:
                assert found[slug].value == pytest.approx(expected[slug].value, abs=1e-12)
        assert client.model("killed").metrics("ece", **WINDOW).n_labelled == N


def post(model, rows) -> None:
    """Send the rows themselves, each patient in one batch."""
    order = np.argsort(rows["patient"].to_numpy(), kind="stable")
    bounds = np.flatnonzero(np.diff(np.unique(rows["patient"], return_inverse=True)[1][order])) + 1
    cuts = [0, *(bounds[np.searchsorted(bounds, at)] for at in range(8000, N - 500, 8000)), N]
    for a, b in pairwise(cuts):
        part = rows.take(order[a:b])
        batch = dict(
            probabilities=np.stack(part["probabilities"].to_numpy()),
            labels=part["labels"].to_pylist(),
            units=part["patient"].to_pylist(),
            event_times=[each.astimezone(UTC) for each in part["event_time"].to_pylist()],
            slices={"site": part["site"].to_pylist()},
            batch_id=f"direct.{a}",
            wait=60,
        )
        # On a busy machine, a merge may take longer than a request can wait.
        eventually(lambda batch=batch: model.send(**batch).status == "merged", seconds=300)


@pytest.mark.filterwarnings("ignore::calibrant.core.panes_by_key.SplitUnitsWarning")
def test_the_examples_of_the_page_run(url, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "examples"))
    page = (ROOT / "docs" / "bulk.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        if "pairs(" not in block:  # Spark's, tested with the recipe
            exec(block.replace("http://127.0.0.1:8000", url), names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        *("24", "merged False"),
        "Job('predictions@v1', 'closed', accepted=4 of 4)",
    ]
    rows = pl.read_parquet("predictions.parquet")
    for line, site in zip(lines[3:], "AB", strict=True):
        some = rows.filter(pl.col("site") == site)
        ece = cal.ece(some["confidences"].to_numpy(), some["labels"].to_numpy())
        assert line == f"{site} {float(ece):.3f}"
