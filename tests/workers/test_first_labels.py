"""First labels joined by columns: the same records, counts, outcomes and rows as record by record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrant import Batch, Pane
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.ingest.label_join import LabelJoin
from calibrant_server.workers.ingest.payloads import SentLabels, pack_labels, unpack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.retained_record import RetainedRecord
from calibrant_server.workers.ingest.retained_store import write_records
from calibrant_server.workers.ingest.tail_rows import TailRows
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.watermarks import Watermarks
from tests.workers.driving import MODEL
from tests.workers.test_late_labels import assert_same_state

CONFIG = replace(MODEL, task="multiclass", n_classes=3)
KEYS = Keys("test", 1).partition(0)
AT_US = 1_767_225_600_000_000
HOUR_US = 3_600_000_000
NOW_MS = AT_US // 1000 + 10 * 3_600_000


class Dictionary:
    """Records as a store has them; panes that began before the second hour have outlived their retention."""

    def __init__(self, packed):
        self.stored = packed
        self.reads = 0

    def records(self, config, names):
        return {name: RetainedRecord.unpack(t) for name, t in self.packed(config, names).items()}

    def packed(self, config, names):
        return {name: self.stored[name] for name in names if name in self.stored}

    def unit_members(self, config, groups):
        return {}

    def marks(self, config):
        return Watermarks(kept_from=AT_US // 1_000_000 + 3601)


def predictions(prefix, n, scores, hour=2, **more):
    columns = {"ids": [f"{prefix}{i}" for i in range(n)], **more}
    kind = columns.pop("kind", "probabilities")
    columns[kind] = scores
    batch = Batch.from_columns(columns, task="multiclass", n_classes=3).batch
    times = AT_US + hour * HOUR_US + np.arange(n) * HOUR_US // n
    return replace(batch, event_times=times)


def stored():
    """Records of every form, by id."""
    rng = np.random.default_rng(5)
    wide = rng.dirichlet(np.ones(3), 6)
    narrow = wide.astype(np.float32)
    exact = np.array([[0.5, 0.25, 0.25]] * 6, np.float32)
    # At first nothing has expired.
    store = Dictionary({})
    store.marks = lambda config: Watermarks()
    join = LabelJoin(store)
    for batch in (
        predictions("wide", 6, wide),
        predictions("divided", 6, narrow),
        predictions("exact", 6, exact, hour=3),
        predictions("logits", 6, np.log(narrow), kind="logits"),
        predictions("weighted", 6, narrow, weights=[2.5] * 6),
        predictions("unit", 6, narrow, units=["u", "u", "v", "w", "w", "w"]),
        predictions("sliced", 6, narrow, slices={"site": ["A"] * 6}),
        predictions("labelled", 6, wide, labels=[0, 1, 2, 0, 1, 2]),
        predictions("gone", 6, wide),
        predictions("named", 6, wide),
        predictions("old", 6, wide, hour=0),
        predictions("edge", 6, wide, hour=1),
    ):
        join.models.clear()
        join.predictions(CONFIG, batch, NOW_MS - 1000)
        model = next(iter(join.models.values()))
        store.stored |= {name: each.pack() for name, each in model.after.items()}
    join.models.clear()
    for i in range(6):
        join.deletion(CONFIG, f"gone{i}", NOW_MS)
        join.labels(CONFIG, [LabelRow(f"named{i}", {}, [("ann", 1, None)])], NOW_MS, 1)
        join.labels(CONFIG, [LabelRow(f"early{i}", {2: 1}, [])], NOW_MS, 1)
    model = next(iter(join.models.values()))
    return store.stored | {name: each.pack() for name, each in model.changed().items()}


STORED = stored()
EVERYONE = sorted([*STORED, *(f"new{i}" for i in range(3))])


def joined(entries, by_columns):
    """A join after entries, with their outcomes; each entry is rows of labels, or what to do with the join."""
    join, outcomes = LabelJoin(Dictionary(STORED), by_columns), []
    for order, entry in enumerate(entries, 1):
        if callable(entry):
            outcomes.append(entry(join))
        else:
            sent = SentLabels.unpack(pack_labels(entry))
            outcomes.append(join.sent_labels(CONFIG, sent, NOW_MS, order))
    return join, outcomes


def texts(data):
    """Texts that follow their lengths in four bytes."""
    found, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        found.append(data[at + 4 : end])
        at = end
    return found


def written(join):
    commit = Commit(KEYS)
    write_records(join, [], commit, KEYS)
    names, found, operations = list(commit._names), {}, commit._operations
    while operations:
        name, key, n, *rest = operations
        values, operations = rest[:n], rest[n:]
        if name == "fields":
            name, values = "hset", texts(values[1])
        pairs = dict(zip(values[::2], values[1::2], strict=True))
        if ":j:" in names[key - 1]:
            # Ids of a time slice that is not sealed: their order, by which the field is named, is of no concern.
            (listed,) = pairs.values()
            pairs = {"ids": sorted(listed.split(b"\x1f"))}
        found.setdefault((name, names[key - 1]), {}).update(pairs)
    return found


def panes(join):
    found = {}
    for key, change in join.changes().items():
        change.check(TailRows, Numerics().fill_if_doubtful)
        lost, gained = Pane(CONFIG.spec()), Pane(CONFIG.spec())
        for rows in change.rows(TailRows, 5):
            own = lost if rows.sign[0] < 0 else gained
            assert len(set(rows.part.tolist())) == 1
            replace(rows, sign=np.abs(rows.sign)).fill_into(own, "", lambda: Pane(CONFIG.spec()))
        found[key] = lost, gained, change.touched()
    return found


def assert_same_changes(columns, records):
    """What two joins write, and what time slices lose and gain."""
    assert written(columns) == written(records)
    left, right = panes(columns), panes(records)
    assert left.keys() == right.keys()
    for key, (lost, gained, touched) in left.items():
        assert_same_state(lost, right[key][0])
        assert_same_state(gained, right[key][1])
        assert lost.digest() == right[key][0].digest()
        assert gained.digest() == right[key][1].digest()
        assert touched == right[key][2]


def assert_same(entries):
    columns, own = joined(entries, True)
    records, expected = joined(entries, False)
    assert own == expected
    assert_same_changes(columns, records)
    return columns


def first(names, class_index=1, n=1):
    return [LabelRow(name, {(class_index + i) % 3: n + i % 2}, []) for i, name in enumerate(names)]


def test_every_form_of_record():
    join = assert_same([first(EVERYONE)])
    (model,) = join.models.values()
    # Those with a prediction and nothing else, that are retained and units of their own.
    assert model.columns.n == 6 * 5 + 3
    assert len(written(join)) > 5


def test_several_entries_of_one_commit():
    assert_same([first(EVERYONE[:20]), first(EVERYONE[20:])])


@pytest.mark.parametrize(
    "then",
    [
        first(["wide1", "wide2", "exact0"], 2),
        [LabelRow("wide1", {}, [("ann", 2, None)]), LabelRow("unit0", {1: 1}, [])],
        lambda join: join.deletion(CONFIG, "wide1", NOW_MS),
        lambda join: join.predictions(
            CONFIG, predictions("wide", 2, [[0.5, 0.25, 0.25]] * 2), NOW_MS
        ),
        lambda join: join.new_rows(CONFIG, predictions("wide", 2, [[0.5, 0.25, 0.25]] * 2), NOW_MS),
    ],
)
def test_a_record_that_changes_again_in_the_same_commit(then):
    assert_same([first(EVERYONE), then])
    assert_same([then, first(EVERYONE)])
    assert_same([first(EVERYONE), then, first(["wide1", "wide3"])])


def test_entries_with_a_row_of_another_form():
    mixed = [*first(EVERYONE), LabelRow("wide0", {1: 1}, []), LabelRow("new9", {0: 1, 1: 1}, [])]
    assert_same([mixed])
    assert_same([[*first(["wide0", "wide1"]), LabelRow("exact1", {0: 2**31, 1: 1}, [])]])
    assert_same([[*first(["wide0"]), LabelRow("wide1", {1: 2**31}, []), *first(["wide2"])]])


@pytest.mark.parametrize(
    "payload",
    [
        b'{"format":1,"rows":[["a",[[0,1]]]]}',
        b'{"format":1,"rows":[["a",5,[]]]}',
        b'{"format":1,"rows":[["a",[[0,"x"]],[]]]}',
        b'{"format":1,"rows":[["a",[[0]],[]]]}',
        b'{"format":1,"rows":[["a",[],[["r",1]]]]}',
        b'{"format":1,"rows":5}',
        b'{"format":2,"rows":[]}',
        b"{",
    ],
)
def test_damaged_payloads_are_errors_of_the_entry(payload):
    with pytest.raises(EntryError):
        unpack_labels(payload)
    with pytest.raises(EntryError):
        by_columns(payload)


def by_columns(payload):
    sent = SentLabels.unpack(payload)
    return LabelJoin(Dictionary({}), True).sent_labels(CONFIG, sent, NOW_MS, 1)
