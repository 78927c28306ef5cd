"""How tests drive the engine: by whole engines, or a loop at a time, step by step."""

from __future__ import annotations

import asyncio
import threading
import time
from hashlib import blake2b

from calibrant.accumulators.sample import WINDOW_BYTES
from calibrant_server.workers.ingest import inbox, partition_loop
from calibrant_server.workers.ingest.entries import HISTOGRAMS, PREDICTIONS, IngestBatch
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.ingest.inbox_errors import StoreUnavailableError
from calibrant_server.workers.ingest.partition_loop import PartitionLoop
from calibrant_server.workers.ingest.payloads import PackedUpdate, pack_updates
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_reading import SampleSource, merged_sample
from calibrant_server.workers.ingest.stored_panes import read_pane
from calibrant_server.workers.queries import ask
from calibrant_server.workers.store import connection
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.key_names import LAST_CHANGE, PaneKey
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import Watermarks, day_of
from calibrant_server.workers.supervisor import Supervisor
from tests.waiting import PATIENCE_S
from tests.waiting import eventually as eventually
from tests.workers.ledger import LedgerBatch, LedgerPane, ledger_ground

MODEL = ModelConfig("default", "m", "multiclass", 3, generation="g1", revision=1)

# Every commit writes sums, as if no tail were small enough.
SUMS = Numerics(pane_bytes=lambda spec, n_rows: 0)


def stored_pane(bench, slice_, start_s, model=MODEL):
    """A pane as readers find it: sums, rows, and its part of the day's sample."""
    keys, numerics = bench.store.keys.of(model), Numerics()
    key = PaneKey(model.key, model.generation, slice_, start_s)
    pane = read_pane(bench.client, keys, numerics, model, key)[0]
    marks = Watermarks.of(slice_, bench.client.hgetall(keys.marks(model.key, model.generation)))
    source = SampleSource(keys, numerics, model, slice_, marks)
    day = source.day(bench.client, day_of(start_s), {start_s: None})
    return pane.replace_sample(merged_sample(model.spec(), [day], WINDOW_BYTES))


class FreeLeases:
    """Leases that every worker holds at once: nothing may rest on them."""

    def take(self, partition):
        return True

    is_alone = True

    def wanted(self, partitions):
        return list(partitions)

    def holds(self, partition):
        return True

    def give_back(self, partition):
        pass

    busy = idle = give_back


# Constants of the engine, for its tests: module, name, value. It is quick where it pauses, and patient where a busy
# machine makes it wait.
QUICK = [
    (partition_loop, "READ_BLOCK_S", 0.05),
    (ask, "REASK_S", 0.3),
    (inbox, "RESULT_DEADLINE_S", PATIENCE_S),
    (connection, "CONNECT_TIMEOUT_S", PATIENCE_S),
    (connection, "POOL_WAIT_S", PATIENCE_S),
]


class Bench:
    """One namespace of a store with everything that works on it."""

    def __init__(self, settings, ingest_deadline_s=PATIENCE_S):
        self.settings = settings
        self._ingest_deadline_s = ingest_deadline_s
        self.numerics = ledger_ground()
        self.store = Store(settings)
        self.client = self.store.client
        self.engines = []
        self.runner = asyncio.Runner()

    def __enter__(self):
        self.inbox = Inbox(self.settings, ingest_deadline_s=self._ingest_deadline_s)
        self.run(self.inbox.open())
        return self

    def __exit__(self, *exc):
        stopped = [engine.stop(PATIENCE_S) for engine in self.engines]
        self.run(self.inbox.close())
        self.runner.close()
        self.store.close()
        assert all(stopped), "a thread of an engine outlives its test"

    def run(self, coroutine):
        """Run a coroutine to its end."""
        return self.runner.run(coroutine)

    def engine(self, numerics=None, **parts):
        """A started engine."""
        engine = Supervisor(self.settings, numerics or self.numerics, **parts)
        engine.start()
        self.engines.append(engine)
        return engine

    def loop(self, kind=PartitionLoop, model=MODEL, scripts=None):
        """A loop on a model's partition, to be driven by hand."""
        store = Store(self.settings, scripts)
        partition = store.keys.partition_of(model.key)
        loop = kind(store, partition, self.numerics, FreeLeases(), threading.Event())
        loop._fencing.reload()
        loop._counted = True
        return loop

    def put_model(self, model=MODEL):
        """Declare a model, as it stands."""
        self.client.hset(self.store.keys.of(model).models, model.key, model.to_json())
        return model

    def deliver(self, *deliveries):
        """Hand batches over, all at once; receipts in order."""

        async def all_of_them():
            return await asyncio.gather(*(self.inbox.enqueue(each) for each in deliveries))

        return self.run(all_of_them())

    def deliver_until_taken(self, batch):
        """Send a batch as a client does: again under its id until the store takes it; its receipt."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.deliver(batch)[0]
            except StoreUnavailableError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def merged(self, batch_id, model=MODEL, seconds=PATIENCE_S):
        """The receipt of a batch once it has been dealt with."""
        return self.run(self.inbox.wait_merged(model.key, batch_id, seconds))

    def pane(self, slice_="", start_s=None, model=MODEL):
        """A pane as the store holds it (the merge of all of the slice, without a start)."""
        keys = self.store.keys.of(model)
        starts = [start_s] if start_s is not None else self.starts(slice_, model)
        total = LedgerPane()
        for start in starts:
            key = PaneKey(model.key, model.generation, slice_, start)
            total.merge(read_pane(self.client, keys, self.numerics, model, key)[0])
        return total

    def starts(self, slice_="", model=MODEL):
        """Starts of a slice's panes."""
        keys = self.store.keys.of(model)
        found = self.client.hkeys(keys.versions(model.key, model.generation, slice_))
        return sorted(int(start) for start in found if start.decode() != LAST_CHANGE)

    def cursor(self, model=MODEL):
        """The cursor hash of a model's partition."""
        found = self.client.hgetall(self.store.keys.of(model).cursor)
        return {name.decode(): value.decode() for name, value in found.items()}

    def dead_letters(self, model=MODEL):
        """Fields of the dead letters."""
        return [fields for _, fields in self.client.xrange(self.store.keys.of(model).dead_letters)]

    def keys_of(self, model=MODEL):
        """Every key that names a model's generation."""
        return sorted(
            self.client.scan_iter(
                match=f"{{{self.settings.namespace}.p*{model.key}|{model.generation}*"
            )
        )


def delivery(batch_id, numbers=(1,), model=MODEL, **changes):
    """A batch of numbers on its way in."""
    columns = {
        name: changes.pop(name) for name in ("event_times", "slices", "trick") if name in changes
    }
    batch = LedgerBatch(list(numbers), **columns)
    payload = batch.pack()
    digest = blake2b(payload, digest_size=16).digest()
    return IngestBatch.of(model, batch_id, PREDICTIONS, payload, digest, batch.n, **changes)


def totals(batch_id, histogram, source="s", epoch=1, sequence=1, model=MODEL):
    """A running total on its way in."""
    payload = pack_updates(
        [PackedUpdate(histogram.pack(), source=source, epoch=epoch, sequence=sequence)]
    )
    digest = blake2b(payload, digest_size=16).digest()
    return IngestBatch.of(model, batch_id, HISTOGRAMS, payload, digest, 1)
