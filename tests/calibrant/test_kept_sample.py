"""The kept sample of whole predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from calibrant import Batch, Pane, PaneSpec
from calibrant.accumulators.sample import PANE_BYTES
from tests.calibrant.panes import SPECS, assert_same, pane_of

TEN = PaneSpec("multiclass", 10)


def named(
    rng: np.random.Generator, n: int, n_classes: int = 10, prefix: str = "", **more: Any
) -> Batch:
    columns = {
        "probabilities": rng.dirichlet(np.full(n_classes, 0.4), n),
        "labels": rng.integers(0, n_classes, n),
        "ids": [f"{prefix}{i}" for i in range(n)],
    }
    return Batch.from_columns(columns | more).batch


def test_the_sample_is_every_prediction_below_the_threshold_and_bounded() -> None:
    batch = named(np.random.default_rng(1), 20_000, units=[f"u{i // 3}" for i in range(20_000)])
    pane = pane_of(TEN, batch)
    kept = pane.sample
    assert 0 < kept.halvings < 12
    chosen = np.flatnonzero(batch.prediction_hash < np.uint64(1 << (64 - kept.halvings)))
    assert kept.n == len(chosen) > 90
    assert len(kept.pack()) <= PANE_BYTES
    rows = kept.batch()
    order = np.argsort(batch.prediction_hash[chosen])
    np.testing.assert_allclose(rows.probabilities, batch.probabilities[chosen][order], rtol=1e-14)
    np.testing.assert_array_equal(
        rows.ratings.class_index, batch.ratings.class_index[chosen][order]
    )
    np.testing.assert_array_equal(rows.unit_hash, batch.unit_hash[chosen][order])
    # One halving less would not have fitted.
    more = batch.take(batch.prediction_hash < np.uint64(1 << (65 - kept.halvings)))
    assert more.n * (8 * 10 + 32 + 4) > PANE_BYTES


def test_the_sample_does_not_depend_on_how_predictions_came() -> None:
    batch = named(np.random.default_rng(2), 6000)
    complete = pane_of(TEN, batch)["sample"].pack()
    parts = [pane_of(TEN, batch.take(np.arange(k, 6000, 7))) for k in range(7)]
    merged = Pane(TEN)
    for part in parts[::-1]:
        merged.merge(part)
    assert merged["sample"].pack() == complete
    window = Pane.for_window(TEN)
    for part in parts:
        window.merge(part)
    assert window.sample.halvings == max(part.sample.halvings for part in parts)
    assert window.sample.n > merged.sample.n
    at_once = Pane(TEN).merge_all(parts)
    assert_same(at_once, merged)
    assert Pane.for_window(TEN).merge_all(parts)["sample"].pack() == window["sample"].pack()


def test_small_batches_after_a_full_sample_are_chosen_from_as_together() -> None:
    rng = np.random.default_rng(8)
    scores, labels = rng.dirichlet(np.ones(4), 4000), rng.integers(0, 4, 4000)
    spec = PaneSpec("multiclass", 4)
    one, several = Pane(spec), Pane(spec)
    one.fill_batch(Batch.from_columns({"probabilities": scores, "labels": labels}).batch)
    for first in range(0, 4000, 50):
        some = slice(first, first + 50)
        columns = {"probabilities": scores[some], "labels": labels[some]}
        several.fill_batch(Batch.from_columns(columns, task="multiclass", n_classes=4).batch)
    assert several.sample.halvings == one.sample.halvings > 0
    for name, column in one.sample.arrays().items():
        np.testing.assert_array_equal(several.sample.arrays()[name], column, err_msg=name)


def test_samples_that_share_ids_merge_at_once_as_one_after_the_other() -> None:
    """Corrections and repetitions: other rows of the same ids, and the very same rows."""
    batch = named(np.random.default_rng(2), 900)
    turned = replace(batch, scores=batch.scores[::-1].copy())
    parts = [pane_of(TEN, each) for each in (batch, turned, batch.take(np.arange(50)), batch)]
    merged = Pane(TEN)
    for part in parts:
        merged.merge(part)
    assert Pane(TEN).merge_all(parts)["sample"].pack() == merged["sample"].pack()
    assert merged.sample.n > merged.sample.batch().n


def test_a_corrected_prediction_takes_its_own_place() -> None:
    """Both versions are held while it lasts, and cost the bound no halving."""
    spec = TEN
    rng = np.random.default_rng(3)
    batch = named(rng, 250)
    pane = pane_of(spec, batch)
    assert (pane.sample.n, pane.sample.halvings) == (250, 0)
    corrected = Batch.from_columns(
        {"probabilities": batch.probabilities, "labels": rng.integers(0, 10, 250), "ids": batch.ids}
    ).batch
    pane.merge(pane_of(spec, corrected)).subtract(pane_of(spec, batch))
    assert_same(pane, pane_of(spec, corrected))
    assert pane.sample.halvings == 0
    pane.subtract(pane_of(spec, corrected.take(np.arange(100))))
    assert pane.sample.n == 150


def test_the_same_prediction_again_and_again_takes_one_place() -> None:
    rows = {"probabilities": [[0.5, 0.25, 0.25]] * 4000, "labels": [0] * 4000}
    batch = Batch.from_columns(rows).batch
    pane = pane_of(SPECS["three"], batch, batch)
    assert (pane.sample.n, pane.sample.halvings, len(pane.sample.batch().scores)) == (8000, 0, 1)
    assert pane.sample.batch().weights.tolist() == [8000.0]


def test_logits_and_probabilities_stand_side_by_side_in_a_sample() -> None:
    spec = SPECS["three"]
    logits = Batch.from_columns({"logits": [[-800.0, 0.0, 800.0]], "labels": [0]}).batch
    plain = Batch.from_columns({"probabilities": [[0.0, 0.25, 0.75]], "labels": [1]}).batch
    pane = pane_of(spec, logits, plain)
    rows = Pane.unpack(pane.pack()).sample.batch()
    found = {tuple(row) for row in rows.scores}
    assert found == {(-800.0, 0.0, 800.0), (-np.inf, np.log(0.25), np.log(0.75))}
    assert not Pane(SPECS["binary"]).sample.n
    assert Pane(PaneSpec("multiclass", 1000)).keeps("sample")
    assert not Pane(PaneSpec("multiclass", 1001)).keeps("sample")
