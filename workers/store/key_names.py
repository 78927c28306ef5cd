"""Names of the store's keys, all in one place, with the type, the content and the writer of each.

`ns` is the namespace. `T` is `{ns.pNNN}`, the hash tag of partition NNN: everything that one commit touches is in one
slot. A model, named `tenant/model`, is in the partition that follows from its name. `G` is `tenant/model|generation`: a model that
is deleted and created again has another generation, so that no data of the old one are read as the new one's. Ids contain
neither `/` nor `|`, which keeps each name below unambiguous. A slice may contain anything and is therefore between two fixed
parts.

====================  ======  ========================================================  ==========================
key                   type    content                                                   written by
====================  ======  ========================================================  ==========================
T:q                   stream  one entry a batch (`calibrant_server.workers.ingest.entries`)                     inbox; registry (deletion)
T:in                  int     bytes ever appended to T:q                                as T:q
T:c                   hash    cursor: id, tok, n, out, at (ms of the last progress), schema, att, chi  commit, takeover, start
T:x                   stream  dead letters: the entry's fields, src (its id), why       commit
T:pk                  stream  parked entries: src (its id), why, at (ms), the entry's fields  commit, replay script
T:o                   string  lease: name of the worker; advisory                       lease scripts
T:m                   hash    tenant/model -> JSON of its configuration                 registry scripts
T:b:G|batch id        string  record of a batch id, JSON; expires                       inbox (NX), commit
T:dn                  hash    expiry bucket -> bytes of batch records that end in it    inbox, housekeeping
T:s:G|slice|start     hash    a pane: part -> packed bytes; `src:...` -> running totals  commit
T:t:G|start           hash    the rows of a time slice that are not sums yet: number -> packed rows  commit
T:y:G|clock|day       hash    the stored sample of a day, `event` or `sealed`: number -> packed rows; `*` -> version of the last change  commit
T:yl:G                set     clock|day of the stored samples                           commit
T:cd:G                hash    cold days: start of the day -> JSON: the file of each slice that is not in the store (`cold_days`)  commit
T:cf                  hash    folders of files that no day names -> ms at which they are removed; 0: now  commit
T:v:G|slice           hash    pane start -> version; `*` -> version of the last change  commit
T:l:G                 set     slices that have panes                                    commit
T:r:G|shard           hash    prediction id -> retained record (`calibrant_server.workers.join.record_format`)        commit
T:u:G                 hash    pane start, unit -> prediction ids of the unit            commit
T:j:G|start           hash    prediction ids of a pane that is not sealed yet           commit
T:n:G                 hash    tallies of the model's retained records                   commit
T:a:G                 hash    detectors by name; `*` -> version of the last change; `map` -> JSON: active map     commit
T:h:G|detector        hash    cohort start -> what it said to the detector              commit
T:hr:G                hash    cohort start -> JSON: who rated how much, agreement       commit
T:ag                  hash    G -> the cohort of which not everything is sealed yet     commit
T:e                   hash    alarm id -> JSON of the episode; `*` -> number of the last change  commit
T:as                  hash    tenant/model -> JSON: evidence, status, sums, for metrics  commit
T:st                  hash    tenant/model -> JSON: status for overviews, a cache        service; commit (deletion)
T:w                   hash    webhook id -> JSON of a delivery that is not done         commit
T:wl:G                hash    webhook id -> JSON of a delivery that is done             commit
T:k:G                 hash    marks: how far panes are dropped, sealed, merged into days   commit
T:f:G                 hash    baselines: name -> what it holds, JSON                    commit
T:mc                  hash    tenant/model -> the current calibration map, whole          promote script, deletion
T:mv:G                hash    map versions: n, p, v1.. s1.. f.. h.. (below)             map scripts
T:ra:G                hash    archived reports: n, b (bytes), f<identity>, s<n> summary, h<n> page, r<n> results  report script
T:us                  hash    G -> the cohort that a damaged pane keeps from being sealed, and why      commit
T:nr                  hash    records and bytes retained; on their way; each also `:TENANT`; `backlog:TENANT` (bytes)  inbox, commit
T:ev:G|event|q or a   string  request or response of an inference that waits for the other; expires  inbox
T:en                  hash    minute -> bytes of the halves above that expire in it; expires  inbox
T:dt:TENANT           hash    expiry bucket -> bytes of the tenant's batch records that end in it; expires  inbox
ns:cfg                hash    partitions, schema: fixed at creation                     first start
ns:ak                 hash    key id -> JSON of a caller's key; `*` -> number of changes  key scripts
ns:au:TENANT          stream  audit log: e (JSON)                                       service
ns:ps:<digest>        string  SHA-256 of the key of a session of the pages; expires   service
ns:pk:<digest>        list    sessions of the pages of the key with this SHA-256, newest first; expires  service
ns:wt:{TENANT}[/MODEL]  int     webhook tests of the last minute; expires                 service
ns:rl:SUBJECT         hash    tokens of a tenant or key: level, at, p:PROCESS; expires  service
ns:cd                 string  identity of the store in the marker of its files; `new:` before it until the marker was written  worker
ns:w                  zset    live workers by time of their last heartbeat              worker
{ns.ask}:first        zset    queries that wait for a worker: one of each tenant and process  inbox
{ns.ask}:more         zset    their other queries, by turn                              inbox
{ns.ask}:slow         zset    those whose result may take seconds                      compute
ns:doing:<digest>     string  a worker computes that result; expires                   compute
ns:ans:<inbox>        list    results on their way to one inbox; expires                compute
ns:a:<digest>         string  a result cached under (state version, query); expires   compute
====================  ======  ========================================================  ==========================

Fields of T:mv:G: `n` number of the last version, `v<number>` a version (JSON), `s<number>` its summary, `f<identity>`
the number of a fit, `p` promotions so far, `h<promotion>` who promoted what and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from calibrant.core.hashing import digests_of

if TYPE_CHECKING:
    from calibrant_server.workers.store.day_file import DayFiles

SCHEMA = 4
SOURCE_FIELD = "src:"
LAST_CHANGE = "*"
ACTIVE_MAP = "map"
RECORD_SHARDS = 64


def model_key(tenant: str, model: str) -> str:
    """Return the name of a model in keys and entries."""
    return f"{tenant}/{model}"


def record_shard(prediction_id: str) -> int:
    """Return which of a model's hashes of records has that of a prediction."""
    return blake2b(prediction_id.encode(), digest_size=2).digest()[0] % RECORD_SHARDS


