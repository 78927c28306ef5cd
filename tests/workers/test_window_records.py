"""Retained records by their event time: which are read of a window, when too many are rejected, what is news of them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.errors import CalibrationInputError
from calibrant.core.view import View
from calibrant.input.labels import WITHDRAWN, named_raters
from calibrant.metrics import METRICS
from calibrant.report import pane_query_of, raters_compared
from calibrant_server.workers.join.identified_rows import IdentifiedRows
from calibrant_server.workers.join.record_format import RecordError
from calibrant_server.workers.queries import window_records
from calibrant_server.workers.queries.ask import QueryRequest, Side
from calibrant_server.workers.queries.compute import KINDS, Compute
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.kinds.raters import KIND, MAX_RATERS, compute
from calibrant_server.workers.queries.window_records import WindowRecords
from calibrant_server.workers.store.watermarks import DAY_S, KEPT_FROM, Watermarks, daily_to
from calibrant_server.workers.store.windows import Window
from tests.near import Near
from tests.workers.driving import MODEL, delivery
from tests.workers.oracle.prediction_rows import rows_of
from tests.workers.oracle.retained_prediction import PredictionColumns
from tests.workers.oracle.retained_record import Rating, RetainedRecord
from tests.workers.oracle.retained_rows import (
    FilledRow,
    as_probabilities,
    batches_of,
    filled_rows,
)

pytestmark = pytest.mark.one_server

HOUR_S = MODEL.pane_s


class Counted:
    counts = {"n_labelled": 0}  # noqa: RUF012


def computed_of(records, **fields):
    """The raters' result over records."""
    return compute(
        KIND.query(**fields), Inputs(MODEL, Window(0, 1 << 32), Counted(), of_records=records)
    )


def prediction_of(scores, is_logits, event_us, sent, weight=None, unit=None, case=None, slices=()):
    """One stored prediction."""
    [one] = PredictionColumns(
        scores[None, :], is_logits, np.array([event_us]), [sent], [weight], [unit], [case], [slices]
    ).predictions()
    return one


def prediction(hour, **changes):
    scores = np.array([0.5, 0.25, 0.25])
    return prediction_of(scores, False, hour * HOUR_S * 1_000_000, b"12345678", **changes)


def rated(hour, class_index=0, raters=("ann",), **changes):
    return RetainedRecord(
        0, prediction(hour, **changes), ratings={name: Rating(class_index, 0, 0) for name in raters}
    )


@pytest.fixture
def held(bench):
    """Writes records where a worker looks for them."""
    keys = bench.store.keys.of_model(MODEL.key)
    node = bench.store.node(bench.store.keys.partition_of(MODEL.key))

    def write(facts, window=Window(0, 1 << 32), slice_="", marks=Watermarks()):  # noqa: B008
        for name, each in facts.items():
            node.hset(keys.record_hash(MODEL.key, MODEL.generation, name), name, each.pack())
        node.hset(keys.tallies(MODEL.key, MODEL.generation), "records", len(facts))
        return WindowRecords(node, keys, MODEL, slice_, window, marks)

    return write


def names(records):
    batch = records.read().batch(MODEL.task)
    return [] if batch is None else batch.ids.tolist()


def test_records_are_found_by_their_time_slice_and_label(held):
    facts = {
        "early": rated(0),
        "b": rated(5, slices=(("site", "A"),)),
        "a": rated(6),
        "late": rated(7),
        "unlabelled": RetainedRecord(0, prediction(5)),
        "withdrawn": rated(5, WITHDRAWN),
        "waiting": RetainedRecord(0, ratings={"ann": Rating(1, 0, 0)}),
        "deleted": RetainedRecord(0, deleted=True),
    }
    window = Window(5 * HOUR_S, 7 * HOUR_S)
    assert names(held(facts, window)) == ["a", "b"]
    assert names(held(facts, window, "site:A")) == ["b"]
    assert names(held(facts)) == ["a", "b", "early", "late"]
    assert names(held(facts, marks=Watermarks(kept_from=6 * HOUR_S))) == ["a", "late"]
    # What was merged into a day lies where the day begins.
    assert names(held(facts, Window(0, HOUR_S), marks=Watermarks(daily_to=DAY_S))) == [
        "a",
        "b",
        "early",
        "late",
    ]
    assert names(held({})) == names(held(facts | {"more": rated(9)}, Window(0, 0))) == []


