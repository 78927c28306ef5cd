"""A result kind is one new file: with it in the folder it is found, computed, compared and cached."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from calibrant import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries import kinds
from calibrant_server.workers.queries.ask import Other
from calibrant_server.workers.queries.kind import Against, find_kinds
from calibrant_server.workers.store.windows import Window
from tests.workers.driving import MODEL

pytestmark = pytest.mark.one_server
EVER = Window(0, 1 << 32)
HOUR_US = 3_600_000_000
NEW_FILE = '''
"""Share of predictions with a label."""

from typing import ClassVar

from calibrant_server.workers.queries.kind import Inputs, Result, ResultKind
from calibrant_server.workers.queries.query import Query


class LabelledShareQuery(Query):
    kind: ClassVar[str] = "labelled_share"

    digits: int = 3


def share(query: LabelledShareQuery, inputs: Inputs) -> float:
    counts = inputs.pane.counts
    return round(counts["n_labelled"] / counts["n_predictions"], query.digits)


def compute(query: LabelledShareQuery, inputs: Inputs) -> Result:
    return {"share": share(query, inputs)}


def compare(query: LabelledShareQuery, inputs: Inputs, other: Inputs, against: object) -> Result:
    return {"difference": share(query, inputs) - share(query, other), "against": str(against)}


KIND = ResultKind(LabelledShareQuery, compute, lambda query: ["counts"], compare)
'''


@pytest.fixture
def found(tmp_path, monkeypatch):
    """The kinds, with the new file in the folder."""
    (tmp_path / "labelled_share.py").write_text(NEW_FILE)
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])
    yield find_kinds()
    sys.modules.pop(f"{kinds.__name__}.labelled_share")


def test_it_is_found_computed_and_compared(bench, found):
    bench.put_model()
    bench.engine(numerics=Numerics(), kinds=found)
    labels = [0, None, 1, None, None, None, 2, 0]
    columns = {
        "probabilities": np.full((8, 3), 1 / 3),
        "labels": labels,
        "event_times": (np.arange(8) // 4 * HOUR_US).astype("datetime64[us]"),
    }
    batch = Batch.from_columns(columns).batch
    bench.deliver(IngestBatch.of(MODEL, "b", PREDICTIONS, batch.pack(), batch.digest(), batch.n))
    bench.merged("b")
    query = found["labelled_share"].query()
    result = bench.run(bench.inbox.ask(query, MODEL, EVER))
    assert json.loads(result.body)["share"] == 0.5
    assert bench.run(bench.inbox.ask(query, MODEL, EVER)) == result
    coarse = bench.run(bench.inbox.ask(query.own(digits=0), MODEL, Window(0, 3600)))
    assert json.loads(coarse.body)["share"] == 0.0 and coarse.etag != result.etag
    first = Other(Against("window", "PT1H"), MODEL, "", Window(0, 3600))
    compared = bench.run(bench.inbox.ask(query, MODEL, Window(3600, 7200), against=first))
    assert json.loads(compared.body)["difference"] == 0.0
    assert json.loads(compared.body)["against"] == "window:PT1H"


def test_what_it_cannot_be_compared_with_is_reported(bench, found):
    bench.put_model()
    bench.engine(numerics=Numerics(), kinds=found)
    other = Other(Against("baseline", "b"), MODEL, "", EVER)
    with pytest.raises(CalibrationInputError, match="counts, which is not compared"):
        bench.run(bench.inbox.ask(found["counts"].query(), MODEL, EVER, against=other))
