"""The content digest: equal where the content is equal, whatever the way there, and different where it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibrant import Batch, Histogram, Pane, PaneSpec
from calibrant.core.content_digest import MODULUS
from calibrant.core.packing import PackingError, pack, unpack
from tests.calibrant.data import random_batch
from tests.calibrant.golden import make
from tests.calibrant.panes import SPECS, a_histogram, every_spec, pane_of
from tests.oracle.content_digest import row_hashes, rows_digest

ZERO = "0" * 32
M64 = (1 << 64) - 1
# What version one of the digest gives for the golden panes of generation 4; a change needs a new format number.
GOLDEN = {
    "binary": "4b8bafce8e31ffe0e548b0df234a595d",
    "multiclass": "03937d245b8d94d6fc9307a06a6ba499",
    "segmentation": "6f44a4d71712c8412dc759fd51fd097e",
}


# The definition in docs/state.md, a second time, a row and a word at a time.


def split_mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M64
    return x ^ x >> 31


def murmur_mix(x: int) -> int:
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & M64
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & M64
    return x ^ x >> 33


def bits(value: float) -> int:
    return int(np.float64(value + 0.0).view(np.uint64))


def case_hash(batch: Batch, row: int) -> int:
    if batch.cases is None or batch.cases[row] is None:
        return 0
    alone = Batch.from_columns({"confidences": [0.5], "cases": [batch.cases[row]]}).batch
    return int(alone.unit_hash[0])


def by_definition(batch: Batch, with_cases: bool) -> str:
    lanes: list[list[int]] = []
    for lane, mixed in enumerate((split_mix, murmur_mix)):

        def key(place: int, lane: int = lane) -> int:
            return murmur_mix(split_mix(place)) if lane else split_mix(place)

        sums = []
        for row in range(batch.n):
            source = {"row": 0, "id": 1, "case": 2, "unit": 2}[batch.unit_source]
            words = [
                batch.n_classes + (int(batch.is_logits) << 32) + (source << 33),
                bits(1.0 if batch.weights is None else batch.weights[row]),
                int(batch.prediction_hash[row]),
                int(batch.unit_hash[row]),
                case_hash(batch, row) if with_cases else 0,
                *(bits(score) for score in batch.scores[row]),
            ]
            total = sum(mixed(word ^ key(place)) for place, word in enumerate(words))
            for class_index, count in enumerate(batch.label_counts[row].tolist()):
                total += mixed((key(2**32 + class_index) + count) & M64) if count else 0
            sums.append(total & M64)
        named = batch.unit_source in ("unit", "case")
        unit = [
            sum(s for s, u in zip(sums, batch.unit_hash, strict=True) if u == v) & M64
            for v in batch.unit_hash
        ]
        lanes.append(
            [mixed((s + mixed(u if named else 0)) & M64) for s, u in zip(sums, unit, strict=True)]
        )
    return f"{sum(high << 64 | low for high, low in zip(*lanes, strict=True)) % MODULUS:032x}"


@every_spec
@pytest.mark.parametrize("units", [None, "units", "cases"])
@pytest.mark.parametrize("logits", [False, True])
def test_digests_follow_their_definition(spec: PaneSpec, units: str | None, logits: bool) -> None:
    rng = np.random.default_rng(8)
    options = {"logits": logits, "weights": logits, "most_raters": 3, "unlabelled": 0.3}
    batch = random_batch(rng, spec, 7, units=units, **options)
    pane = pane_of(spec, batch)
    assert pane.digest() == by_definition(batch, pane.keeps("cases"))


def test_rows_without_ids_and_with_some_cases_follow_it_too() -> None:
    spec = SPECS["ten"]
    batch = random_batch(np.random.default_rng(1), spec, 6, units="units")
    batch = replace(batch, cases=np.array(["a", None, "a", "b", None, "c"], object))
    assert pane_of(spec, batch).digest() == by_definition(batch, True)
    bare = replace(batch, cases=None, units=None)
    assert bare.unit_source == "row"
    assert pane_of(spec, bare).digest() == by_definition(bare, True)


def test_a_batch_larger_than_what_is_hashed_at_a_time() -> None:
    batch = random_batch(np.random.default_rng(1), SPECS["hundred"], 1500)
    parts = [
        rows_digest(batch.take(rows), with_cases=False)
        for rows in np.array_split(np.arange(1500), 7)
    ]
    assert rows_digest(batch, with_cases=False) == sum(parts) % MODULUS


@pytest.mark.parametrize("task", GOLDEN)
def test_golden_panes_keep_their_digest(task: str) -> None:
    data = (make.HERE / f"pane-{task}.4.packed").read_bytes()
    assert Pane.unpack(data).digest() == make.pane(task).digest() == GOLDEN[task]


# Additive.


@every_spec
def test_merges_add_and_subtractions_remove(spec: PaneSpec) -> None:
    rng = np.random.default_rng(2)
    batches = [
        random_batch(rng, spec, 20, units="units", prefix=f"{i}.", unlabelled=0.2) for i in range(3)
    ]
    complete = pane_of(spec, Batch.concatenate(batches))
    one, two, three = (pane_of(spec, batch) for batch in batches)
    merged = one.copy().merge(three).merge(two)
    assert merged.digest() == complete.digest() not in (None, ZERO)
    assert Pane(spec).merge_all([three, two, one]).digest() == complete.digest()
    assert Pane.for_window(spec).merge(complete).digest() == complete.digest()
    assert merged.subtract(two).digest() == pane_of(spec, batches[2], batches[0]).digest()
    assert merged.subtract(one).subtract(three).digest() == Pane(spec).digest() == ZERO
    assert Pane.unpack(complete.pack()).digest() == complete.digest()
    assert Pane.from_parts(spec, complete.parts()).digest() == complete.digest()


def test_a_row_that_comes_twice_counts_twice() -> None:
    batch = random_batch(np.random.default_rng(2), SPECS["two"], 5)
    pane = pane_of(SPECS["two"], batch)
    twice = pane_of(SPECS["two"], batch, batch)
    assert int(twice.digest() or "", 16) == 2 * int(pane.digest() or "", 16) % MODULUS


def test_predictions_then_labels_are_labelled_predictions() -> None:
    spec = SPECS["three"]
    labelled = random_batch(np.random.default_rng(3), spec, 30, unlabelled=0.3)
    none = np.zeros(0, np.int64)
    bare = replace(labelled, ratings=type(labelled.ratings)(none, none, none))
    late = replace(labelled, delays=np.full(labelled.n, 9))
    pane = pane_of(spec, bare)
    assert pane.digest() != pane_of(spec, labelled).digest()
    pane.merge(pane_of(spec, late)).subtract(pane_of(spec, bare))
    assert pane.digest() == pane_of(spec, labelled).digest()


def test_running_totals_have_the_digest_of_the_current_total() -> None:
    spec = SPECS["three"]
    first, second = a_histogram(spec), a_histogram(spec, n_units=3)
    pane = Pane(spec)
    pane.fill_histogram(first)
    pane.fill_histogram(second)
    pane.fill_histogram(Histogram.unpack(first.pack()).negated())
    current = Pane(spec)
    current.fill_histogram(second)
    assert pane.digest() == current.digest() != ZERO
    pane.fill_histogram(second.negated())
    assert pane.digest() == ZERO


def test_a_histogram_that_counts_nothing_changes_nothing() -> None:
    spec = SPECS["three"]
    nothing = {name: np.zeros(spec.grid) for name in ("count", "sum_confidence", "sum_correct")}
    empty = a_histogram(spec, **nothing)
    pane = Pane(spec)
    for each in (empty, empty.negated()):
        pane.fill_histogram(each)
        assert pane.digest() == ZERO


@pytest.mark.parametrize(
    "change",
    [{"n_units": 4}, {"raters": "mean"}, {"edges": "left"}, {"unit": "u"}, {"n_predictions": np.full(60, 2.0)}],
    ids=str,
)  # fmt: skip
def test_histograms_differ_in_everything_that_is_kept(change: dict[str, Any]) -> None:
    spec = PaneSpec("multiclass", 3, grid=60)
    digests = set()
    for fields in ({}, change):
        pane = Pane(spec)
        pane.fill_histogram(a_histogram(spec, **fields))
        digests.add(pane.digest())
    assert len(digests) == 2


# Panes of older formats.


def test_panes_of_older_formats_have_none_and_it_absorbs() -> None:
    spec = make.SPECS["multiclass"]
    old = Pane.unpack((make.HERE / "pane-multiclass.3.packed").read_bytes())
    new = make.pane("multiclass")
    assert old.digest() is None
    assert new.copy().merge(old).digest() is None
    assert old.copy().merge(new).digest() is None
    assert "digest" not in old.copy().merge(new).parts()
    assert Pane.from_parts(spec, old.copy().merge(new).parts()).digest() is None
    old.fill_batch(make.batch("multiclass"))
    assert old.digest() is None
    assert Pane.unpack(old.pack()).digest() is None


def test_an_emptied_pane_is_known_again() -> None:
    old = Pane.unpack((make.HERE / "pane-multiclass.3.packed").read_bytes())
    old.subtract(old.copy())
    assert old.is_empty
    assert old.digest() == Pane.from_parts(old.spec, old.parts()).digest() == ZERO


def test_a_pane_that_was_read_in_part_has_a_digest_only_where_that_was_read() -> None:
    pane = make.pane("binary")
    assert Pane.from_parts(pane.spec, pane.parts(), only=["counts"]).digest() is None
    assert Pane.from_parts(pane.spec, {}, only=["counts"]).digest() is None
    assert (
        Pane.from_parts(pane.spec, pane.parts(), only=["counts", "digest"]).digest()
        == pane.digest()
    )


@pytest.mark.parametrize(
    "halves",
    [
        np.zeros(1, np.uint64),
        np.zeros(2, np.int64),
        np.zeros((2, 1), np.uint64),
        np.zeros(3, np.uint64),
    ],
)
def test_other_shapes_are_no_digest(halves: np.ndarray) -> None:
    pane = make.pane("binary")
    about = unpack(pane.parts()["digest"])[1]
    with pytest.raises(PackingError):
        Pane.from_parts(pane.spec, {"digest": pack({"halves": halves}, about)})
    for change in (
        {"format": 2},
        {"accumulator": "counts"},
        {"spec": make.SPECS["multiclass"].digest},
    ):
        with pytest.raises(PackingError):
            Pane.from_parts(
                pane.spec, {"digest": pack({"halves": np.zeros(2, np.uint64)}, about | change)}
            )


# Different where the content is different.


COLUMNS: dict[str, Any] = {
    "probabilities": [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]],
    "label_counts": [[1, 2, 0], [0, 1, 0]],
    "weights": [1.0, 2.0],
    "units": ["a", "b"],
    "ids": ["i", "j"],
    "cases": ["c", "d"],
}
CHANGES: list[dict[str, Any]] = [
    {"probabilities": [[0.5, 0.25, 0.25], [0.25, 0.5 - 2**-53, 0.25]]},
    {"probabilities": [[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]]},
    {"probabilities": None, "logits": [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]},
    {"label_counts": [[2, 1, 0], [0, 1, 0]]},
    {"label_counts": [[1, 2, 0], [0, 2, 0]]},
    {"label_counts": [[1, 2, 0], [0, 0, 0]]},
    {"label_counts": [[1, 1, 1], [0, 1, 0]]},
    {"label_counts": [[0, 1, 0], [1, 2, 0]]},
    {"label_counts": None},
    {"weights": [2.0, 1.0]},
    {"weights": [1.0, 0.0]},
    {"weights": None},
    {"units": ["b", "a"]},
    {"units": ["a", "a"]},
    {"units": None},
    {"units": None, "cases": None},
    {"ids": ["j", "i"]},
    {"ids": None},
    {"cases": ["d", "c"]},
]


def test_everything_that_a_pane_depends_on_changes_its_digest() -> None:
    spec = PaneSpec("segmentation", 3)
    found = [
        pane_of(spec, Batch.from_columns(COLUMNS | change, task="segmentation").batch).digest()
        for change in ({}, *CHANGES)
    ]
    assert len(set(found)) == len(found)


def test_what_a_pane_does_not_depend_on_does_not() -> None:
    spec = PaneSpec("segmentation", 3)
    times = {"event_times": ["2026-01-01T00:00:00Z"] * 2, "slices": {"site": ["A", "B"]}}
    plain = pane_of(spec, Batch.from_columns(COLUMNS, task="segmentation").batch)
    placed = pane_of(spec, Batch.from_columns(COLUMNS | times, task="segmentation").batch)
    assert plain.digest() == placed.digest()
    no_weights, ones = (
        pane_of(spec, Batch.from_columns(COLUMNS | {"weights": w}, task="segmentation").batch)
        for w in (None, [1.0, 1.0])
    )
    assert no_weights.digest() == ones.digest()
    # Cases are content only where statistics are kept by case.
    spec = PaneSpec("multiclass", 3, listed_classes=(0,))
    one, other = (
        pane_of(spec, Batch.from_columns(COLUMNS | {"cases": cases}).batch)
        for cases in (["c", "d"], ["d", "e"])
    )
    assert one.digest() == other.digest()


def test_the_two_zeros_are_one() -> None:
    one, other = (
        Batch.from_columns(
            {"logits": [[zero, 1.0], [zero, 2.0]], "weights": [zero, 1.0], "labels": [0, 1]}
        ).batch
        for zero in (0.0, -0.0)
    )
    assert rows_digest(one, with_cases=False) == rows_digest(other, with_cases=False)


def test_how_a_unit_is_split_into_batches_is_content() -> None:
    """A unit's rows share its weight in their batch: the same rows in other company give other sums."""
    batch = Batch.from_columns(
        {
            "confidences": [0.1, 0.2, 0.3, 0.4],
            "labels": [[0, 1], 1, [1, 1, 1], 0],
            "units": ["u"] * 4,
        }
    ).batch
    spec = SPECS["binary"]
    splits = ([[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0], [1], [2], [3]])
    panes = [pane_of(spec, *(batch.take(np.array(rows)) for rows in split)) for split in splits]
    assert len({pane.digest() for pane in panes}) == len(panes)
    assert len({pane["units"].blocks["bins"].sums.tobytes() for pane in panes}) == len(panes)


