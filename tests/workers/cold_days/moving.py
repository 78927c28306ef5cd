"""Models with old days, the moves of these days to files, and all content of a model, for tests of old days in files."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle.levels import DAYS, SEALED
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store.cold_days import ColdDay
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.day_file import unpacked_items
from calibrant_server.workers.store.file_store import MARKER, FilesUnavailable
from calibrant_server.workers.store.slice_names import sealed_slice
from calibrant_server.workers.store.windows import Window
from tests.workers.driving import MODEL
from tests.workers.test_tails import drained, predictions

DAY_S = 86_400
FIRST = 1_767_225_600  # 2026-01-01
EVER = Window(0, 1 << 33)
N_DAYS = 2
EVERY = ("", "site:A", sealed_slice(""), sealed_slice("site:A"))
SITE_B = ("site:B", sealed_slice("site:B"))
HORIZON = replace(MODEL, label_horizon_s=3600)
TWIN = replace(HORIZON, model="twin")


def batches(model=HORIZON, n=6):
    """Batches of each half of the days, with ids and units; some rows are labelled. One of the next day, which stays open."""
    found = []
    for half in range(2 * N_DAYS + 1):
        rng = np.random.default_rng(half)
        day, at = divmod(half, 2)
        columns = {
            "probabilities": rng.dirichlet(np.ones(3), n).tolist(),
            "ids": [f"q{half}.{i}" for i in range(n)],
            "units": [f"u{i}" for i in rng.integers(0, 20, n)],
            "labels": [int(c) if i % 3 else None for i, c in enumerate(rng.integers(0, 3, n))],
            "event_times": [f"2026-01-0{1 + day}T{6 * at:02d}:10:00Z"] * n,
            "slices": {"site": ["AB"[half % 2]] * n},
        }
        found.append(predictions(model, f"p{half}", columns))
    return found


_stored: dict[str, list[tuple[bytes, bytes]]] = {}


def filled(bench, *models):
    """A loop with sealed and merged days of each model, and nothing moved yet. They are made once, and restored for other tests."""
    bench.numerics = Numerics()
    loops = []
    for model in models:
        tag = bench.store.keys.of(model).tag.encode()
        for name, dump in _stored.get(model.model, ()):
            bench.client.restore(tag + name, 0, dump, replace=True)
        loop = bench.loop(model=model)
        loop._housekeeping.due_at = float("inf")
        if model.model not in _stored:
            bench.put_model(model)
            bench.deliver(*batches(model))
            drained(bench, loop)
            loop._housekeeping.apply(SEALED)
            loop._housekeeping.apply(DAYS)
            loop._cache.forget()
            names = [
                name
                for name in bench.client.scan_iter(match=tag + b":*")
                if not name.endswith(b":o")
            ]
            _stored[model.model] = [
                (name.removeprefix(tag), bench.client.dump(name)) for name in names
            ]
        loops.append(loop)
    return loops


def move(loop, model=HORIZON):
    """Move whatever is to be moved, and remove what is to be removed."""
    moves = loop._housekeeping._cold
    with suppress(FilesUnavailable):
        moves.move_days(model)
    loop._cache.forget()
    moves._sweep_at = 0.0
    moves.sweep()


def hot(bench, model=HORIZON):
    """Keys of panes, samples and rows of old days in the store."""
    tag = bench.store.keys.of(model).tag
    return [
        name
        for kind in "syt"
        for name in bench.client.scan_iter(match=f"{tag}:{kind}:{model.key}|*")
        if int(name.rpartition(b"|")[2]) < FIRST + N_DAYS * DAY_S
    ]


def cold_days(bench, model=HORIZON):
    keys = bench.store.keys.of(model)
    found = bench.client.hgetall(keys.cold_days(model.key, model.generation))
    return {int(name): ColdDay.read(text) for name, text in found.items()}


def files(root):
    """Files of days, as relative names."""
    return sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and path.name != MARKER
    )  # fmt: skip


def items_of_files(root, names):
    """What some files have, by item."""
    return {
        item: fields
        for name in names
        for item, fields in unpacked_items(name, (root / name).read_bytes()).items()
    }


def named(bench, *models):
    """Files that days name."""
    return sorted(
        name for model in models or (HORIZON,) for day in cold_days(bench, model).values() for name in day.names
    )  # fmt: skip


def content(bench, model=HORIZON):
    """Everything that queries read of a model, to the bit, with the names of the states, by fresh readers."""
    panes = WindowPanes(Store(bench.settings), Numerics())
    found = {}
    for slice_ in EVERY:
        state = panes.each(model, slice_, EVER, None)
        found[slice_] = [
            (each.start_s, each.length_s, each.pane.pack(), each.pane.parts())
            for each in state.panes
        ]
        merged = panes.merged(model, slice_, EVER, ("counts", "cells"))
        found[slice_, "merged"] = merged.version, merged.spans, merged.merged.parts()
        some = panes.merged(model, slice_, Window(FIRST, FIRST + DAY_S), ("counts", "sample"))
        found[slice_, "sample"] = some.version, some.merged.parts(), some.merged.digest()
    return found
