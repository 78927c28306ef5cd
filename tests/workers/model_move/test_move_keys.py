"""Keys of a model that moves: a rule for each kind, exact copies, and what is counted or shared."""

from __future__ import annotations

import inspect
import json
import re

import pytest

from calibrant_server.workers.alarm.deliveries import WebhookDelivery
from calibrant_server.workers.lifecycle import model_copy, move_keys
from calibrant_server.workers.lifecycle.model_copy import ModelCopy
from calibrant_server.workers.store import keys as key_names
from calibrant_server.workers.store.keys import PaneKey, PartitionKeys
from tests.workers.driving import MODEL, eventually
from tests.workers.model_move.moving import config_at, keys_at, mover

one_server = pytest.mark.one_server
KINDS = (
    move_keys.COPIED, move_keys.CACHES, move_keys.SHARED, move_keys.COUNTED, move_keys.OF_PARTITION, move_keys.LETTERS,
)  # fmt: skip
# Values of the arguments of the methods that name keys.
_ARGUMENTS = {"key": PaneKey("t/m", "g", "", 0), "shard": 0, "start_s": 0}


def key_kinds():
    """The kinds of keys that `PartitionKeys` names."""
    keys, found = PartitionKeys("ns", 0), set()
    for name, member in inspect.getmembers(PartitionKeys):
        if name.startswith("_") or name in ("tag", "files", "namespace", "partition"):
            continue
        value = getattr(keys, name)
        if callable(value):
            parameters = list(inspect.signature(member).parameters)[1:]
            value = value(*(_ARGUMENTS.get(each, "x") for each in parameters))
        found.add(move_keys.kind_of(keys.tag, value))
    return found


def test_each_kind_of_key_has_one_rule():
    ruled = [kind for kinds in KINDS for kind in kinds]
    assert sorted(ruled) == sorted(key_kinds()), "give a new kind of key a rule in move_keys.py"
    documented = set(re.findall(r"^T:(\w+)", key_names.__doc__, re.MULTILINE))
    assert documented == set(ruled)


@one_server
def test_every_form_of_key_is_copied_exactly(bench, moved, monkeypatch):
    """In parts too, with the time that they have left."""
    model, to = moved
    monkeypatch.setattr(model_copy, "PART_BYTES", 100)
    source, target = bench.store.keys.partition(1 - to), bench.store.keys.partition(to)
    of = (model.key, model.generation)
    bench.client.hset(
        source.records(*of, 3), mapping={f"id{i}": b"\0" * (i % 70) for i in range(900)}
    )
    bench.client.sadd(source.slices(*of), "", *(f"site:{i}|x" for i in range(300)))
    bench.client.set(source.record(*of, "b1"), b"{}", ex=5000)
    bench.client.set(source.event_half(*of, "e", "q"), b"half", ex=100)
    bench.client.hset(source.merge(f"{model.key}|g1||s"), "#", "cache")
    bench.client.hset(source.baselines(model.key, "g12"), "other", "generation")
    state = bench.store.run(to, "begin_copy", [target.moves], [model.key, "i", "a"])
    copy = ModelCopy(bench.store, source, target, *of, state)
    copy.run()
    assert keys_at(bench, to) == [
        each for each in keys_at(bench, 1 - to) if not each.startswith((":g:", ":f:"))
    ]
    assert copy.n_keys == 4
    for name, read in (
        (source.records(*of, 3), bench.client.hgetall), (source.slices(*of), bench.client.smembers),
        (source.record(*of, "b1"), bench.client.get),
    ):  # fmt: skip
        assert read(name.replace(source.tag, target.tag)) == read(name)
    assert 4000 < bench.client.ttl(target.record(*of, "b1")) <= 5000
    assert bench.client.ttl(target.records(*of, 3)) == -1
    # A record of 5,000 s and half an inference of 100 s are counted where they expire.
    assert sum(copy.id_bytes.values()) > 100 and sum(copy.event_bytes.values()) > 100


