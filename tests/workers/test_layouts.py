"""Each layout of the store has a fixture that later versions read.

A version that changes the layout adds a fixture of it, and keeps the older ones if it converts or reads them. An
export moves a model from one layout to the next (`tests/recorded/scenarios/upgrade.py`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from calibrant import Batch, Pane
from calibrant.input.labels import LabelRow
from calibrant_server.workers.ingest.entries import LABELS, PANE
from calibrant_server.workers.ingest.payloads import PackedUpdate, pack_labels, pack_updates
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries.window_panes import WindowPanes
from calibrant_server.workers.store.key_names import SCHEMA
from calibrant_server.workers.store.properties import StoreMismatch
from calibrant_server.workers.store.windows import Window
from tests.workers.driving import MODEL, SUMS
from tests.workers.test_tails import predictions, rows_at, sent

GOLDEN = Path(__file__).parent / "golden" / f"layout-{SCHEMA}.json.gz"
EVER = Window(0, 1 << 32)
SLICES = ("", "site:A", "site:B")


def fill(bench):
    """A model with sums and rows in one pane: predictions with ids and without, labels, a posted pane, units, slices."""
    bench.put_model()
    for number, numerics in enumerate((SUMS, Numerics())):
        bench.numerics = numerics
        loop = bench.loop()
        loop._housekeeping.due_at = float("inf")
        ids = [f"i{number}.{j}" for j in range(3)]
        bench.deliver(
            predictions(MODEL, f"a{number}", rows_at(units=["u", "u", "v"])),
            predictions(MODEL, f"b{number}", rows_at(ids=ids, hour=number)),
            sent(MODEL, f"l{number}", LABELS, pack_labels([LabelRow(ids[0], {}, [("r", 2, 1)])])),
        )
        loop.step()
    posted = Pane(MODEL.spec())
    posted.fill_batch(Batch.from_columns({"probabilities": [[0.1, 0.2, 0.7]], "labels": [2]}).batch)
    update = PackedUpdate(posted.pack(), event_time_us=1_767_225_600_000_000)
    bench.deliver(sent(MODEL, "p", PANE, pack_updates([update])))
    loop.step()
    return loop


def dumped(client, namespace):
    """Every key of a namespace, without those that expire."""
    found = {}
    for name in sorted(client.scan_iter(match=f"*{namespace}*")):
        if client.ttl(name) >= 0:
            continue
        kind = client.type(name).decode()
        read = {"hash": client.hgetall, "set": client.smembers, "string": client.get}.get(kind)
        if read is not None:
            short = name.decode().replace(namespace, "NS")
            found[short] = [kind, _text(read(name))]
    return found


def restore(client, namespace, keys):
    for short, (kind, content) in keys.items():
        name, value = short.replace("NS", namespace), _bytes(content)
        if kind == "hash":
            client.hset(name, mapping=value)
        elif kind == "set":
            client.sadd(name, *value)
        else:
            client.set(name, value)


def _text(value):
    if isinstance(value, dict):
        return {key.decode(): _text(each) for key, each in sorted(value.items())}
    if isinstance(value, set):
        return sorted(map(_text, value))
    return b64encode(value).decode()


def _bytes(value):
    if isinstance(value, dict):
        return {key: _bytes(each) for key, each in value.items()}
    return [_bytes(each) for each in value] if isinstance(value, list) else b64decode(value)


def held(bench):
    panes = WindowPanes(bench.store, Numerics())
    merged = {slice_: panes.merged(MODEL, slice_, EVER, None).merged for slice_ in SLICES}
    return {
        name: [pane.counts["n_predictions"], pane.digest(), pane.sample.n, sha256(pane.sample)]
        for name, pane in merged.items()
    }


def sha256(sample):
    """Digest of the sample's rows, to the bit."""
    columns = (column.tobytes() for column in sample.arrays().values())
    return hashlib.sha256(b"".join(columns)).hexdigest()


def test_the_fixture_of_this_layout_is_read_and_goes_on(bench):
    fixture = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    assert fixture["layout"] == SCHEMA
    restore(bench.client, bench.settings.namespace, fixture["keys"])
    assert held(bench) == fixture["held"]
    bench.numerics = Numerics()
    loop = bench.loop()
    loop._housekeeping.due_at = float("inf")
    loop._fencing.reload()
    bench.deliver(
        sent(MODEL, "l9", LABELS, pack_labels([LabelRow("i0.1", {}, [("r", 1, 1)])])),
        predictions(MODEL, "c", rows_at(n=1)),
    )
    loop.step()
    assert held(bench)[""][0] == fixture["held"][""][0] + 1
    assert bench.merged("l9").status == "merged"


@pytest.mark.parametrize("layout", [2, 3])
def test_a_store_of_an_older_layout_is_not_changed_and_the_start_names_the_commands(bench, layout):
    """Panes had samples of their own in 2; in 3, rows had another form and models were in any partition."""
    golden = GOLDEN.parent / f"layout-{layout}.json.gz"
    fixture = json.loads(gzip.decompress(golden.read_bytes()))
    namespace = bench.settings.namespace
    bench.client.delete(bench.store.keys.configuration)
    restore(bench.client, namespace, fixture["keys"])
    before = dumped(bench.client, namespace)
    older = rf"older version of Calibrant \(layout {layout}"
    with pytest.raises(StoreMismatch, match=older) as rejected:
        bench.store.fix_properties()
    for command in ("calibrant export MODEL FILE", "calibrant import MODEL FILE"):
        assert command in str(rejected.value)
    assert dumped(bench.client, namespace) == before


@pytest.mark.skipif(GOLDEN.exists(), reason="a fixture is written once and never changed")
def test_a_new_layout_gets_a_fixture(bench):
    fill(bench)
    content = {
        "layout": SCHEMA,
        "keys": dumped(bench.client, bench.settings.namespace),
        "held": held(bench),
    }
    GOLDEN.write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))
    pytest.fail(f"{GOLDEN} was written: add it to the repository")
