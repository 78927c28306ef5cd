"""Packed bytes come back to the bit, are read forever, and reject whatever `pack` did not write."""

from __future__ import annotations

import json
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from calibrant import Batch, Histogram, Pane
from calibrant.accumulators import accumulators
from calibrant.core.frames import MAX_CONTENT
from calibrant.core.packing import (
    _PREFIX,
    FORMAT,
    MAGIC,
    PackingError,
    _checksum,
    pack,
    packed_length,
    unpack,
)
from calibrant.core.pane_validation import check_pane
from tests.calibrant.golden import make
from tests.calibrant.panes import assert_same

DTYPES = [np.int64, np.uint64, np.float64, np.float32, np.uint8]
READERS: dict[str, Callable[[bytes], Any]] = {
    "batch": Batch.unpack,
    "pane": Pane.unpack,
    "histogram": Histogram.unpack,
}


def golden() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(make.HERE.glob("*.packed"))}


def reader(name: str) -> Callable[[bytes], Any]:
    return READERS[name.partition("-")[0].partition(".")[0]]


@contextmanager
def at_most(megabytes: float) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * 1e6
    finally:
        tracemalloc.stop()


def signed(header: Any, frame: bytes) -> bytes:
    """Bytes with a right checksum, as a hostile client makes them."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (
        _PREFIX.pack(MAGIC, FORMAT, len(text), len(frame), _checksum(FORMAT, text, frame))
        + text
        + frame
    )


def frame(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


# What was written is read.


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text("abc.", min_size=1, max_size=5),
        st.sampled_from(DTYPES).flatmap(
            lambda d: hnp.arrays(
                d, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
            )
        ),
        max_size=5,
    )
)
def test_every_bit_comes_back(arrays: dict[str, np.ndarray]) -> None:
    again, about = unpack(pack(arrays, {"a": [1, "x", None]}))
    assert about == {"a": [1, "x", None]}
    assert list(again) == list(arrays)
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        assert again[name].shape == array.shape
        assert again[name].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.0, -0.0]), np.array([np.nan, 1.0]), np.array([np.inf]), np.array([2.0**53, 1.0]),
        np.array([5e-324]), np.array([-128, 127]), np.array([-129]), np.array([2**62, -(2**63)]),
        np.array([3.0, 4.0], ">f8"), np.array([1, 2], ">i8"), np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
)  # fmt: skip
def test_limits_of_the_types_come_back(values: np.ndarray) -> None:
    again = unpack(pack({"x": values, "y": values, "z": values[::-1]}, {}))[0]
    for name, expected in {"x": values, "y": values, "z": values[::-1]}.items():
        assert again[name].tobytes() == expected.astype(expected.dtype.newbyteorder("<")).tobytes()


def test_arrays_that_come_back_are_their_own() -> None:
    complete = np.arange(5)
    again = unpack(pack({"a": complete, "b": complete, "c": complete.astype(float)}, {}))[0]
    again["a"][0] = 99
    assert again["b"].tolist() == [0, 1, 2, 3, 4]
    assert again["c"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_what_could_not_be_read_is_not_written() -> None:
    with pytest.raises(ValueError, match="more than `unpack` reads"):
        pack({}, {"x": "a" * (1 << 23)})


def test_many_long_names_can_be_read_back() -> None:
    ids = [f"{i:0128d}" for i in range(60_000)]
    batch = Batch.from_columns({"confidences": [0.5] * len(ids), "ids": ids, "cases": ids}).batch
    again = Batch.unpack(batch.pack())
    assert again.ids is not None
    assert again.ids.tolist() == ids
    assert again.digest() == batch.digest()


# Golden files.


def test_a_golden_file_of_each_kind_is_here() -> None:
    assert set(golden()) >= set(make.packed())


LAST_WITHOUT_EDGES = 5  # generation of golden panes


def golden_panes() -> list[str]:
    return [name for name in golden() if name.startswith("pane")]


@pytest.mark.parametrize("name", golden_panes())
def test_golden_panes_are_what_is_filled_today(name: str) -> None:
    task = name.partition("-")[2].partition(".")[0]
    pane = Pane.unpack(golden()[name])
    today = make.pane(task).parts()
    held = {part: today[part] for part in pane.parts()}
    if int(name.split(".")[1]) <= LAST_WITHOUT_EDGES:
        with_scores_on_edges(pane)
    assert_same(pane, in_format_of(pane, Pane.from_parts(make.SPECS[task], held)))
    assert pane.counts["n_predictions"] == 80
    assert pane.units_split == {"n": 13, "estimated": False}


def with_scores_on_edges(pane: Pane) -> None:
    """Move tempered scores of 1/10 (of the probability 1/4 at beta 2), which rounding put above the edge 6/60, to the edge.

    The code that made the first golden panes compared tempered scores with edges exactly.
    """
    if pane.spec.task == "binary":
        tables = pane["temperature"].blocks["tables"]
        above = 12 * 60 + 6
        assert tables.counts[0, above]
        for columns in (tables.counts, tables.sums):
            columns[:, above - 1] += columns[:, above]
            columns[:, above] = 0


def in_format_of(old: Pane, pane: Pane) -> Pane:
    """The pane without the blocks that the old one's accumulators do not have."""
    for name in old.names:
        for block in set(pane[name].blocks) - set(old[name].blocks):
            assert name == "cases" or pane[name].later_blocks[block] > old[name].stored_format
            del pane[name].blocks[block]
    return pane


