"""A result is one new file, and its figure another: with them in their folders it is computed, served, documented, drawn and read.

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
NEW_RESULT = '''
"""Share of predictions with a label."""

from __future__ import annotations

from dataclasses import dataclass

from calibrant.results.base import Result, says
from calibrant.results.reads import Query, State, other_side, read


@dataclass(frozen=True, kw_only=True)
class LabelledShareQuery(Query):
    """How the share is written."""

    digits: int = says("Digits after the point.", 3, ge=1, le=9)


@dataclass(frozen=True, kw_only=True, repr=False)
class LabelledShare(Result):
    """How many predictions have a label."""

    share: float = says("Labelled predictions, divided by all.")
    difference: float | None = says("The share minus the other side's.", None)


def compared(state: State, other: State, query: LabelledShareQuery) -> LabelledShare:
    mine, theirs = labelled_share(state, query), labelled_share(other, query)
    return mine.with_values(difference=mine.share - theirs.share)


@read(
    "labelled-share",
    tag="metrics",
    response="The share, or a figure",
    accumulators=lambda query: ["counts"],
    compare=compared,
)
def labelled_share(state: State, query: LabelledShareQuery) -> LabelledShare:
    """Return the share of predictions that have a label."""
    counts = state.pane.counts
    return LabelledShare(share=round(counts["n_labelled"] / counts["n_predictions"], query.digits))
'''
NEW_FIGURE = '''
"""One bar, as long as the share."""


def draw_labelled_share(result):
    from matplotlib.figure import Figure

    figure = Figure(label="Labelled share")
    figure.subplots().barh([0], [result["share"]])
    return figure
'''
LOOK = """
import asyncio, json, sys, tempfile
from pathlib import Path

import httpx
from typer.testing import CliRunner

import calibrant
from calibrant.cli.app import app as command
from calibrant.client import operations
from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.settings import Settings
from calibrant_server.workers.queries.compute import KINDS
from calibrant_server.workers.queries.kind import Against, Inputs
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import Window
from scripts.library_names import client_page
from tests.service.fakes import FakeInbox, FakeRegistry

KIND = KINDS["labelled_share"]
CONFIG = ModelConfig("t", "m", "binary", 2)


def inputs(labels):
    pane = calibrant.Pane.fill([0.9, 0.8, 0.2], labels)
    return Inputs(CONFIG, Window(0, 3600), merged=pane)


async def look():
    registry = FakeRegistry()
    inbox = FakeInbox(registry)
    inbox.answers = {"labelled_share": {"state_version": "v1", "share": 0.667, "difference": None}}
    settings = Settings(data_dir=Path(tempfile.mkdtemp(dir=sys.argv[1])), log_requests=False)
    app = create_app(settings, Connection(inbox, registry))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.put("/v1/models/m", json={"task": "binary"})
        operation = operations.result("m", operations.declared("labelled_share"), {"digits": 3})
        answers = {
            name: await client.get(operation.path, params=query)
            for name, query in (
                ("json", operation.query), ("svg", {"format": "svg"}), ("wrong", {"digits": 10}),
            )
        }
    query, mine, theirs = KIND.query(), inputs([1, None, 0]), inputs([1, 1, 0])
    found = operation.read(answers["json"].json())
    return {
        "status": {name: each.status_code for name, each in answers.items()},
        "svg": answers["svg"].text[:4000],
        "wrong": answers["wrong"].json()["errors"],
        "printed": repr(found), "share": found.share, "model": found.model,
        "computed": KIND.compute(query, mine),
        "compared": KIND.compare(query, mine, theirs, Against("model", "other")),
        "document": app.openapi(),
        "page": client_page(),
        "listed": CliRunner().invoke(command, ["read"]).output,
    }


print(json.dumps(asyncio.run(look())))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What a process sees that runs with the new files in their folders."""
    folder = tmp_path_factory.mktemp("with_a_new_result")
    for name in ("calibrant", "workers", "service", "tests", "scripts", "docs"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "calibrant" / "results" / "labelled_share.py").write_text(NEW_RESULT)
    (folder / "calibrant" / "figures" / "labelled_share.py").write_text(NEW_FIGURE)
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(folder)],
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict = json.loads(done.stdout)
    return seen


def test_it_is_computed_and_compared(found: dict) -> None:
    assert found["computed"] == {"share": 0.667, "difference": None}
    assert found["compared"]["difference"] == pytest.approx(0.667 - 1.0)


def test_it_is_served_as_numbers_and_as_a_figure(found: dict) -> None:
    assert found["status"] == {"json": 200, "svg": 200, "wrong": 422}
    assert "Labelled share" in found["svg"]


def test_its_parameters_are_checked(found: dict) -> None:
    assert [each["pointer"] for each in found["wrong"]] == ["/digits"]


def test_the_client_reads_it(found: dict) -> None:
    assert (found["share"], found["model"]) == (0.667, "m")
    assert found["printed"] == "LabelledShare(share=0.667)"


def test_it_is_in_the_document(found: dict) -> None:
    document = found["document"]
    operation = document["paths"]["/v1/models/{model}/labelled-share"]["get"]
    assert operation["operationId"] == "getLabelledShare"
    assert "image/svg+xml" in operation["responses"]["200"]["content"]
    fields = document["components"]["schemas"]["LabelledShareResponse"]["properties"]
    assert fields["share"]["description"] == "Labelled predictions, divided by all."
    assert {"model", "window", "state_version"} <= set(fields)


def test_the_command_line_and_the_documentation_list_it(found: dict) -> None:
    sentence = "Return the share of predictions that have a label."
    assert f"| `labelled_share` | `/labelled-share` | {sentence} |" in found["page"]
    assert "labelled_share" in found["listed"] and sentence in found["listed"]


def test_nothing_here_has_changed() -> None:
    committed = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    assert "LabelledShareResponse" not in committed["components"]["schemas"]