def test_too_many_records_are_rejected_and_a_narrower_window_answers(held, monkeypatch):
    facts = {f"i{i}": rated(i) for i in range(6)}
    monkeypatch.setattr(window_records, "MAX_ROWS", 4)
    assert len(names(held(facts, Window(0, 4 * HOUR_S)))) == 4
    with pytest.raises(
        CalibrationInputError, match=r"more than 4 labelled records.*Request a shorter window"
    ) as rejected:
        held(facts).read()
    assert rejected.value.violations[0].pointer == "/window"
    monkeypatch.setattr(window_records, "MAX_ROWS", 9)
    monkeypatch.setattr(window_records, "MAX_RATINGS", 8)
    several = {
        name: replace(each, ratings=each.ratings | {"bob": Rating(1, 0, 0)})
        for name, each in facts.items()
    }
    assert len(names(held(several, Window(0, 4 * HOUR_S)))) == 4
    with pytest.raises(CalibrationInputError, match="more than 8 ratings by named raters"):
        held(several).read()
    for most, what in (("MAX_ROWS", "labelled records"), ("MAX_RATINGS", "ratings by named")):
        monkeypatch.setattr(window_records, "MAX_ROWS", 100)
        monkeypatch.setattr(window_records, "MAX_RATINGS", 100)
        monkeypatch.setattr(window_records, most, 12)
        assert len(held(several if most == "MAX_RATINGS" else facts).read()) == 6
        with pytest.raises(CalibrationInputError, match=f"more than [46] {what}"):
            held(several).read(share=3 if most == "MAX_ROWS" else 2)
    monkeypatch.setattr(window_records, "MAX_STORED_RECORDS", 5)
    with pytest.raises(CalibrationInputError, match="retains 6 records; at most 5"):
        held(facts, Window(0, HOUR_S)).read()


def test_raters_beyond_the_number_reported_are_counted(held):
    crowd = [f"r{i:03d}" for i in range(MAX_RATERS + 6)]
    records = held({"a": rated(0, raters=crowd), "b": rated(1, 1, raters=crowd[-2:])})
    found = computed_of(records, metric="accuracy")
    assert (found["n_raters"], found["n_raters_over"], len(found["by_rater"])) == (70, 6, 64)
    assert list(found["by_rater"])[:3] == ["r068", "r069", "r000"]
    assert [found["by_rater"][name]["value"] for name in ("r068", "r000")] == [0.5, 1.0]
    assert [found["by_rater"][name]["n"] for name in ("r068", "r000")] == [2, 1]
    assert found["mean_of_raters"] == pytest.approx((62 + 2 * 0.5) / 64)


@pytest.fixture
def computed(bench):
    """Answers of a function in place of the raters' own, about three hours of a day."""
    bench.put_model()
    bench.deliver(delivery("b1", [1, 2, 3], event_times=np.array([0, 5, 7]) * HOUR_S * 1_000_000))
    bench.loop().step()

    def answer(function=lambda *given: {}):
        kind = ResultKind(KIND.query, function, lambda query: ["sums"])
        pane_query = QueryRequest(
            "d", "raters", KIND.query().to_dict(), Side(MODEL.key, "", (0, DAY_S)), "r", 0.0
        )
        return json.loads(
            Compute(bench.store, bench.numerics, {"raters": kind}).reply(pane_query).body
        )

    return answer


def test_what_comes_while_records_are_read_is_reported(bench, computed):
    def late(*given):
        bench.deliver(delivery("b2", [4], event_times=np.array([6 * HOUR_S * 1_000_000])))
        bench.loop().step()
        return {}

    assert computed()["consistent"] is True
    assert computed(late)["consistent"] is False
    assert computed()["consistent"] is True


def test_a_day_that_goes_by_the_hour_is_news_of_its_records_alone(bench, computed):
    def names():
        state = {
            kind: bench.run(bench.inbox.state(MODEL, "", KINDS[kind].query.needs))
            for kind in ("raters", "metrics")
        }
        return [each.name(Window(0, DAY_S)) for each in state.values()]

    def mark(name, at_s):
        bench.client.hset(
            bench.store.keys.of_model(MODEL.key).marks(MODEL.key, MODEL.generation), name, at_s
        )

    mark(daily_to(""), DAY_S)
    complete = names()
    assert complete[0] == complete[1] == computed()["state_version"]
    mark(KEPT_FROM, 6 * HOUR_S)
    later = names()
    assert later[0] != complete[0] and later[1] == complete[1]
    assert later[0] == computed()["state_version"]


class Read:
    """Records at hand."""

    def __init__(self, facts):
        self.records = facts

    def read(self):
        return together(self.records)