@pytest.mark.parametrize("name", golden_panes())
def test_golden_panes_merge_with_those_of_today(name: str) -> None:
    """The sum has what both have and is written in the older format; nothing of the older pane stays after it is subtracted."""
    old, new = Pane.unpack(golden()[name]), make.pane(name.partition("-")[2].partition(".")[0])
    both, other_way = new.copy().merge(old), old.copy().merge(new)
    assert_same(both, other_way)
    assert_same(Pane.unpack(both.pack()), both)
    for part in old.names:
        if part in old.parts():
            formats = [pane[part].stored_format for pane in (both, old)]
            assert formats[0] == formats[1]
    assert_same(in_format_of(old, both.subtract(new)), in_format_of(old, old.copy()))
    empty = both.subtract(old)
    assert empty.is_empty
    assert all(empty[part].stored_format == empty[part].format for part in empty.names)


@pytest.mark.parametrize("task", make.SPECS)
def test_the_last_golden_panes_hold_every_accumulator(task: str) -> None:
    pane = Pane.unpack(golden()[f"pane-{task}.{make.GENERATION}.packed"])
    check_pane(pane, make.SPECS[task])
    without = set() if task in ("segmentation", "logits") else {"cases"}
    assert set(pane.parts()) == set(pane.names) - without | {"digest"}
    assert set(pane.names) == {n for n, kind in accumulators().items() if kind.applies(pane.spec)}


def test_the_golden_batch_is_what_is_read_today() -> None:
    batch = Batch.unpack(golden()["batch.1.packed"])
    assert batch.digest() == make.batch("multiclass").digest()
    assert batch.digest().hex() == "13d290e0b7cadd40d6fa4c5cd0ad9eba"


def test_the_golden_histogram_is_what_is_read_today() -> None:
    histogram = Histogram.unpack(golden()["histogram.1.packed"])
    expected = make.histogram("multiclass")
    assert histogram.key == expected.key == "top_label||mean|left"
    assert (histogram.slice, histogram.event_time, histogram.n_units) == (
        expected.slice,
        expected.event_time,
        5,
    )
    np.testing.assert_array_equal(histogram.sum_confidence, expected.sum_confidence)


# What was not written is rejected.


@pytest.mark.parametrize("name", ["batch.1.packed", "histogram.1.packed"])
def test_every_flipped_bit_is_rejected(name: str) -> None:
    data = golden()[name]
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with pytest.raises(PackingError):
                reader(name)(bytes(flipped))


@pytest.mark.parametrize("name", golden_panes())
def test_a_flipped_bit_anywhere_in_a_pane_is_rejected(name: str) -> None:
    data = golden()[name]
    chosen = random.Random(1)
    for place in [*range(60), *range(60, len(data), 397)]:
        for bit in range(8) if place < 60 else [chosen.randrange(8)]:
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with pytest.raises(PackingError):
                Pane.unpack(bytes(flipped))


@pytest.mark.parametrize("name", sorted(golden()))
def test_every_truncation_and_every_addition_is_rejected(name: str) -> None:
    data = golden()[name]
    for length in range(0, len(data), 1 if len(data) < 2000 else 23):
        with pytest.raises(PackingError):
            reader(name)(data[:length])
    for more in (b"\0", data[:1], data):
        with pytest.raises(PackingError):
            reader(name)(data + more)


@pytest.mark.parametrize("name", sorted(golden()))
def test_one_thing_is_not_read_as_another(name: str) -> None:
    for other, read in READERS.items():
        if not name.startswith(other):
            with pytest.raises(PackingError):
                read(golden()[name])