def by_shard(prediction_ids: Sequence[str]) -> Iterator[tuple[int, list[int]]]:
    """Yield the shards of some ids, each with the places of its ids in order."""
    digests = digests_of([name.encode() for name in prediction_ids], 2)
    shards = digests[:, 0] % RECORD_SHARDS
    order = np.argsort(shards, kind="stable")
    ends = np.cumsum(np.bincount(shards, minlength=RECORD_SHARDS)).tolist()
    places, start = order.tolist(), 0
    for shard, end in enumerate(ends):
        if end > start:
            yield shard, places[start:end]
        start = end


def tenant_of(model: str) -> str:
    """Return the tenant in the name of a model."""
    return model.partition("/")[0]


def with_tenant(model: str, numbers: Mapping[str, int]) -> dict[str, int]:
    """Return numbers of a partition's `T:nr`, and the same as numbers of the model's tenant."""
    return {**numbers, **{f"{name}:{tenant_of(model)}": n for name, n in numbers.items()}}


class NamedModel(Protocol):
    """A model whose configuration has its name."""

    @property
    def key(self) -> str: ...


@dataclass(frozen=True)
class PaneKey:
    """Identity of a stored pane."""

    model: str
    generation: str
    slice: str
    start_s: int


class _OfPartition:
    """The name of one key of a partition."""

    def __init__(self, letters: str):
        self._letters = letters

    def __get__(self, keys: Any, owner: type) -> str:
        return f"{keys.tag}:{self._letters}"


class _OfModel:
    """Names of a model's keys, by tenant/model, generation, and what distinguishes several of one model."""

    def __init__(self, letters: str, *by: str):
        self._letters, self._n = letters, 2 + len(by)

    def __get__(self, keys: Any, owner: type) -> Callable[..., str]:
        return partial(self._name, keys)

    def _name(self, keys: Any, *of: str | int) -> str:
        if len(of) != self._n:
            raise TypeError(f"a key of {self._letters} has {self._n} parts, not {len(of)}")
        return f"{keys.tag}:{self._letters}:{'|'.join(map(str, of))}"


