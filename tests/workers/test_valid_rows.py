"""Rows go to a tail without a fill if their values are known to fill; others are filled first, and the fill decides."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given

from calibrant import Batch, Pane
from calibrant.core.spec import PaneSpec
from calibrant_server.workers.ingest.entries import PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.reduce import NewRows, Numerics, are_valid_rows
from calibrant_server.workers.segments.rows import Rows
from tests.calibrant.data import random_batch, shapes
from tests.calibrant.panes import FEW, every_spec
from tests.workers.driving import MODEL
from tests.workers.test_tails import drained, loop_of_rows, tail_key

SPEC = PaneSpec("multiclass", 3)


def batch_of(**columns):
    scores = np.random.default_rng(0).dirichlet(np.ones(3), 4)
    given_ = {"probabilities": scores, "labels": [0, 1, 2, 0], "weights": [1, 2, 0.5, 0]} | columns
    return Batch.from_columns(given_).batch


def changed(batch, name, value):
    column = getattr(batch, name).copy()
    column[1] = value
    return replace(batch, **{name: column})


DOUBTFUL = {
    "nan": changed(batch_of(), "scores", np.nan),
    "infinite": changed(batch_of(), "scores", np.inf),
    "negative": changed(batch_of(), "scores", [-0.1, 0.6, 0.5]),
    "above one": changed(batch_of(), "scores", [1.1, -0.1, 0.0]),
    "another sum": changed(batch_of(), "scores", [0.5, 0.4, 0.2]),
    "infinite logit": replace(changed(batch_of(), "scores", np.inf), is_logits=True),
    "nan among logits": replace(changed(batch_of(), "scores", np.nan), is_logits=True),
    "logit beyond float32": replace(changed(batch_of(), "scores", -1e39), is_logits=True),
    "nan as weight": changed(batch_of(), "weights", np.nan),
    "negative weight": changed(batch_of(), "weights", -1.0),
    "large weight": changed(batch_of(), "weights", 1e300),
    "other classes": Batch.from_columns({"probabilities": [[0.5, 0.5]], "labels": [0]}).batch,
    "other task": replace(batch_of(), task="segmentation"),
}


@every_spec
@FEW
@given(options=shapes())
def test_checked_batches_are_known_to_fill(spec, options):
    """Of every form that the library accepts; otherwise each commit would fill its rows."""
    rng = np.random.default_rng(options.pop("seed"))
    options["binary"] = spec.task == "binary" and not options["logits"]
    batch = random_batch(rng, spec, options.pop("n"), **options)
    assert are_valid_rows(Rows.of_batch(batch, 0), spec)


@pytest.mark.parametrize("why", DOUBTFUL)
def test_doubtful_values_are_found(why):
    batch = DOUBTFUL[why]
    assert not are_valid_rows(Rows.of_batch(batch, 0), SPEC)


@pytest.mark.parametrize("delay", [-2, 256])
def test_a_delay_without_a_bin_is_doubtful(delay):
    rows = Rows.of_batch(batch_of(), 0)
    assert are_valid_rows(rows, SPEC)
    assert not are_valid_rows(rows.with_columns(delay=delay), SPEC)


def test_only_doubtful_rows_are_filled(monkeypatch):
    filled = []
    monkeypatch.setattr(Pane, "fill_batch", lambda pane, batch: filled.append(batch))
    NewRows(MODEL, [batch_of(), batch_of()]).close(Numerics())
    assert not filled
    doubtful = NewRows(MODEL, [batch_of(), DOUBTFUL["another sum"]])
    doubtful.close(Numerics())
    assert sum(each.n for each in filled) == 8
    assert doubtful.rows.numbered_from(7).part.tolist() == [7] * 4 + [8] * 4


def test_rows_of_other_tasks_are_not_joined():
    with pytest.raises(ValueError, match="different tasks"):
        NewRows(MODEL, [batch_of(), DOUBTFUL["other task"]]).close(Numerics())


@pytest.mark.one_server
def test_a_batch_that_cannot_be_filled_is_dead_lettered_and_its_neighbours_are_merged(
    bench, monkeypatch
):
    loop = loop_of_rows(bench)
    every = {
        "first": batch_of(),
        "bad": DOUBTFUL["other classes"],
        "last": batch_of(labels=[1] * 4),
    }
    for name, batch in every.items():
        payload = batch.pack()
        digest = blake2b(payload, digest_size=16).digest()
        bench.deliver(IngestBatch.of(MODEL, name, PREDICTIONS, payload, digest, batch.n))
    drained(bench, loop)
    assert bench.merged("bad").status == "dead_lettered"
    assert {bench.merged(name).status for name in ("first", "last")} == {"merged"}
    [start] = bench.starts()
    tail = bench.client.hgetall(tail_key(loop, start=start))
    assert sum(len(Rows.unpack(data)) for data in tail.values()) == 8