def test_newer_formats_are_named() -> None:
    newer = bytearray(pack({}, {}))
    newer[4] = 2
    with pytest.raises(PackingError, match="format 2"):
        unpack(bytes(newer))
    with pytest.raises(PackingError, match="CALB"):
        packed_length(b"PK" + bytes(50))
    head = pack({}, {"pane": 9, "spec": {}, "parts": {}})
    with pytest.raises(PackingError, match="pane format 9"):
        Pane.unpack(head)


ODD = [
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**70, 10**4000, 1.5, float("nan"), float("inf"), "", "<f8", "|i1", "|O",
    "<f8,<f8", "x" * 100, [], [0], [-1], [2**62, 2**62], [0, 2**63], [10**4000] * 4, [True], {}, {"a": 1}, [[]],
]  # fmt: skip


def test_strange_headers_with_a_right_checksum_are_rejected_or_read() -> None:
    content = np.arange(8.0)
    good = [["a", "f", [8], "<f8"], ["b", "f", [8], 0], ["c", "i", [2], "|i1"]]
    body = frame(content.view(np.uint8).reshape(-1, 8).T.tobytes() + b"\1\2")
    assert unpack(signed({"about": {}, "arrays": good}, body))[0]["b"].tolist() == content.tolist()
    for row in range(3):
        for column in range(4):
            for odd in ODD:
                columns = [list(entry) for entry in good]
                columns[row][column] = odd
                try_unpack(signed({"about": {}, "arrays": columns}, body))
    for odd in ODD:
        for header in (
            {"about": odd, "arrays": good},
            {"about": {}, "arrays": odd},
            {"about": {}, "arrays": [odd]},
            odd,
        ):
            try_unpack(signed(header, body))


def try_unpack(data: bytes) -> None:
    """Reading may succeed; it may not fail in another way than by PackingError."""
    try:
        arrays, about = unpack(data)
    except PackingError:
        return
    assert isinstance(about, dict)
    assert all(array.nbytes < 1000 for array in arrays.values())


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(type(odd)))
@pytest.mark.parametrize(
    "field", ["pane", "spec", "parts", "task", "n_classes", "grid", "listed_classes", "counts"]
)
def test_strange_panes_with_a_right_checksum_are_rejected_or_read(field: str, odd: Any) -> None:
    data = golden()["pane-multiclass.1.packed"]
    head = packed_length(data)
    about = unpack(data[:head])[1]
    place = about if field in about else about["parts"] if field == "counts" else about["spec"]
    place[field] = odd
    changed = signed({"about": about, "arrays": []}, frame(b"")) + data[head:]
    try:
        pane = Pane.unpack(changed)
    except PackingError:
        return
    assert pane.spec == make.SPECS["multiclass"]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(type(odd)))
@pytest.mark.parametrize("part", ["unit_sample", "histograms", "counts"])
def test_strange_parts_with_a_right_checksum_are_rejected_or_read(part: str, odd: Any) -> None:
    spec = make.SPECS["multiclass"]
    arrays, about = unpack(make.pane("multiclass").parts()[part])
    for field in about:
        changed = pack(arrays, {})
        header = json.loads(changed[_PREFIX.size : _PREFIX.size + _PREFIX.unpack_from(changed)[2]])
        header["about"] = about | {field: odd}
        body = changed[_PREFIX.size + _PREFIX.unpack_from(changed)[2] :]
        try:
            accumulators()[part].unpack(spec, signed(header, body))
        except PackingError:
            continue
        assert (field, odd) in (
            ("halvings", 0),
            ("halvings", 1),
            ("format", 1),
            ("format", True),
            ("keys", []),
        )


def test_blocks_with_columns_of_other_types_are_rejected() -> None:
    spec = make.SPECS["multiclass"]
    arrays, about = unpack(make.pane("multiclass").parts()["top_label"])
    n = len(arrays["cells.places"])
    changes: list[dict[str, np.ndarray]] = [
        {"cells.places": arrays["cells.places"].astype(float)},
        {"cells.places": arrays["cells.places"].reshape(-1, 1)},
        {"cells.places": np.zeros(n, np.int64)},
        {"cells.places": np.full(n, 2**62)},
        {"cells.places": -arrays["cells.places"]},
        {"cells.places": arrays["cells.places"][1:]},
        {"cells.count0": np.zeros(n, np.int64)},
        {"cells.count0": arrays["cells.count0"].astype(float)},
        {"cells.count1": arrays["cells.count1"][:1]},
        {"cells.sum0": np.full(n, np.nan)},
        {"cells.sum3": np.full(n, np.inf)},
        {"cells.sum3": np.ones(n, np.float32)},
        {"cells.sum3": np.ones((n, 1))},
    ]
    for change in changes:
        with pytest.raises(PackingError):
            accumulators()["top_label"].unpack(spec, pack(arrays | change, about))
    for missing in arrays:
        kept = {name: array for name, array in arrays.items() if name != missing}
        with pytest.raises(PackingError):
            accumulators()["top_label"].unpack(spec, pack(kept, about))