@dataclass(frozen=True)
class PartitionKeys:
    """Keys of one partition.

    Attributes
    ----------
    files : where files of its cold days are, if this process has any
    """

    namespace: str
    partition: int
    files: DayFiles | None = field(default=None, compare=False)

    @cached_property
    def tag(self) -> str:
        """Hash tag that keeps the partition in one slot."""
        return f"{{{self.namespace}.p{self.partition:03d}}}"

    stream = _OfPartition("q")
    bytes_in = _OfPartition("in")
    cursor = _OfPartition("c")
    dead_letters = _OfPartition("x")
    lease = _OfPartition("o")
    models = _OfPartition("m")
    record_bytes = _OfPartition("dn")
    spare_files = _OfPartition("cf")
    partial_cohorts = _OfPartition("ag")
    episodes = _OfPartition("e")
    summaries = _OfPartition("as")
    statuses = _OfPartition("st")
    deliveries = _OfPartition("w")
    current_maps = _OfPartition("mc")
    parked = _OfPartition("pk")
    unsealable = _OfPartition("us")
    retained = _OfPartition("nr")
    event_bytes = _OfPartition("en")

    # Of a model and its generation, and of what the names of further arguments say.
    record = _OfModel("b", "batch_id")
    sample = _OfModel("y", "member of samples")
    samples = _OfModel("yl")
    cold_days = _OfModel("cd")
    versions = _OfModel("v", "slice")
    slices = _OfModel("l")
    records = _OfModel("r", "shard")
    unit_members = _OfModel("u")
    unsealed = _OfModel("j", "start_s")
    tallies = _OfModel("n")
    detectors = _OfModel("a")
    cohort_results = _OfModel("h", "detector")
    delivery_log = _OfModel("wl")
    marks = _OfModel("k")
    baselines = _OfModel("f")
    map_versions = _OfModel("mv")
    report_archive = _OfModel("ra")
    event_half = _OfModel("ev", "event", "side")

    def records_pattern(self, model: str, generation: str) -> str:
        """Return a pattern for the records of one generation; ids contain no special character of patterns."""
        return self.record(model, generation, "*")

    def pane(self, key: PaneKey) -> str:
        return f"{self.tag}:s:{key.model}|{key.generation}|{key.slice}|{key.start_s}"

    def tail(self, key: PaneKey) -> str:
        """Return the hash of the rows that feed a pane and all panes of its time slice."""
        return f"{self.tag}:t:{key.model}|{key.generation}|{key.start_s}"

    def record_hash(self, model: str, generation: str, prediction_id: str) -> str:
        """Return the hash that holds a prediction's record."""
        return self.records(model, generation, record_shard(prediction_id))

    def record_bytes_of(self, tenant: str) -> str:
        return f"{self.tag}:dt:{tenant}"


@dataclass(frozen=True)
class Keys:
    """Keys of a namespace."""

    namespace: str
    partitions: int
    files: DayFiles | None = field(default=None, compare=False)

    def partition_of(self, model: str) -> int:
        """Return the partition of a model."""
        digest = blake2b(model.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.partitions

    def partition(self, number: int) -> PartitionKeys:
        return PartitionKeys(self.namespace, number, self.files)

    def of(self, config: NamedModel) -> PartitionKeys:
        """Return the keys of a model's partition."""
        return self.of_model(config.key)

    def of_model(self, model: str) -> PartitionKeys:
        """Return the keys of the partition of `tenant/model`."""
        return self.partition(self.partition_of(model))

    @property
    def configuration(self) -> str:
        return f"{self.namespace}:cfg"

    @property
    def access_keys(self) -> str:
        return f"{self.namespace}:ak"

    def audit(self, tenant: str) -> str:
        return f"{self.namespace}:au:{tenant}"

    def page_session(self, digest: str) -> str:
        return f"{self.namespace}:ps:{digest}"

    @property
    def form_secret(self) -> str:
        return f"{self.namespace}:fs"

    def page_sessions_of(self, key_digest: str) -> str:
        return f"{self.namespace}:pk:{key_digest}"

    def webhook_tests(self, name: str) -> str:
        """Return the key of a tenant, or of one of its models: one transaction reads both, so they share a slot."""
        tenant, slash, model = name.partition("/")
        return f"{self.namespace}:wt:{{{tenant}}}{slash}{model}"

    def rate(self, subject: str) -> str:
        return f"{self.namespace}:rl:{subject}"

    @property
    def workers(self) -> str:
        return f"{self.namespace}:w"

    @property
    def queries(self) -> str:
        return f"{{{self.namespace}.ask}}:all"

    @property
    def slow_queries(self) -> str:
        return f"{{{self.namespace}.ask}}:slow"

    def query_wakes(self, name: str) -> str:
        """Return the queue that ends the waits of one server of queries: in the slot of those that it waits for."""
        return f"{{{self.namespace}.ask}}:wake:{name}"

    @property
    def files_owner(self) -> str:
        return f"{self.namespace}:cd"

    def claim(self, digest: str) -> str:
        return f"{self.namespace}:doing:{digest}"

    def replies(self, inbox: str) -> str:
        return f"{self.namespace}:ans:{inbox}"

    def cached_result(self, digest: str) -> str:
        return f"{self.namespace}:a:{digest}"
