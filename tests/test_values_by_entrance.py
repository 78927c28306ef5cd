"""One rule for each kind of value, at every entrance: the table value × entrance.

The rows are in `tests.values`, each with its result; the entrances in `tests.entrances`. What an entrance cannot hold is in `EXCEPTIONS`,
with the reason.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.settings import Settings
from tests.cli.command import runner
from tests.end_to_end.deployment import Deployment
from tests.entrances import COMMAND, LIBRARY, MODEL, SERVICE, Bench
from tests.service.fakes import FakeInbox, FakeRegistry
from tests.values import VALUES

pytestmark = [pytest.mark.anyio, pytest.mark.one_server]
ENTRANCES = LIBRARY | COMMAND | SERVICE | MODEL
EXCEPTIONS: dict[tuple[str, str], str] = {}


def excepted(entrances: str, pattern: str, reason: str) -> None:
    """Except the values whose names match, at the entrances whose names match."""
    for name in filter(re.compile(pattern).fullmatch, VALUES):
        for entrance in filter(re.compile(entrances).fullmatch, ENTRANCES):
            EXCEPTIONS[name, entrance] = reason


NAMED = "names of classes|.*numbers as names|truth values as names"
PRINTED = "names of people|integers as names|a name .*"
excepted(
    "Arrow stream|CSV body|npy body",
    NAMED,
    "no field for names: of a table they are the names of its columns of scores",
)
excepted(
    "CSV body",
    ".*one-hot.*",
    "each column of ratings is a rater by its name, and named raters are never one-hot",
)
excepted(
    "CSV body",
    "events.*|shares.*|.*events",
    "a column of 0 and 1 or of shares has no role: they are sent as Arrow, npy or JSON",
)
excepted(r"\.npy|npy body", "annotations.*", "arrays have no ids to join ratings by")
excepted(
    r"\.npy",
    f"weights.*|.*weight|shares of (four|three) ratings|{PRINTED}",
    "an array has no further columns; .npz has",
)
excepted(
    "npy body",
    "names of people|a name .*",
    "arrays of texts are objects, which are not read; integers are names",
)
excepted("torch", "names of .*|a name .*", "tensors hold no texts")
excepted(
    "model, (NDJSON|Arrow|client)|NDJSON|client|Arrow stream|CSV body",
    "annotations.*",
    "one row per prediction: a long table is a field of JSON, or posted by id",
)
excepted(
    "model, JSON", "annotations.*", "a model takes ratings by id: the entrance of labels by id"
)
excepted(
    "model, labels by id",
    "annotations of other items",
    "labels may come before their predictions, and wait for them",
)
excepted(
    "model.*",
    "shares of (classes|events)",
    "models store ratings, which shares are with n_ratings: tests/service/test_label_shares.py",
)
excepted("model, labels by id", "shares.*", "shares come with their predictions")
excepted(
    "client|model.*",
    ".*events.*",
    "Model.multilabel sends events as rows of a binary model: tests/end_to_end/test_multilabel.py",
)
excepted(
    "model.*",
    "a floor of probabilities",
    "sums of clipped losses are not stored: no value, with the reason needs_rows",
)
excepted(
    "(?!lists|tuples|numpy|pandas|polars|Arrow$|Arrow in|Arrow lists|model).*",
    "no label at all",
    "a file or body without any label is refused: there is nothing to score",
)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Deployment]]:
    """Start a service with its store when it is first needed."""
    started: list[Deployment] = []

    def running() -> Deployment:
        if not started:
            started.append(Deployment(tmp_path_factory.mktemp("service")).__enter__())
        return started[0]

    yield running
    for each in started:
        each.__exit__()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Starlette:
    registry = FakeRegistry()
    settings = Settings(data_dir=tmp_path_factory.mktemp("app"), log_requests=False)
    return create_app(settings, Connection(FakeInbox(registry), registry))


@pytest.fixture
async def bench(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    app: Starlette,
    deployment: Callable[[], Deployment],
) -> AsyncIterator[Bench]:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield Bench(runner(capsys), client, tmp_path, deployment)


CASES = [(name, entrance) for entrance in ENTRANCES for name in VALUES if (name, entrance) not in EXCEPTIONS]  # fmt: skip


@pytest.mark.parametrize(("name", "entrance"), CASES, ids=[" | ".join(case) for case in CASES])
async def test_a_value_means_the_same_at_every_entrance(
    name: str, entrance: str, bench: Bench
) -> None:
    value = VALUES[name]
    found = ENTRANCES[entrance](value, bench)
    if not isinstance(found, dict | str):
        found = await found
    if isinstance(value.expected, str):
        # The command line has sentences, no rules: it is enough that it refuses, and without a traceback.
        assert isinstance(found, str), found
        is_rule = re.fullmatch(value.expected, found) is not None
        assert is_rule or (entrance in COMMAND and "Traceback" not in found), found
        return
    assert isinstance(found, dict), found
    n, n_ratings, expected = value.expected
    assert (found["n_labelled"], found["n_ratings"]) == (n, n_ratings)
    assert found["value"] == pytest.approx(expected, abs=1e-9 if value.dtype == "float64" else 1e-7)
    for key, stated in value.states.items():
        assert found[key] == pytest.approx(stated)


def test_every_exception_has_a_reason_and_a_value() -> None:
    assert all(name in VALUES and reason for (name, _), reason in EXCEPTIONS.items())
