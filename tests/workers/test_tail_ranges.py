"""Rows of several tails unpacked together are those of each tail unpacked alone, in every bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from calibrant import Batch, Pane
from calibrant.core.packing import PackingError, described, pack, unpack
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_reading import sampled_tails
from calibrant_server.workers.ingest.sample_rows import SampleRows
from calibrant_server.workers.ingest.stored_panes import PaneRows
from calibrant_server.workers.ingest.tail_ranges import MAX_BYTES, RowRange
from calibrant_server.workers.ingest.tail_rows import TailRows
from tests.calibrant.data import shapes
from tests.calibrant.panes import FEW, SPECS
from tests.workers.test_tail_rows import assert_equal_rows, batches, removed, rows_of

some_specs = pytest.mark.parametrize("spec", [SPECS["two"], SPECS["listed"]])


def tails(spec, options) -> list[TailRows]:
    """Tails of several forms, one with rows that are taken away, and one row alone."""
    rows = rows_of(batches(spec, options, 2))
    return [
        rows,
        rows.take(np.arange(len(rows)) % 3 == 0),
        TailRows.together([rows, removed(rows.take(np.arange(len(rows)) % 4 == 0), 2)]),
        rows_of(batches(spec, options | {"seed": options["seed"] + 1}, 1)),
        rows.take(np.array([0])),
    ]


def small_tails() -> list[bytes]:
    options = {"seed": 3, "n": 20, "logits": False, "weights": True, "units": "units"}
    options |= {"most_raters": 3, "unlabelled": 0.2}
    return [each.pack() for each in tails(SPECS["three"], options)]


@some_specs
@FEW
@given(options=shapes())
def test_ranges_are_the_rows_of_each_tail(spec, options):
    packed = [each.pack() for each in tails(spec, options)]
    for data, found in zip(packed, TailRows.unpack_small(packed), strict=True):
        alone = TailRows.unpack(data)
        if found is None:
            assert described(data)[1] > MAX_BYTES
            continue
        assert_equal_rows(found.rows, alone)
        assert len(found) == len(alone) and found.only_adds == alone.only_adds
        assert found.part.tolist() == alone.part.tolist()
        assert_equal_rows(found.net, alone.net)


@some_specs
@FEW
@given(options=shapes())
def test_ranges_fill_a_pane_like_the_rows_of_each_tail(spec, options):
    packed = [each.pack() for each in tails(spec, options)]
    alone = [TailRows.unpack(data) for data in packed]
    together = TailRows.unpack_small(packed)
    ranges = [each or other for each, other in zip(together, alone, strict=True)]
    assert isinstance(ranges[-1], RowRange)
    for slice_ in ("", "site:B"):
        made = []
        # Merged at once, and in two steps as hours and days are.
        for pieces in (alone, ranges, [PaneRows.of(Numerics(), ranges[:3]), *ranges[3:]]):
            pane = Pane(spec)
            PaneRows.of(Numerics(), pieces).fill_into(pane, slice_, lambda: Pane(spec))
            made.append(pane.parts())
        assert made[0] == made[1] == made[2]


def assert_same_narrow(one: TailRows, other: TailRows) -> None:
    assert one.known_narrow is not None and other.known_narrow is not None
    for mine, theirs in zip(one.known_narrow, other.known_narrow, strict=True):
        np.testing.assert_array_equal(mine, theirs, strict=True)


@some_specs
@FEW
@given(options=shapes())
def test_pieces_of_a_tail_are_the_rows_of_each_piece(spec, options):
    packed = [each.pack() for each in tails(spec, options)]
    alone = TailRows.together([TailRows.unpack(data) for data in packed])
    found = TailRows.unpack_pieces(packed)
    assert_equal_rows(found, alone)
    assert_same_narrow(found, alone)


@pytest.mark.parametrize("is_float32", [False, True])
def test_pieces_of_one_form_are_unpacked_together(monkeypatch, is_float32):
    """Also pieces with more rows than a small tail has."""
    rng = np.random.default_rng(5)
    n, parts = MAX_BYTES // 64, []
    for part in range(15):
        scores = rng.dirichlet([0.3] * 10, n)
        scores = scores.astype(np.float32).astype(np.float64) if is_float32 else scores
        columns = {"probabilities": scores, "labels": rng.integers(0, 10, (n, 2)).tolist()}
        parts.append(TailRows.of_batch(Batch.from_columns(columns).batch, part))
    packed = [part.pack() for part in parts]
    assert described(packed[0])[1] > MAX_BYTES

    def refuse(data):
        raise AssertionError("a piece was unpacked alone")

    monkeypatch.setattr(TailRows, "unpack", refuse)
    found = TailRows.unpack_pieces(packed)
    assert_equal_rows(found, TailRows.together(parts))
    assert found.part.tolist() == np.repeat(np.arange(15), n).tolist()


def test_a_damaged_and_a_large_tail_are_left_to_be_read_alone():
    packed = small_tails()
    n = MAX_BYTES // 16 + 1
    large = TailRows.of_batch(
        Batch.from_columns({"confidences": np.linspace(0.5, 1.0, n), "labels": [1] * n}).batch, 0
    ).pack()
    found = TailRows.unpack_small([packed[0], packed[1][:-1] + b"?", large, b"", packed[2]])
    assert [each is None for each in found] == [False, True, True, True, False]
    assert isinstance(found[4], RowRange)
    assert_equal_rows(found[4].rows, TailRows.unpack(packed[2]))


def mutations():
    """Changes of one array of a packed tail, or of its description."""
    rng = np.random.default_rng(0)
    for data in small_tails():
        arrays, about = unpack(data)
        for name, array in arrays.items():
            for changed in (array[:-1], np.concatenate([array, array[:1]]), array[:0], array[::-1]):
                yield data, arrays | {name: np.ascontiguousarray(changed)}, about
            wild = array.copy()
            wild.reshape(-1)[rng.integers(max(1, array.size)) :][:1] = 200
            yield data, arrays | {name: wild}, about
            yield data, {each: value for each, value in arrays.items() if each != name}, about
        for name in about["same"]:
            for value in (None, 3, -7):
                yield data, arrays, about | {"same": about["same"] | {name: value}}
        for changed in (
            {"n": about["n"] + 1},
            {"n": -1},
            {"task": "none"},
            {"rows": 9},
            {"slices": []},
        ):
            yield data, arrays, about | changed


def test_no_invalid_tail_is_accepted_and_none_changes_its_neighbours():
    n_rejected = 0
    for data, arrays, about in mutations():
        changed = pack(arrays, about)
        before, found, after = TailRows.unpack_small([data, changed, data])
        try:
            alone = TailRows.unpack(changed)
        except PackingError:
            n_rejected += 1
            assert found is None
            with pytest.raises(PackingError):
                TailRows.unpack_pieces([data, changed])
        else:
            assert found is None or assert_equal_rows(found.rows, alone) is None
            assert_equal_rows(
                TailRows.unpack_pieces([data, changed]),
                TailRows.together([TailRows.unpack(data), alone]),
            )
        if before is not None:
            assert_equal_rows(before.rows, TailRows.unpack(data))
            assert after is not None
            assert_equal_rows(after.rows, TailRows.unpack(data))
    assert n_rejected > 100


def test_rows_of_other_columns_are_not_in_one_block():
    columns = {"probabilities": [[0.2, 0.8], [0.6, 0.4]], "labels": [1, 0]}
    batches_ = [
        columns,
        columns | {"slices": {"site": ["A", "B"]}},
        columns | {"cases": ["a", "b"]},
    ]
    packed = [TailRows.of_batch(Batch.from_columns(each).batch, 0).pack() for each in batches_]
    found = TailRows.unpack_small(packed)
    for data, each in zip(packed, found, strict=True):
        assert each is not None
        assert_equal_rows(each.rows, TailRows.unpack(data))


@some_specs
@FEW
@given(options=shapes())
def test_ranges_give_the_sample_of_each_tail(spec, options):
    """Adjacent ranges of a block are taken at once, unless rows of a tail cancel each other."""
    packed = [each.pack() for each in tails(spec, options)]
    starts = [3600 * i for i in range(len(packed))]
    alone = [TailRows.unpack(data) for data in packed]
    ranges = TailRows.unpack_small(packed)
    rows = [each or other for each, other in zip(ranges, alone, strict=True)]
    for halvings in (0, 1):
        several = sampled_tails([*zip(starts, rows, strict=True), (0, None)], halvings)
        each_alone = [
            SampleRows.of_tail(one.net, start, halvings)
            for start, one in zip(starts, alone, strict=True)
        ]
        assert len(several) <= len(each_alone)
        found, expected = (SampleRows.together(parts) for parts in (several, each_alone))
        assert found.starts.tolist() == expected.starts.tolist()
        assert found.pack() == expected.pack()


def test_adjacent_ranges_are_one_piece_of_a_sample():
    columns = {"confidences": [0.9, 0.2, 0.4], "labels": [1, 0, None]}
    packed = [TailRows.of_batch(Batch.from_columns(columns).batch, 0).pack()] * 5
    ranges = TailRows.unpack_small(packed)
    [piece] = sampled_tails(list(zip(range(0, 50, 10), ranges, strict=True)), 0)
    assert piece.starts.tolist() == [0, 0, 10, 10, 20, 20, 30, 30, 40, 40]


@pytest.mark.parametrize("several", [[], [b"x"]])
def test_nothing_to_unpack(several):
    assert TailRows.unpack_small(several) == [None] * len(several)