def together(facts):
    """The labelled predictions that count, from the bytes of their records."""
    rows = IdentifiedRows.read({name: each.pack() for name, each in facts.items()})
    return rows.where(rows.records.n_active > 0)


@pytest.mark.parametrize("columns", [(), ("units", "weights"), ("cases",)])
def test_every_metric_is_the_librarys_whatever_rows_share(columns):
    rng = np.random.default_rng(3)
    n, p = 40, rng.dirichlet(np.ones(3), 40)
    labels, who = rng.integers(0, 3, (n, 2)).tolist(), [["ann", "bob"], ["cy", "ann"]] * (n // 2)
    given = {
        "units": np.array([f"u{i // 3}" for i in range(n)], object),
        "cases": np.array([f"c{i // 10}" for i in range(n)], object),
        "weights": rng.uniform(0.5, 2, n),
    }
    given = {name: given[name] for name in columns}
    ids = [f"i{i:02d}" for i in range(n)]
    batch = Batch.from_columns({"probabilities": p, "labels": labels, "ids": ids, **given}).batch
    complete = Pane(PaneSpec("multiclass", 3))
    complete.fill_batch(batch)
    view = View(complete, pane_query_of({"bins": 5}), batch)
    expected = raters_compared(view, sorted(METRICS), named_raters(labels, who, 3))
    facts = {}
    for i, (name, row) in enumerate(zip(batch.ids, rows_of(batch, 0)[0], strict=True)):
        ratings = {
            rater: Rating(class_index, 0, 0)
            for rater, class_index in zip(who[i], labels[i], strict=True)
        }
        facts[name] = RetainedRecord(0, row, ratings=ratings)
    result = []
    for slug, of_library in expected["metrics"].items():
        found = computed_of(Read(facts), metric=slug, bins=5)
        own = {
            name: {key: found["by_rater"][name][key] for key in each}
            for name, each in of_library["by_rater"].items()
        }
        assert own == Near(of_library["by_rater"]), slug
        assert found["policies"] == Near(of_library["policies"]), slug
        result.append(found["mean_of_raters"] is not None)
    assert sum(result) >= (41 if "cases" in columns else 37)


def second_version(facts):
    """The batch of records that are read one by one as objects."""
    counted = sorted(
        (name, each) for name, each in facts.items() if each.counts and each.is_labelled
    )
    sent = filled_rows(counted)
    shared = any(row.group is not None for row in sent)
    mixed = len({row.is_logits for row in sent}) > 1
    in_cases = all(row.case is not None for row in sent)
    [batch] = batches_of(
        [
            FilledRow(
                *(row.name, row.record, row.scores, row.is_logits, row.weight),
                unit=(row.group or f"i{row.name}") if shared else None,
                case=row.case if in_cases else None,
            )
            for row in (
                as_probabilities(each) if mixed and each.is_logits else each for each in sent
            )
        ],
        MODEL.task,
    )
    return batch, dict(counted)


def some_records(rng, n, choices):
    """Records of random rows; of what has several choices, each row has one of them."""
    facts = {}
    for i in range(n):
        pick = {name: values[int(rng.integers(len(values)))] for name, values in choices.items()}
        scores = rng.dirichlet(np.ones(3))
        if pick["form"] == "float32":
            scores = scores.astype(np.float32).astype(float)
        elif pick["form"] == "divided":
            scores = scores.astype(np.float32).astype(float)
            scores /= scores.sum()
        elif pick["form"] == "logits":
            scores = rng.normal(size=3)
        one = prediction_of(
            scores, pick["form"] == "logits", int(rng.integers(10**12)), b"12345678",
            weight=pick["weight"], unit=pick["unit"], case=pick["case"], slices=pick["slices"],
        )  # fmt: skip
        raters = {
            name: Rating(int(rng.integers(-1, 3)), 0, i)
            for name in ("ann", "bob", "cy")[: pick["n_raters"]]
        }
        unnamed = {int(k): int(rng.integers(0, 3)) for k in rng.permutation(3)[: pick["n_unnamed"]]}
        facts[f"i{rng.integers(10**9)}"] = RetainedRecord(
            0,
            None if pick["state"] == "waiting" else one,
            unnamed,
            raters,
            pick["state"] == "deleted",
            pick["delay"],
        )
    return facts


PLAIN = {
    "form": ["float64"],
    "weight": [None],
    "unit": [None],
    "case": [None],
    "slices": [()],
    "n_raters": [0],
    "n_unnamed": [1],
    "state": ["counts"],
    "delay": [None],
}


FORMS = [
    {},
    {"form": ["float64", "float32", "divided"], "delay": [None, 0, 7]},
    {"form": ["logits"], "n_unnamed": [0, 1, 2, 3]},
    {"form": ["logits", "divided"], "unit": [None, "u", "v"]},
    {"n_raters": [0, 1, 2, 3], "n_unnamed": [0, 2], "weight": [None, 0.5, 2.0]},
    {"unit": ["u", "v", None], "case": ["a", "b", None], "slices": [(), (("site", "A"),)]},
    {"case": ["a", "b"], "weight": [1.0, 3.0]},
    {"case": ["", "b"], "unit": [None, "u"]},
    {"state": ["counts", "deleted", "waiting"], "n_raters": [0, 1], "n_unnamed": [0, 1]},
]


@pytest.mark.parametrize("choices", FORMS)
def test_columns_are_those_of_records_read_one_by_one(choices):
    facts = some_records(np.random.default_rng(4), 60, PLAIN | choices)
    rows = together(facts)
    assert_as_one_by_one(rows, facts)
    names = (rows.names.groups(), rows.names.cases(), rows.names.slices_of_rows())
    for name, at, *found in zip(rows.ids, rows.predictions.event_us.tolist(), *names, strict=True):
        sent = facts[name].prediction
        assert [at, *found] == [sent.event_us, sent.group, sent.case, sent.slices]


def test_of_an_id_that_a_scan_returns_twice_the_last_record_counts(held, monkeypatch):
    records = held({name: rated(5) for name in "abc"})
    packed = {name.encode(): rated(5, 2).pack() for name in "ab"}
    pages = [*records._pages(), packed, {b"c": rated(5, 1).pack()}]
    monkeypatch.setattr(WindowRecords, "_pages", lambda _: iter(pages))
    rows = records.read()
    assert rows.ids == ["a", "b", "c"]
    assert rows.classes_of("ann").tolist() == [2, 2, 1]


def assert_as_one_by_one(found, facts):
    expected, counted = second_version(facts)
    batch = found.batch(MODEL.task)
    assert len(found) == len(counted) > 10
    assert batch.scores.tobytes() == expected.scores.tobytes()
    assert batch.is_logits == expected.is_logits
    for name in ("row", "class_index", "count"):
        values = getattr(batch.ratings, name)
        assert values.dtype == np.int64
        assert np.array_equal(values, getattr(expected.ratings, name))
    for name in ("weights", "ids", "units", "cases", "delays"):
        mine, theirs = getattr(batch, name), getattr(expected, name)
        assert (mine is None) == (theirs is None), name
        assert mine is None or mine.tolist() == theirs.tolist(), name
    everyone = {}
    for each in counted.values():
        for rater, rating in each.ratings.items():
            if rating.class_index != WITHDRAWN:
                everyone[rater] = everyone.get(rater, 0) + 1
    assert found.raters == everyone and list(found.raters) == sorted(everyone)
    for rater in everyone:
        classes = [each.ratings.get(rater) for each in counted.values()]
        assert found.classes_of(rater).tolist() == [
            WITHDRAWN if each is None else each.class_index for each in classes
        ]


def test_a_damaged_record_is_an_error_of_both_versions():
    """Each shorter one, and each with a changed byte: columns reject what objects reject, and have the same label where they do not."""
    rng = np.random.default_rng(5)
    choices = {"form": ["divided"], "unit": ["u"], "case": ["c"], "n_raters": [2], "n_unnamed": [1]}
    choices |= {"weight": [2.0], "slices": [(("site", "A"),)]}
    n_rejected = 0
    for record in some_records(rng, 3, PLAIN | choices).values():
        data = record.pack()
        damaged = [data[:n] for n in range(len(data))]
        for place in range(len(data)):
            damaged.append(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        for each in damaged:
            expected = or_none(RetainedRecord.unpack, each)
            if expected is None or min(expected.totals, default=0) < 0:
                n_rejected += 1
                with pytest.raises((RecordError, ValueError)):
                    assert_readable(each)
            elif expected.counts and expected.is_labelled:
                totals = {k: n for k, n in expected.totals.items() if n}
                counts = assert_readable(each).records.ratings_by_class(np.zeros(1, np.int64))
                assert dict(zip(counts.class_index, counts.n, strict=True)) == totals
    assert n_rejected > 100


def assert_readable(data):
    """The row of a record, read to its end."""
    rows = IdentifiedRows.read({"a": data})
    assert rows.batch(MODEL.task) is None or rows.names
    return rows


def or_none(read, data):
    """The result of a reader, None where it rejects the bytes."""
    try:
        return read(data)
    except RecordError:
        return None
