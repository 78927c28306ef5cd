"""The compiled kernel against its specification, the numpy accumulators: counts equal, sums within 1e-12 of their column's largest."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from calibrant import Batch, Pane, PaneSpec
from calibrant.accumulators import accumulators
from calibrant.core.stored_batch import StoredBatch
from calibrant.kernel import library, status
from calibrant.kernel.declarations import structures
from calibrant.kernel.workspace import shapes_of
from tests.oracle.panes import filled as by_numpy

COMPILER = os.environ.get("CC", "cc")
LARGEST = 1e-12
# Differences of sums, such as a gap of entropies, have rounding errors of what they are a difference of: of the pane's weight or its square.
OF_WEIGHT = 1e-15


def needs_compiler() -> None:
    if shutil.which(COMPILER.split()[0]) is None:
        pytest.skip("no C compiler")


@contextmanager
def variant(avx2: bool) -> Iterator[bool]:
    """Use a variant of the kernel; yields whether the processor has AVX2."""
    found = library.library()
    try:
        yield bool(found.calibrant_kernel_avx2(int(avx2))) or not avx2
    finally:
        found.calibrant_kernel_avx2(int(status().variant == "avx2"))


def filled(spec: PaneSpec, *batches: Batch) -> Pane:
    pane = Pane(spec)
    for batch in batches:
        pane.fill_batch(batch)
    return pane


def assert_equal_panes(kernel: Pane, numpy: Pane, rounded: Pane | None = None) -> None:
    """Compare all blocks; sums have the rounding errors of those of `rounded`, such as the pane before a subtraction."""
    rounded = rounded or numpy
    assert kernel.digest() == numpy.digest()
    assert kernel.names == numpy.names
    for name in numpy.names:
        assert kernel[name].blocks.keys() == numpy[name].blocks.keys()
        for block_name, expected in numpy[name].blocks.items():
            block, at = kernel[name].blocks[block_name], f"{name} {block_name}"
            assert np.array_equal(block.counts, expected.counts), at
            scale = np.abs(rounded[name].blocks[block_name].sums).max(axis=1, initial=0.0)
            slack = LARGEST * scale + OF_WEIGHT * (rounded.weight + rounded.weight**2)
            error = np.abs(block.sums - expected.sums).max(axis=1, initial=0.0)
            assert (error <= slack).all(), (at, np.flatnonzero(error > slack), error / slack)


def rows(rng: np.random.Generator, n: int, n_classes: int, kind: str) -> NDArray[np.float64]:
    """Probabilities of a kind: general, on edges of the grids, with zeros, or certain."""
    if kind == "edges":
        parts = rng.multinomial(60, np.full(n_classes, 1 / n_classes), n) / 60
        return np.asarray(
            np.where(parts.sum(axis=1, keepdims=True) == 1.0, parts, np.eye(n_classes)[0])
        )
    if kind == "equal":
        return np.full((n, n_classes), 1 / n_classes)
    found = rng.dirichlet(np.full(n_classes, 0.1 if kind == "steep" else 1.0), n)
    if kind == "zeros":
        found[rng.random(found.shape) < 0.5] = 0.0
        found[:, 0] += 1e-3
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def ratings(rng: np.random.Generator, n: int, n_classes: int, kind: str) -> list[list[int] | None]:
    """Ratings of every row: equally many, of different number, one, or missing from most."""
    number = {
        "equal": np.full(n, 5), "ragged": rng.integers(1, 8, n), "one": np.ones(n, np.int64),
        "missing": rng.integers(0, 3, n), "many": rng.integers(1, 60, n), "none": np.zeros(n, np.int64),
    }[kind]  # fmt: skip
    few = min(n_classes, 4)
    return [rng.integers(0, few, each).tolist() or None for each in number]


@st.composite
def batches(draw: st.DrawFn, n_classes: int, task: str) -> Batch:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.sampled_from([1, 2, 3, 7, 40]))
    scores = rows(
        rng, n, n_classes, draw(st.sampled_from(["plain", "steep", "edges", "equal", "zeros"]))
    )
    columns: dict[str, object] = {
        "labels": ratings(
            rng,
            n,
            n_classes,
            draw(st.sampled_from(["equal", "ragged", "one", "missing", "many", "none"])),
        )
    }
    if draw(st.booleans()):
        columns["probabilities"] = scores
    else:
        with np.errstate(divide="ignore"):
            columns["logits"] = np.maximum(
                np.log(scores) * draw(st.sampled_from([1.0, 30.0])), -3e38
            )
    if draw(st.booleans()):
        columns["weights"] = rng.choice([0.0, 0.5, 1.0, 3.25, 1e3], n)
    named = draw(st.sampled_from(["row", "units", "ids", "cases"]))
    if named != "row":
        columns[named] = [
            f"{named}-{i}" for i in (range(n) if named == "ids" else rng.integers(0, 1 + n // 3, n))
        ]
    return Batch.from_columns(columns, task=task, n_classes=n_classes).batch


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("cells", [1200, 3600])
def test_rows_of_every_rule_of_edges(task: str, cells: int) -> None:
    rng = np.random.default_rng(5)
    first = rng.integers(0, 3601, 3000) / 3600
    narrow = [first, first.astype(np.float32), first.astype(np.float16), rng.permutation(first)]
    score = np.choose(rng.integers(0, 4, 3000), narrow).astype(np.float64)
    columns = {
        "probabilities": np.column_stack([1.0 - score, score]),
        "labels": rng.integers(0, 2, 3000),
    }
    batch = Batch.from_columns(columns, task=task, n_classes=2).batch
    ruled = replace(batch, edge_rules=rng.integers(0, 4, 3000).astype(np.uint8))
    spec = PaneSpec(task, 2, grid=cells)
    assert_equal_panes(filled(spec, ruled), by_numpy(spec, ruled))
    assert not np.array_equal(
        filled(spec, ruled)["top_label"].blocks["cells"].counts,
        filled(spec, batch)["top_label"].blocks["cells"].counts,
    )


@pytest.mark.parametrize(
    ("spec", "n_examples"),
    [
        (PaneSpec("binary", 2), 30),
        (PaneSpec("multiclass", 3), 30),
        (PaneSpec("segmentation", 10), 30),
        (PaneSpec("multiclass", 10, grid=700, listed_classes=(1, 4)), 20),
        (PaneSpec("multiclass", 1000), 8),
    ],
    ids=lambda value: (
        f"{value.task}-{value.n_classes}-{value.grid}" if isinstance(value, PaneSpec) else ""
    ),
)
def test_kernel_fills_as_numpy_does(spec: PaneSpec, n_examples: int) -> None:
    @settings(max_examples=n_examples, deadline=None, derandomize=True, database=None)
    @given(batches(spec.n_classes, spec.task), batches(spec.n_classes, spec.task))
    def check(first: Batch, second: Batch) -> None:
        assert_equal_panes(filled(spec, first), by_numpy(spec, first))
        both = filled(spec, first, second)
        assert_equal_panes(both, by_numpy(spec, first, second))
        # What one fills the other can subtract.
        rest = both.copy().subtract(by_numpy(spec, first))
        assert_equal_panes(rest, by_numpy(spec, second), rounded=both)

    check()


def example(n: int = 300, n_classes: int = 10) -> Batch:
    rng = np.random.default_rng(3)
    columns = {
        "probabilities": rows(rng, n, n_classes, "steep"),
        "labels": ratings(rng, n, n_classes, "ragged"),
    }
    return Batch.from_columns(columns, task="multiclass", n_classes=n_classes).batch


def test_stored_rows_of_several_batches_are_filled_as_numpy_does() -> None:
    """A unit that occurs in two of the batches has two keys; hashes are the committed ones."""
    rng, spec = np.random.default_rng(5), PaneSpec("multiclass", 10)
    columns = {
        "probabilities": rows(rng, 90, 10, "plain"),
        "labels": ratings(rng, 90, 10, "missing"),
        "units": [f"u{i}" for i in rng.integers(0, 20, 90)],
        "weights": rng.random(90),
    }
    batch = Batch.from_columns(columns, task="multiclass", n_classes=10).batch
    parts = rng.integers(0, 3, 90)
    stored = StoredBatch.of(batch, parts)
    assert_equal_panes(filled(spec, stored), by_numpy(spec, stored))
    apart = [StoredBatch.of(batch.take(parts == i), parts[parts == i]) for i in range(3)]
    assert_equal_panes(filled(spec, stored), filled(spec, *apart))


def test_baseline_and_avx2_give_the_same_bits() -> None:
    spec = PaneSpec("multiclass", 10)
    with variant(avx2=False):
        baseline = filled(spec, example())
    with variant(avx2=True) as has_avx2:
        if not has_avx2:
            pytest.skip("this processor has no AVX2")
        fast = filled(spec, example())
    for name in baseline.names:
        for block, expected in baseline[name].blocks.items():
            assert np.array_equal(fast[name].blocks[block].sums, expected.sums), (name, block)


@pytest.mark.parametrize("avx2", [False, True])
def test_exponential_and_logarithm_are_within_1e_15(avx2: bool) -> None:
    found = library.library()
    rng = np.random.default_rng(0)
    x = np.concatenate([
        rng.uniform(0, 1, 20_000), rng.uniform(0, 708, 20_000), np.exp(rng.uniform(-744, 0, 20_000)), 1.0 - np.exp(rng.uniform(-36, -1, 20_000)),
        [5e-324, 2.0**-1022, 0.5, np.nextafter(1, 0), 1.0, np.sqrt(0.5), 2.0, 3.0],
    ])  # fmt: skip
    exponential, logarithm = np.empty_like(x), np.empty_like(x)
    with variant(avx2) as is_there:
        if not is_there:
            pytest.skip("this processor has no AVX2")
        found.calibrant_kernel_numbers(
            x.ctypes.data, exponential.ctypes.data, logarithm.ctypes.data, len(x)
        )
    exact = x.astype(np.longdouble)
    assert np.finfo(np.longdouble).eps < 1e-18 or sys.platform == "darwin"
    assert np.abs(exponential / np.exp(-exact) - 1).max() < 1e-15
    assert np.abs(logarithm[x != 1] / np.log(exact[x != 1]) - 1).max() < 1e-15
    assert (logarithm[x == 1] == 0).all()


def test_every_accumulator_of_sums_is_the_kernels() -> None:
    """All but the samples, delays, cases, plain histograms and cells of logits."""
    for spec in (PaneSpec("binary", 2), PaneSpec("multiclass", 10), PaneSpec("multiclass", 1000)):
        of_kernel = {block.accumulator for block in shapes_of(spec)}
        others = {"sample", "unit_sample", "delays", "cases", "histograms", "logits"}
        assert of_kernel == set(Pane(spec).names) - others


def test_structures_are_those_of_the_compiler(tmp_path: Path) -> None:
    """Every size and every place of a field, as the C compiler has them."""
    assert library.library().calibrant_kernel_abi() == library.ABI
    needs_compiler()
    lines = ["#include <stddef.h>", '#include "kernel.h"', '#include "tempered.h"']
    for name, structure in structures().items():
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "{name}");')
        for field, _ in structure._fields_:
            place = getattr(structure, field).offset
            lines.append(f'_Static_assert(offsetof({name}, {field}) == {place}, "{field}");')
    source = tmp_path / "structures.c"
    source.write_text("\n".join(lines) + "\n")
    folder = Path(library.__file__).with_name("source")
    subprocess.run([*COMPILER.split(), "-fsyntax-only", "-I", str(folder), str(source)], check=True)


def test_every_function_of_the_library_is_declared() -> None:
    found, folder = library.library(), Path(library.__file__).with_name("source")
    names = re.findall(r"calibrant_kernel_\w+(?=\()", (folder / "kernel.c").read_text())
    assert {"calibrant_kernel_fill", "calibrant_kernel_new"} < set(names)
    assert all(getattr(found, name).argtypes is not None for name in names)
    assert found.calibrant_kernel_new.restype is ctypes.c_void_p
    assert found.calibrant_kernel_free.restype is None


def test_a_pane_with_some_accumulators_is_filled_in_part() -> None:
    spec, only = PaneSpec("multiclass", 10), {"top_label", "temperature"}
    pane = Pane(spec, only)
    pane.fill_batch(example())
    complete = by_numpy(spec, example())
    assert set(pane.names) == only and pane.digest() is None
    for name in only:
        for block, expected in complete[name].blocks.items():
            assert np.array_equal(pane[name].blocks[block].counts, expected.counts)


@pytest.mark.parametrize("sizes", [(1, 2, 1), (3, 900, 1), (900, 900)])
def test_known_addresses_are_used_only_while_blocks_keep_their_arrays(
    sizes: tuple[int, ...],
) -> None:
    """Between fills, a pane is made sparse, merged, subtracted from and copied; small batches are copied, large ones are not."""
    spec = PaneSpec("multiclass", 10)
    parts = [example(n) for n in sizes] * 2
    more = example(40)
    pane = filled(spec, example(2000))
    twin = pane
    for number, batch in enumerate(parts):
        pane.fill_batch(batch)
        pane.fill_batch(batch)
        twin = pane.copy()
        if number % 3 == 0:
            pane.tighten()
        elif number % 3 == 1:
            pane.compact()
        pane.merge(filled(spec, more)).subtract(filled(spec, more))
    twin.fill_batch(more)
    expected = by_numpy(spec, example(2000), *(batch for batch in parts for _ in range(2)))
    assert_equal_panes(pane, expected)
    assert_equal_panes(twin, expected.merge(by_numpy(spec, more)))


@pytest.mark.parametrize("smaller", ["tighten", "compact"])
def test_arrays_of_a_pane_that_was_made_sparse_are_written_no_more(smaller: str) -> None:
    """Nothing else happens to the pane between two fills, so that its former arrays are freed."""
    spec = PaneSpec("multiclass", 10)
    parts = [example(2000), example(3), example(40), example(3), example(3)]
    pane = filled(spec, *parts[:2]).subtract(filled(spec, parts[1]))  # every block is dense
    pane.fill_batch(parts[2])
    getattr(pane, smaller)()
    for batch in parts[3:]:
        pane.fill_batch(batch)
    assert_equal_panes(pane, by_numpy(spec, parts[0], *parts[2:]))


def test_blocks_that_were_made_anew_are_filled() -> None:
    """A pane of an older format takes away all that a pane has, after which it has all blocks again."""
    spec = PaneSpec("multiclass", 10)
    pane = filled(spec, example(2000), example(3)).subtract(filled(spec, example(3)))
    pane.fill_batch(example(40))
    older = pane.copy()
    for name in older.names:
        for block in accumulators()[name].later_blocks:
            older[name].blocks.pop(block, None)
    pane.subtract(older)
    assert pane.is_empty
    pane.fill_batch(example(30))
    assert_equal_panes(pane, by_numpy(spec, example(30)))


def test_a_workspace_keeps_no_batch() -> None:
    batch = example(3000)
    reference = weakref.ref(batch.scores)
    pane = filled(PaneSpec("multiclass", 10), batch)
    del batch
    pane.drop_sample()
    assert reference() is None


def test_few_rows_are_stored_sparsely() -> None:
    assert filled(PaneSpec("multiclass", 10), example(1)).memory_bytes < 200_000


OLDER = "long calibrant_kernel_abi(void) { return 1; }"


def run_python(program: str, **environment: str) -> str:
    made = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return made.stdout.strip()


def test_a_variable_chooses_the_variant_without_avx2() -> None:
    program = "from calibrant.kernel import status; print(status())"
    assert run_python(program, CALIBRANT_KERNEL="baseline") == "kernel (baseline)"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "is missing: "),
        (b"no library", "does not load: "),
        (OLDER, "is of version 1; expected "),
    ],
    ids=["missing", "damaged", "another version"],
)
def test_without_a_kernel_an_import_says_what_to_do(
    content: bytes | str | None, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / library.NAME
    if isinstance(content, str):
        source = tmp_path / "older.c"
        source.write_text(content)
        needs_compiler()
        subprocess.run(
            [*COMPILER.split(), "-shared", "-fPIC", "-o", str(path), str(source)], check=True
        )
    elif content is not None:
        path.write_bytes(content)
    program = (
        "import calibrant\ntry:\n    calibrant.ece\nexcept ImportError as error:\n    print(error)"
    )
    found = run_python(program, CALIBRANT_KERNEL_LIBRARY=str(path))
    assert found.startswith("The compiled kernel") and expected in found
    assert "run `make kernel`" in found and "install a wheel" in found


def test_blocks_that_an_older_pane_lacks_are_left_out() -> None:
    spec = PaneSpec("multiclass", 10)
    pane = filled(spec, example())
    later = {
        (name, block)
        for name in pane.names
        for block in accumulators()[name].later_blocks
        if block in pane[name].blocks
    }
    assert later
    for name, block in later:
        del pane[name].blocks[block]
    for _ in range(3):
        pane.fill_batch(example())
    complete = filled(spec, *[example()] * 4)
    for name in pane.names:
        for block in pane[name].blocks:
            assert np.array_equal(
                pane[name].blocks[block].counts, complete[name].blocks[block].counts
            )
    assert not any(block in pane[name].blocks for name, block in later)
