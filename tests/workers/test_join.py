"""The join against the same record by record: records and rows to the bit, and outcomes, for random streams of every kind of fact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrant import Batch
from calibrant.input.labels import WITHDRAWN
from calibrant_server.workers.ingest import label_join
from calibrant_server.workers.join import named_ratings
from calibrant_server.workers.join.facts import NAMES, EntryFacts
from calibrant_server.workers.join.record_format import RecordError
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.store.watermarks import Watermarks
from tests.workers.driving import MODEL
from tests.workers.joins import MemoryRecords
from tests.workers.oracle import retained_record
from tests.workers.oracle.record_join import RecordJoin
from tests.workers.oracle.record_rows import rows_of_each
from tests.workers.oracle.retained_record import RetainedRecord
from tests.workers.plain_rows import plain

K = 4
CONFIG = replace(MODEL, task="multiclass", n_classes=K)
HOUR_US = 3_600_000_000
AT_US = 1_767_225_600_000_000
KEPT_FROM_S = AT_US // 1_000_000 + 3600
LARGE = 2**31 - 2
LONG = "Ü" * 256


class Stream:
    """Random entries over some ids."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.names = [f"i{i}" for i in range(int(self.rng.choice([3, 12, 40])))]
        self.counts = [1, LARGE] if self.chance(0.2) else [1, 2, 5]
        self.now_ms, self.order = AT_US // 1000 + 36_000_000, 0

    def chance(self, p):
        return self.rng.random() < p

    def entry(self):
        """A step that applies to both joins: called with the product's, returned value compared."""
        self.now_ms += int(self.rng.integers(0, 5_000_000))
        self.order += 1
        kind = self.rng.random()
        if kind < 0.4:
            return "predictions", self.batch(), self.now_ms
        if kind < 0.93:
            return "labels", self.labels(), self.now_ms
        return "deletion", str(self.rng.choice(self.names)), self.now_ms

    def batch(self):
        n = int(self.rng.integers(1, len(self.names) + 1))
        columns = {"ids": self.rng.permutation(self.names)[:n].tolist(), **self.scores(n)}
        for name, values, p in (
            ("weights", [1.0, 2.5], 0.4),
            ("units", ["u", "v", LONG], 0.4),
            ("cases", "cd", 0.3),
        ):
            if self.chance(p):
                columns[name] = self.rng.choice(list(values), n).tolist()
        if self.chance(0.4):
            columns["slices"] = {
                "site": self.rng.choice(["A", "B", LONG], n).tolist(),
                "device": ["d"] * n,
            }
        if self.chance(0.5):
            columns["labels"] = [self.unnamed() for _ in range(n)]
        batch = Batch.from_columns(columns, task="multiclass", n_classes=K).batch
        if self.chance(0.2):
            return batch
        return replace(batch, event_times=AT_US + self.rng.integers(0, 4, n) * HOUR_US)

    def scores(self, n):
        wide = self.rng.dirichlet(np.ones(K), n)
        kind = self.rng.integers(4)
        if kind == 0:
            return {"logits": self.rng.normal(size=(n, K))}
        return {
            "probabilities": [wide, wide.astype(np.float32), [[0.5, 0.25, 0.25, 0.0]] * n][kind - 1]
        }

    def unnamed(self):
        return (
            None if self.chance(0.5) else self.rng.integers(0, K, self.rng.integers(1, 4)).tolist()
        )

    def labels(self):
        names = self.rng.choice(self.names, self.rng.integers(1, len(self.names) + 5)).tolist()
        return [[name, *self.ratings()] for name in names]

    def ratings(self):
        unnamed = []
        if self.chance(0.4):
            classes = sorted(set(self.rng.integers(0, K, 2).tolist()))
            unnamed = [[each, int(self.rng.choice(self.counts))] for each in classes]
        if unnamed and self.chance(0.3):
            return unnamed, []
        raters = sorted(
            set(self.rng.choice(["r", "s", "Ö", "t1", LONG], self.rng.integers(1, 4)).tolist())
        )
        return unnamed, [
            [
                rater,
                int(self.rng.integers(WITHDRAWN, K)),
                [None, None, 0, 1, 2][self.rng.integers(5)],
            ]
            for rater in raters
        ]