# Well mixed.


def test_every_bit_of_a_row_changes_half_of_the_digest() -> None:
    rng = np.random.default_rng(0)
    n = 400
    batch = random_batch(rng, PaneSpec("multiclass", 3), n, logits=True)
    batch = replace(batch, weights=rng.random(n))
    before = row_hashes(batch, with_cases=False)
    for bit in (*range(62), 63):  # flipping the exponent's first bit could give infinity
        flip = np.uint64(1 << bit)
        assert batch.weights is not None
        weights = (batch.weights.view(np.uint64) ^ flip).view(np.float64)
        scores = batch.scores.copy()
        scores[:, 2] = (scores[:, 2].copy().view(np.uint64) ^ flip).view(np.float64)
        for changed in (replace(batch, weights=weights), replace(batch, scores=scores)):
            for one, other in zip(before, row_hashes(changed, with_cases=False), strict=True):
                flipped = np.unpackbits((one ^ other).view(np.uint8)).reshape(n, 64)
                assert 0.47 < flipped.mean() < 0.53
                assert flipped.mean(axis=0).min() > 0.35
                assert flipped.mean(axis=0).max() < 0.65


def test_a_million_rows_and_sums_of_their_pairs_do_not_collide() -> None:
    n = 1_000_000
    p = np.arange(n) / n
    rows = Batch("binary", np.stack([1.0 - p, p], axis=1), False, random_batch(
        np.random.default_rng(0), SPECS["binary"], 1).take(np.zeros(0, np.int64)).ratings)  # fmt: skip
    high, low = row_hashes(rows, with_cases=False)
    for lane in (high, low):
        for values in (lane, lane + np.roll(lane, 1), lane + np.roll(lane, 1000)):
            assert (np.diff(np.sort(values)) != 0).all()


def test_a_pane_without_a_digest_hashes_no_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"confidences": [0.9, 0.2], "labels": [1, 0], "cases": ["a", "b"]}
    batch, spec = Batch.from_columns(columns).batch, PaneSpec("binary", 2)
    assert Pane(spec).keeps("cases")
    whole = Pane(spec)
    whole.fill_batch(batch)

    def hashed(*given: object) -> None:
        raise AssertionError("cases were hashed")

    monkeypatch.setattr("calibrant.kernel.fill.case_hashes", hashed)
    some = Pane(spec, ["counts", "scores"])
    some.fill_batch(batch)
    assert some.digest() is None and some.counts == whole.counts
    assert some["scores"].pack() == whole["scores"].pack()
