"""The join against a naive model: whatever comes in whatever order, panes hold what the final facts give.

Knows no store: records live in a dictionary, packed and unpacked as the store would have them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from calibrant import Batch, Pane
from calibrant.accumulators import sample
from calibrant.core.sampled_rows import RATING_BYTES, ROW_BYTES
from calibrant.input.labels import WITHDRAWN
from calibrant_server.workers.ingest.cached_pane import CachedTail
from calibrant_server.workers.join.facts import EntryFacts
from calibrant_server.workers.segments.rows import Rows
from tests.workers.driving import MODEL
from tests.workers.joins import MemoryRecords, rows_of
from tests.workers.test_late_labels import assert_same_state

CONFIG = replace(MODEL, task="binary", n_classes=2, grid=60)
HOURS = 2
START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1e6)
IDS = st.sampled_from([f"i{i}" for i in range(4)])
CLASSES = st.integers(0, 1)
WORDS = st.tuples(
    IDS,
    st.sampled_from(["r", "s"]),
    st.sampled_from([0, 1, WITHDRAWN]),
    st.sampled_from([None, 0, 1]),
)
SHARED = [(None, None), ("units", "a"), ("units", "b"), ("cases", "a"), ("cases", "a")]
# Room for three predictions, so that the sample's threshold falls.
SAMPLE_BYTES = 3 * (2 * 8 + ROW_BYTES + 2 * RATING_BYTES)


class JoinMachine(RuleBasedStateMachine):
    """Rules are entries; a commit may come after any of them, or the run is lost and read again."""

    def __init__(self):
        super().__init__()
        self.pane_bytes, sample.PANE_BYTES = sample.PANE_BYTES, SAMPLE_BYTES
        self.store = MemoryRecords()
        self.panes: dict[tuple[str, int], Pane] = {}
        self.tails: dict[int, CachedTail] = {}
        self.join = self.store.join()
        self.now_ms = START_US // 1000 + 10_000_000
        self.order = 0
        self.uncommitted: list = []
        # The naive model.
        self.sent: dict[str, dict] = {}
        self.unnamed: dict[str, Counter] = {}
        self.ratings: dict[str, dict[str, tuple[int, int]]] = {}
        self.deleted: set[str] = set()

    def teardown(self):
        sample.PANE_BYTES = self.pane_bytes

    def apply(self, step):
        self.uncommitted.append(step)
        step(self.join, f"e{len(self.uncommitted)}")

    @rule(
        name=IDS,
        p=st.integers(0, 8),
        hour=st.integers(0, HOURS - 1),
        shared=st.sampled_from(SHARED),
        weight=st.sampled_from([None, None, 2.5]),
        site=st.sampled_from(["X", "Y"]),
        labels=st.lists(CLASSES, max_size=2),
        repeats=st.booleans(),
    )
    def predict(self, name, p, hour, shared, weight, site, labels, repeats):
        """A prediction; the first of an id stands, a repeat changes nothing, another is a conflict."""
        columns = {
            "confidences": [p / 8],
            "ids": [name],
            "slices": {"site": [site]},
            "labels": [labels or None],
        }
        if shared[0] is not None:
            columns[shared[0]] = [shared[1]]
        if weight is not None:
            columns["weights"] = [weight]
        batch = Batch.from_columns(columns, task="binary").batch
        batch = replace(batch, event_times=np.array([START_US + hour * 3_600_000_000]))
        now = self.now_ms
        for _ in range(2 if repeats else 1):
            self.apply(
                lambda join, entry: join.add(CONFIG, EntryFacts.of_predictions(entry, batch, now))
            )
        if name not in self.sent and name not in self.deleted:
            self.sent[name] = {
                "p": p / 8,
                "hour": hour,
                "shared": shared,
                "weight": weight,
                "site": site,
            }
            self.unnamed.setdefault(name, Counter()).update(labels)

    @rule(name=IDS, class_index=CLASSES, n=st.integers(1, 3))
    def vote(self, name, class_index, n):
        """Unnamed ratings, before or after their prediction."""
        self._label([name, [[class_index, n]], []])
        if name not in self.deleted:
            self.unnamed.setdefault(name, Counter()).update({class_index: n})

    @rule(words=st.lists(WORDS, min_size=1, max_size=8))
    def rate(self, words):
        """Named raters' words, a batch of them."""
        self._label(*([name, [], [said]] for name, *said in words))
        for name, rater, class_index, revision in words:
            if name not in self.deleted:
                self._rated(self.ratings.setdefault(name, {}), rater, class_index, revision)

    @staticmethod
    def _rated(held, rater, class_index, revision):
        """A higher revision stands, the first of equal ones; without one the later word."""
        if revision is None:
            held[rater] = (class_index, held[rater][1] if rater in held else 0)
        elif rater not in held or revision > held[rater][1]:
            held[rater] = (class_index, revision)

    @precondition(lambda self: self.ratings and self.uncommitted)
    @rule(data=st.data())
    def rate_again(self, data):
        """The same word of a rater once more, as it stands."""
        said = [
            (name, rater, *word)
            for name, held in sorted(self.ratings.items())
            for rater, word in sorted(held.items())
        ]
        if said:
            name, rater, class_index, revision = data.draw(st.sampled_from(said))
            self._label([name, [], [(rater, class_index, revision)]])

    @rule(name=IDS)
    def delete(self, name):
        """For good, also before it came."""
        now = self.now_ms
        self.apply(lambda join, entry: join.add(CONFIG, EntryFacts.of_deletion(entry, [name], now)))
        self.deleted.add(name)
        self.sent.pop(name, None)
        self.unnamed.pop(name, None)
        self.ratings.pop(name, None)

    @precondition(lambda self: self.uncommitted)
    @rule()
    def commit(self):
        """Panes lose and gain, records are written, together."""
        for key, change in self.join.changes().items():
            tail = self.tails.setdefault(key.start_s, CachedTail(Rows))
            tail.append(rows_of(change, tail.next_part))
        self.store.commit(self.join)
        self.join = self.store.join()
        self.uncommitted = []

    @rule(hour=st.integers(0, HOURS - 1))
    def fold(self, hour):
        """Rows become sums at any time."""
        start = START_US // 1_000_000 + hour * 3600
        tail = self.tails.pop(start, None)
        for slice_ in tail.n_by_slice({}) if tail else ():
            self.panes[slice_, start] = self._whole(slice_, start, tail)

    def _whole(self, slice_, start, tail):
        """Sums and rows of a pane."""
        pane = self.panes.get((slice_, start), Pane(CONFIG.spec())).copy()
        rows = tail.all_rows() if tail else None
        if rows is not None:
            rows.fill_into(pane, slice_, lambda: Pane(CONFIG.spec()))
        return pane

    @precondition(lambda self: self.uncommitted)
    @rule()
    def die_and_read_again(self):
        """Nothing of the run was written; the next worker reads the same entries."""
        steps, self.uncommitted = self.uncommitted, []
        self.join = self.store.join()
        for step in steps:
            self.apply(step)

    @precondition(lambda self: not self.uncommitted)
    @invariant()
    def panes_hold_the_final_facts(self):
        for slice_ in ("", "site:X", "site:Y"):
            for hour in range(HOURS):
                start = START_US // 1_000_000 + hour * 3600
                found = self._whole(slice_, start, self.tails.get(start))
                assert_same_state(found, self._expected(slice_, hour))

    def _label(self, *rows):
        self.now_ms += 1000
        self.order += 1
        now, order = self.now_ms, self.order
        self.apply(
            lambda join, entry: join.add(CONFIG, EntryFacts.of_labels(entry, rows, now, order))
        )

    def _expected(self, slice_, hour):
        pane = Pane(CONFIG.spec())
        for kind in (None, "units", "cases"):
            rows = [
                (name, each)
                for name, each in self.sent.items()
                if each["hour"] == hour
                and slice_ in ("", f"site:{each['site']}")
                and each["shared"][0] == kind
            ]
            if not rows:
                continue
            columns = {
                "confidences": [each["p"] for _, each in rows],
                "ids": [name for name, _ in rows],
                "label_counts": [self._counts(name) for name, _ in rows],
                "weights": [each["weight"] or 1.0 for _, each in rows],
            }
            if kind is not None:
                columns[kind] = [each["shared"][1] for _, each in rows]
            pane.fill_batch(Batch.from_columns(columns, task="binary").batch)
        return pane

    def _counts(self, name):
        counts = Counter(self.unnamed.get(name, Counter()))
        counts.update(
            class_index
            for class_index, _ in self.ratings.get(name, {}).values()
            if class_index != WITHDRAWN
        )
        return [counts[0], counts[1]]


TestJoin = JoinMachine.TestCase
# A failure is reported as it was found: to shrink it takes longer than a test may.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
TestJoin.settings = settings(max_examples=25, stateful_step_count=40, deadline=None, phases=PHASES)


class LongJoinMachine(JoinMachine):
    """The same machine, for more examples."""


TestLongJoin = pytest.mark.slow(LongJoinMachine.TestCase)
TestLongJoin.settings = settings(TestJoin.settings, max_examples=200)
