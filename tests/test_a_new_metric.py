"""A metric is one new file: with it in the folder the metric is computed, asked for, rejected misspelt, and documented.

The packages are copied to a temporary folder and looked at from a process of its own, so that nothing here changes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEW_FILE = '''
"""Largest gap of the bins, with its sign."""

from calibrant.metrics.metric import Estimate, FunctionMetric
from calibrant.core.query import Option

SIGN = Option("sign", "over", "Which sign counts.", allowed=("over", "under"))


def widest(view, seed):
    gap = view.table().cells.gap * (1.0 if SIGN.of(view.pane_query) == "under" else -1.0)
    return Estimate(float(max(gap, default=0.0)))


METRIC = FunctionMetric(
    slug="widest_gap",
    title="Widest gap",
    unit="probability",
    range=(-1.0, 1.0),
    direction="zero",
    needs=("scope",),
    source="a test",
    own_options=(SIGN,),
    compute=widest,
)
'''
LOOK = """
import asyncio, json, sys, tempfile
from pathlib import Path

import httpx

import calibrant
from calibrant.metrics import METRICS
from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.settings import Settings
from tests.service.fakes import FakeInbox, FakeRegistry

BATCH = {"confidences": [0.9, 0.9, 0.2, 0.2], "labels": [1, 0, 1, 0]}


async def look():
    registry = FakeRegistry()
    settings = Settings(data_dir=Path(tempfile.mkdtemp(dir=sys.argv[1])), log_requests=False)
    app = create_app(settings, Connection(FakeInbox(registry), registry))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        asked = {}
        for query in ("metrics=widest_gap(sign=over)", "metrics=widest_gap(sign=under)",
                      "metrics=widest_gap(sign=up)", "metrics=widest_gaps"):
            answer = await client.post(f"/v1/score?{query}", json=BATCH)
            asked[query] = [answer.status_code, answer.json()]
        await client.put("/v1/models/m", json={"task": "binary"})
        for query in ("metrics?metrics=widest_gap", "stability?metric=widest_gap",
                      "metrics?metrics=widest_gaps"):
            answer = await client.get(f"/v1/models/m/{query}")
            asked[query] = [answer.status_code, answer.json()]
    own = {sign: calibrant.widest_gap(BATCH["confidences"], BATCH["labels"], sign=sign).value
           for sign in ("over", "under")}
    return {"from": calibrant.__file__, "metrics": list(METRICS), "asked": asked,
            "document": app.openapi(), "own": own}


print(json.dumps(asyncio.run(look())))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What a process sees that runs with the new file in the folder of metrics."""
    folder = tmp_path_factory.mktemp("with_a_new_metric")
    for name in ("calibrant", "workers", "service", "tests"):
        # With what is compiled, which names no folder.
        shutil.copytree(ROOT / name, folder / name)
    (folder / "calibrant" / "metrics" / "widest_gap.py").write_text(NEW_FILE)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(folder)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict = json.loads(done.stdout)
    assert Path(seen["from"]).is_relative_to(folder)
    return seen


def test_it_is_found(found: dict) -> None:
    from calibrant.metrics import METRICS

    assert found["metrics"] == sorted({*METRICS, "widest_gap"})


KEYS = {"over": "widest_gap", "under": "widest_gap(sign=under)"}


@pytest.mark.parametrize(("sign", "value"), [("over", 0.4), ("under", 0.3)])
def test_it_is_computed_with_its_own_option(found: dict, sign: str, value: float) -> None:
    status, answer = found["asked"][f"metrics=widest_gap(sign={sign})"]
    assert status == 200, answer
    # Two bins: 0.9 and 0.2, each against a half.
    assert answer["metrics"][KEYS[sign]]["value"] == pytest.approx(value)


def test_it_is_a_function_of_the_library(found: dict) -> None:
    assert found["own"] == {"over": pytest.approx(0.4), "under": pytest.approx(0.3)}


def test_it_is_asked_of_models(found: dict) -> None:
    for query in ("metrics?metrics=widest_gap", "stability?metric=widest_gap"):
        assert found["asked"][query][0] == 200, found["asked"][query]


@pytest.mark.parametrize("query", ["metrics=widest_gaps", "metrics?metrics=widest_gaps"])
def test_a_misspelt_one_is_rejected_and_it_is_listed(found: dict, query: str) -> None:
    status, problem = found["asked"][query]
    assert (status, problem["errors"][0]["rule"]) == (422, "unknown_metric")
    assert " widest_gap." in problem["errors"][0]["detail"]


def test_its_option_is_checked(found: dict) -> None:
    status, problem = found["asked"]["metrics=widest_gap(sign=up)"]
    assert (status, problem["errors"][0]["pointer"]) == (422, "/metrics")


def test_it_is_in_the_document(found: dict) -> None:
    document = found["document"]
    estimate = document["components"]["schemas"]["Estimates"]["properties"]["widest_gap"]
    assert (estimate["title"], estimate["description"]) == ("Widest gap", "zero")
    options = document["components"]["schemas"]["ScoreOptions"]["properties"]
    assert "sign" in options


def test_nothing_here_has_changed() -> None:
    committed = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    assert "widest_gap" not in committed["components"]["schemas"]["Estimates"]["properties"]
