"""BentoML's monitor: rows of requests, and the files of its own monitor."""

from __future__ import annotations

import json
from datetime import UTC

import numpy as np
import pytest

bentoml = pytest.importorskip("bentoml", reason="BentoML is installed by `make test-adapters`")

from bentoml._internal.context import trace_context  # noqa: E402

from calibrant.contrib.bentoml import CalibrantMonitor, Columns, read_files  # noqa: E402
from tests.adapters.examples import run_example  # noqa: E402

# BentoML's default monitor names a formatter by its former module.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ROWS = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]


class Model:
    """What the monitor and the reader need of `client.model(name)`."""

    def __init__(self) -> None:
        self.logged: list[dict] = []

    def model(self, name, **options):
        self.name, self.options = name, options
        return self

    def log(self, **columns):
        self.logged.append(columns)


def record(monitor, rows, sites):
    monitor.log_batch(rows, "p", role="prediction", data_type="numerical_sequence")
    monitor.log_batch(sites, "site", role="feature", data_type="categorical")
    monitor.log_batch(["p 4", "p5"], "patient", role="feature", data_type="categorical")


def test_a_monitor_logs_the_rows_of_each_request():
    client = Model()
    options = {
        "client": client,
        "model": "triage",
        "columns": {"units": "patient", "slices": ["site"]},
        "max_bytes": 1 << 20,
    }
    for request in ("q1", "q/2"):
        trace_context.request_id = request
        monitored = bentoml.monitor("rows", monitor_class=CalibrantMonitor, monitor_options=options)
        with monitored as monitor:
            record(monitor, ROWS, ["A", "B"])
    assert (client.name, client.options) == ("triage", {"max_bytes": 1 << 20})
    first, second = client.logged
    np.testing.assert_array_equal(first["probabilities"], ROWS)
    assert first["ids"] == ["q1:0", "q1:1"]
    assert second["ids"][0].startswith("h.") and len(set(second["ids"])) == 2
    assert first["slices"] == {"site": ["A", "B"]}
    assert first["units"][1] == "p5" and first["units"][0].startswith("h.")


def test_bentoml_finds_the_monitor_by_its_name():
    monitored = bentoml.monitor(
        "by-name",
        monitor_class="calibrant.contrib.bentoml.CalibrantMonitor",
        monitor_options={"client": Model()},
    )
    with monitored as monitor:
        monitor.log(0.9, "p", role="prediction", data_type="numerical")
    assert type(monitor).__name__ == "CalibrantMonitor"
    assert monitor.model.logged[0]["probabilities"].tolist() == [0.9]


def test_files_of_the_default_monitor_become_batches_that_count_once(tmp_path):
    for request in ("10", "11"):
        trace_context.request_id = request
        with bentoml.monitor("files", "default", {"log_path": str(tmp_path)}) as monitor:
            record(monitor, ROWS, ["A", "B"])
    (data,) = tmp_path.glob("files/data/data.*.log")
    (schema,) = tmp_path.glob("files/schema/schema.*.log")
    lines = data.read_text().splitlines()
    assert len(lines) == 4 and "p" in json.loads(lines[0])
    columns = Columns(units="patient", slices=["site"])
    (batch,) = read_files(lines, schema.read_text().splitlines(), columns, UTC)
    np.testing.assert_array_equal(batch["probabilities"], [*ROWS, *ROWS])
    assert batch["ids"] == ["10:0", "10:1", "11:0", "11:1"]
    assert all(each.tzinfo is UTC for each in batch["event_times"])
    (again,) = read_files(lines, schema.read_text().splitlines(), columns, UTC)
    assert again["batch_id"] == batch["batch_id"]
    (other,) = read_files(lines[:3], schema.read_text().splitlines(), columns, UTC)
    assert other["batch_id"] != batch["batch_id"]


def test_columns_that_are_not_there_are_named():
    with pytest.raises(ValueError, match="expected `scores` to name one"):
        Columns().read([{"a": 1, "b": 2}], {"a", "b"})
    with pytest.raises(ValueError, match="expected c in each row"):
        Columns(scores="c").read([{"a": 1}], set())


def test_the_example_of_the_documentation_runs(capsys):
    run_example("calibrant.contrib.bentoml")
    assert capsys.readouterr().out
