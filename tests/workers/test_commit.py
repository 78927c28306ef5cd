"""The commit script alone: the fencing token, and an append-only file that is cut anywhere."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from redis.exceptions import ResponseError

from calibrant_server.workers.store.commit import (
    OVERTAKEN,
    REPEATED,
    WRITTEN,
    Commit,
    id_order,
    next_id,
)
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.script import scripts
from tests.workers.driving import Bench, delivery
from tests.workers.ledger import pane_of


def test_the_chain(bench):
    keys = bench.store.keys.partition(0)

    def commit(expected, token, value):
        change = Commit(keys)
        change.set_fields(f"{keys.tag}:h", {"f": value})
        return change.send(bench.store, expected, token)

    assert commit(b"0", b"a", b"1") == WRITTEN
    assert commit(b"0", b"a", b"1") == REPEATED
    assert commit(b"0", b"b", b"2") == OVERTAKEN
    assert commit(b"x", b"b", b"2") == OVERTAKEN
    assert bench.client.hget(f"{keys.tag}:h", "f") == b"1"
    assert commit(b"a", b"b", b"2") == WRITTEN
    assert bench.client.hget(f"{keys.tag}:h", "f") == b"2"


def test_more_values_than_lua_unpacks(bench):
    keys = bench.store.keys.partition(0)
    commit = Commit(keys)
    commit.set_fields(f"{keys.tag}:h", {str(i): b"v" for i in range(20_000)})
    assert commit.send(bench.store, b"0", b"a") == WRITTEN
    assert bench.client.hlen(f"{keys.tag}:h") == 20_000
    commit = Commit(keys)
    commit.drop_fields(f"{keys.tag}:h", [str(i) for i in range(20_000)])
    assert commit.send(bench.store, b"a", b"b") == WRITTEN
    assert not bench.client.exists(f"{keys.tag}:h")


def test_many_fields_in_one_argument(bench):
    keys, rng = bench.store.keys.partition(0), np.random.default_rng(1)
    lengths = [0, 1, 255, 256, 70_000, *rng.integers(0, 200, 4_000).tolist()]
    values = {f"{i}:é"[: 2 + i % 9]: b"" for i in range(50)}
    values |= {f"n{i}": rng.bytes(length) for i, length in enumerate(lengths)}
    commit = Commit(keys)
    commit.set_many_fields(f"{keys.tag}:h", list(values), list(values.values()))
    assert commit.n_bytes >= sum(map(len, values.values()))
    assert commit.send(bench.store, b"0", b"a") == WRITTEN
    found = bench.client.hgetall(f"{keys.tag}:h")
    assert found == {name.encode(): value for name, value in values.items()}


def test_fields_that_cannot_be_written_leave_everything(bench):
    keys = bench.store.keys.partition(0)
    bench.client.set(f"{keys.tag}:s", "text")
    for key, data in ((f"{keys.tag}:s", b"\1\0\0\0f\1\0\0\0v"), (f"{keys.tag}:h", b"\1\0\0\0f\7")):
        commit = Commit(keys)
        commit.set_fields(f"{keys.tag}:first", {"f": "v"})
        commit._append("fields", key, [2, data])
        with pytest.raises(ResponseError):
            commit.send(bench.store, b"0", b"a")
        assert not bench.client.exists(f"{keys.tag}:first")
        assert not bench.client.exists(f"{keys.tag}:h")
    assert Commit(keys).send(bench.store, b"0", b"a") == WRITTEN


def test_a_script_that_the_server_lost_is_loaded_again(bench):
    keys = bench.store.keys.partition(0)
    bench.client.script_flush()
    assert Commit(keys).send(bench.store, b"0", b"a") == WRITTEN
    assert Commit(keys).send(bench.store, b"a", b"b") == WRITTEN


def test_ids_compare_as_numbers():
    assert id_order("9-1") < id_order("10-0") < id_order("10-2") < id_order("10-11")
    assert next_id("5-7") == "5-8"


def test_every_script_says_what_it_is():
    for name, text in scripts().items():
        head = [line for line in text.splitlines() if line.startswith("--")]
        words = " ".join(head)
        assert text.startswith("#!lua"), name
        assert all(word in words for word in ("KEYS", "ARGV", "Reply", "One step")), name


@pytest.mark.parametrize("n_cuts", [12, pytest.param(120, marks=pytest.mark.slow)])
def test_a_commit_cut_off_anywhere_is_absent_as_a_whole(settings, server_binary, tmp_path, n_cuts):
    """The file ends somewhere inside the last commit, as after a power cut; the entries are then merged again."""
    directory = tmp_path / "a"
    columns = {"event_times": np.arange(4) * 3_600_000_000, "slices": {"s": np.array(list("abab"))}}
    with (
        EmbeddedServer(directory, "fsync", binary=server_binary) as url,
        Bench(settings.with_url(url)) as bench,
    ):
        bench.put_model()
        bench.deliver(delivery("b1", [1, 2, 3, 4], **columns))
        loop = bench.loop()
        bench.client.xadd(loop.keys.stream, {"i": "unreadable"})
        log = next((directory / "appendonlydir").glob("*.incr.aof"))
        before = log.stat().st_size
        loop.step()
        after = log.stat().st_size
    assert after - before > 500
    for cut in np.linspace(before, after - 1, n_cuts).astype(int):
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("*.sock", "*.lock"))
        with (copy / "appendonlydir" / log.name).open("r+b") as file:
            file.truncate(cut)
        with (
            EmbeddedServer(copy, "fsync", binary=server_binary) as url,
            Bench(settings.with_url(url)) as bench,
        ):
            loop = bench.loop()
            assert bench.client.xlen(loop.keys.stream) == 2
            assert (
                bench.starts() == [] and bench.dead_letters() == [] and "tok" not in bench.cursor()
            )
            loop.step()
            assert bench.pane().numbers == pane_of([1, 2, 3, 4]).numbers
            assert len(bench.dead_letters()) == 1
        shutil.rmtree(copy)