def test_a_batch_whose_columns_do_not_fit_is_rejected() -> None:
    batch = make.batch("multiclass")
    arrays, about = unpack(batch.pack())
    n = batch.n
    changes: list[dict[str, np.ndarray]] = [
        {"scores": arrays["scores"][1:]}, {"scores": arrays["scores"][0]}, {"scores": np.ones((n, 3), np.int64)},
        {"vote_row": arrays["vote_row"] + n}, {"vote_row": arrays["vote_row"][::-1]},
        {"vote_row": arrays["vote_row"][1:]},
        {"vote_class": arrays["vote_class"] + 3}, {"vote_count": -arrays["vote_count"]}, {"weights": np.ones(1)},
        {"event_times": np.zeros((n, 1), np.int64)}, {"ids": np.frombuffer(b"a\n", np.uint8)},
        {"ids": np.full(2 * n, 255, np.uint8)}, {"units": np.zeros(0, np.uint8)},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(PackingError):
            Batch.unpack(pack(arrays | change, about))
    for key in ("task", "is_logits"):
        with pytest.raises(PackingError):
            Batch.unpack(pack(arrays, {k: v for k, v in about.items() if k != key}))
    for slices in (["town"], 5, [["site"]]):
        with pytest.raises(PackingError):
            Batch.unpack(pack(arrays, about | {"slices": slices}))


# Bombs.


@cache
def zeros() -> bytes:
    return frame(bytes(1 << 27))


def said_to_hold(size: int) -> bytes:
    """The start of a zstandard frame that says how much is in it."""
    return b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little")


def without_size() -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(bytes(1 << 20)) + stream.flush()


def columns_of(*shape: int) -> dict[str, Any]:
    return {"about": {}, "arrays": [["a", "i", list(shape), "|i1"]]}


LARGE = 1 << 27
REFERENCES = [[f"r{i}", "i" if i % 2 else "f", [LARGE // 8], 0] for i in range(1000)]
BOMBS: dict[str, Callable[[], bytes]] = {
    "content beyond the limit": lambda: signed(columns_of(10), said_to_hold(1 << 40)),
    "content of 2^64 - 3": lambda: signed(columns_of(10), said_to_hold(2**64 - 3)),
    "narrow content that widens": lambda: signed(columns_of(LARGE), zeros()),
    "content that no array takes": lambda: signed(columns_of(10), zeros()),
    "references to one array": lambda: signed(
        {"about": {}, "arrays": [["a", "i", [LARGE // 8], "<i8"], *REFERENCES]}, zeros()
    ),
    "no size": lambda: signed(columns_of(1 << 20), without_size()),
    "many sides": lambda: signed(columns_of(*[2] * 1000), frame(b"")),
    "large sides": lambda: signed(columns_of(*[10**4000] * 4), frame(b"")),
    "deep header": lambda: signed(b"[" * 1_000_000, frame(b"")),
    "long header": lambda: signed(b" " * (1 << 23) + b"{}", frame(b"")),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_rejected_before_they_burst(name: str) -> None:
    bomb = BOMBS[name]()
    largest = 1 << 20 if name == "content that no array takes" else MAX_CONTENT
    with at_most(40), pytest.raises(PackingError):
        unpack(bomb, largest=largest)


def test_a_part_is_no_larger_than_its_accumulator_can_be() -> None:
    spec = make.SPECS["multiclass"]
    about = {"accumulator": "top_label", "format": 1, "spec": spec.digest}
    bomb = signed(
        {"about": about, "arrays": [["cells.places", "i", [1 << 23], "<i8"]]}, frame(bytes(1 << 26))
    )
    assert len(bomb) < 10_000
    with at_most(5), pytest.raises(PackingError, match="larger than it can be"):
        accumulators()["top_label"].unpack(spec, bomb)


def test_the_checksum_covers_format_and_lengths() -> None:
    assert _checksum(1, b"ab", b"c") != _checksum(1, b"a", b"bc")
    assert _checksum(1, b"", b"") != _checksum(2, b"", b"") != zlib.crc32(b"")
    assert MAX_CONTENT == 1 << 28


def test_bytes_after_the_frame_are_rejected_even_when_signed() -> None:
    header = columns_of(3)
    assert unpack(signed(header, frame(b"abc")))[0]["a"].tolist() == [97, 98, 99]
    for more in (b"\0", frame(b"def")):
        with pytest.raises(PackingError):
            unpack(signed(header, frame(b"abc") + more))