@one_server
def test_an_alarm_of_the_model_goes_along(bench, moved):
    """Its episodes under their ids, what receivers have not got yet, and fields of hashes that models share."""
    _, to = moved
    former = bench.store.keys.partition(1 - to)
    there = bench.store.keys.partition(to)
    episode = {
        "id": f"al_{1 - to:03d}_{'0' * 20}", "tenant": "default", "model": "m", "generation": "g1", "scope": "all",
        "slice": "", "status": "open", "number": 7, "cohort": 0, "bucket_s": 3600, "effect": {}, "threshold": 1.0,
        "recommendation": {"action": "none"}, "raised_s": 1.0, "changed_s": 1.0,
    }  # fmt: skip
    recent = episode | {"id": f"al_{1 - to:03d}_{'1' * 20}", "changed_s": 4e9, "number": 8}
    other = episode | {"id": f"al_{1 - to:03d}_{'2' * 20}", "model": "other"}
    for each in (episode, recent, other):
        bench.client.hset(former.episodes, each["id"], json.dumps(each))
    bench.client.hset(former.episodes, "*", 8)
    bench.client.hset(there.episodes, "*", 40)
    for name in (former.summaries, former.current_maps):
        bench.client.hset(name, mapping={MODEL.key: b'{"generation":"g1"}', "default/o": b"{}"})
    waiting = [
        WebhookDelivery(name, model, "g1", "https://x.example", "alarm", "{}", 1.0, due_s=4e9)
        for name, model in (("d1", MODEL.key), ("d2", "default/o"))
    ]
    for message in waiting:
        bench.client.hset(former.deliveries, message.id, message.to_json())
    bench.engine()
    mover(bench).run(to)
    assert {each.decode() for each in bench.client.hkeys(there.episodes)} == {
        "*", episode["id"], recent["id"],
    }  # fmt: skip
    # Who follows the events gets what changed lately, and nothing old.
    assert bench.client.hget(there.episodes, "*") == b"41"
    changed = bench.run(bench.inbox.alarms.changed_since("default", [8, 40] if to else [40, 8]))
    assert [(number, each.id) for number, each in changed] == [(to, recent["id"])]
    found = bench.run(bench.inbox.alarms.episode("default", episode["id"]))
    assert found is not None and found.model == "m"
    assert len(bench.run(bench.inbox.alarms.episodes("default"))) == 3
    for name in ("summaries", "current_maps"):
        assert bench.client.hkeys(getattr(there, name)) == [MODEL.key.encode()]
    assert bench.client.hkeys(former.summaries) == [b"default/o"]
    assert bench.client.hgetall(there.deliveries) == {b"d1": waiting[0].to_json()}
    assert bench.client.hkeys(former.deliveries) == [b"d2"]
    eventually(lambda: config_at(bench, 1 - to) is None)
    assert len(bench.run(bench.inbox.alarms.episodes("default"))) == 3


@one_server
def test_what_is_retained_is_counted_in_the_new_partition(bench, moved):
    """And no more in the former one, once the data there are removed."""
    _, to = moved
    former, there = (bench.store.keys.partition(n) for n in (1 - to, to))
    tallies = former.tallies(MODEL.key, MODEL.generation)
    bench.client.hset(tallies, mapping={"records": 3, "bytes": 300})
    bench.client.hset(former.records(MODEL.key, MODEL.generation, 0), "id", b"x")
    counters = {"records": 5, "bytes": 500, "records:default": 5, "bytes:default": 500}
    bench.client.hset(former.retained, mapping=counters)
    bench.engine()
    mover(bench).run(to)
    names = list(counters)
    assert bench.client.hmget(there.retained, names) == [b"3", b"300", b"3", b"300"]
    eventually(lambda: config_at(bench, 1 - to) is None)
    assert bench.client.hmget(former.retained, names) == [b"2", b"200", b"2", b"200"]


@one_server
def test_files_of_cold_days_are_named_by_the_new_partition_alone(bench, moved):
    """The removal of the former data would otherwise give up the files."""
    _, to = moved
    former, there = (bench.store.keys.partition(n) for n in (1 - to, to))
    file = {"name": "f.parquet", "n_bytes": 1, "digest": "d"}
    day = json.dumps({"files": [file], "back": [], "changed_ms": 0, "erased": False})
    of = (MODEL.key, MODEL.generation)
    bench.client.hset(former.cold_days(*of), "86400", day)
    bench.client.sadd(former.models_back, "|".join(of), "default/o|g")
    bench.engine()
    mover(bench).run(to)
    assert bench.client.hgetall(there.cold_days(*of)) == {b"86400": day.encode()}
    assert bench.client.smembers(there.models_back) == {"|".join(of).encode()}
    eventually(lambda: config_at(bench, 1 - to) is None)
    assert bench.client.smembers(former.models_back) == {b"default/o|g"}
    assert not bench.client.exists(former.spare_files)