def outcomes_of(oracle, kind, what, now_ms, order):
    """What `RowOutcomes` reports: counts, errors with their pointers, and rows with and without prediction."""
    if kind == "predictions":
        found = [(outcome, True) for outcome in oracle.predictions(what, now_ms)]
    elif kind == "labels":
        found = oracle.labels(what, now_ms, order)
    else:
        found = [(oracle.deletion(what, now_ms), True)]
    names = [name for name, _ in found]
    errors = [
        {"/id"} if kind == "deletion" else {f"/ids/{i}", f"/revision/{i}"}
        for i, name in enumerate(names)
        if name not in ("new", "duplicate", "stale")
    ]
    stored = [has for name, has in found if name in ("new", "duplicate", "stale")]
    waits = (stored.count(True), stored.count(False)) if kind == "labels" else (None, None)
    return [*map(names.count, ("new", "duplicate", "stale"))], errors, waits


def apply(join, number, kind, what, now_ms, order):
    if kind == "predictions":
        join.add(CONFIG, EntryFacts.of_predictions(str(number), what, now_ms))
    elif kind == "labels":
        join.add(CONFIG, EntryFacts.of_labels(str(number), what, now_ms, order))
    else:
        join.add(CONFIG, EntryFacts.of_deletion(str(number), [what], now_ms))


def assert_same_rows(found, expected):
    """Rows of the same records, in any order."""
    assert sorted(plain(found)) == sorted(expected)


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_random_streams(first, monkeypatch):
    for seed in range(first, first + 10):
        stream = Stream(seed)
        most = 3 if stream.chance(0.3) else 1000
        for module in (named_ratings, retained_record):
            monkeypatch.setattr(module, "MAX_NAMED", most)
        store = MemoryRecords(marks_=Watermarks(kept_from=KEPT_FROM_S))
        for _ in range(8):
            join = store.join()
            oracle = RecordJoin(
                CONFIG,
                dict(store.stored),
                {k: list(v) for k, v in store.members.items()},
                KEPT_FROM_S,
            )
            expected = []
            for number in range(int(stream.rng.integers(1, 5))):
                entry = (*stream.entry(), stream.order)
                apply(join, number, *entry)
                expected.append(outcomes_of(oracle, *entry))
            outcomes = join.outcomes()
            for number, (counts, errors, waits) in enumerate(expected):
                found = outcomes[str(number)]
                assert [found.n, found.duplicates, found.stale] == counts
                assert (found.joined, found.waiting) == waits
                assert len(found.errors) == len(errors)
                assert all(e["pointer"] in p for e, p in zip(found.errors, errors, strict=True))
            [model] = join.joined()
            written = dict(zip([model.ids[i] for i in model.changed], model.written, strict=True))
            assert written == {name: record.pack() for name, record in oracle.after.items()}
            changes = {key.start_s: change for key, change in join.changes().items()}
            by_start = oracle.changes()
            assert changes.keys() == by_start.keys()
            for start, (lost, gained) in by_start.items():
                for sign, rows, records in (
                    (-1, changes[start].lost, lost),
                    (1, changes[start].gained, gained),
                ):
                    assert (rows is None) == (not records)
                    if records:
                        assert_same_rows(rows, rows_of_each(records, sign))
            for key, names in model.members.items():
                assert sorted(names) == sorted(oracle.members[key])
            store.commit(join)


def test_every_outcome_has_a_name_of_the_record():
    for name in NAMES:
        assert name in vars(retained_record).values()
    assert label_join.RowOutcomes.of(np.zeros(1, np.int64), False).errors[0]["rule"] == "deleted"


@pytest.mark.parametrize(
    "damage", [lambda d: d[:5], lambda d: b"\x21" + d[1:], lambda d: d[:-20], lambda d: b""]
)
def test_damaged_records_are_errors(damage):
    stream = Stream(1)
    batch = Batch.from_columns(
        {"ids": ["a"], "probabilities": [[0.2, 0.3, 0.4, 0.1]], "units": ["u"], "labels": [1]},
        task="multiclass",
    ).batch
    join = MemoryRecords().join()
    apply(join, 0, "predictions", batch, stream.now_ms, 1)
    [model] = join.joined()
    [data] = model.written
    assert RetainedRecord.unpack(data).pack() == data == Records.read([data]).write()[0]
    with pytest.raises(RecordError):
        _names_in(damage(data))


def _names_in(data):
    return Records.read([data]).predictions.names
