"""An engine in memory: what the routes ask of the real one, without a store."""

import asyncio
from dataclasses import replace

import orjson

from calibrant_server.workers.ingest.entries import IngestBatch
from calibrant_server.workers.ingest.inbox_errors import (
    BatchConflictError,
    ModelMismatchError,
    StoreUnavailableError,
)
from calibrant_server.workers.queries.ask import (
    QueryResult,
)
from calibrant_server.workers.store.batch_records import BatchReceipt
from calibrant_server.workers.store.event_halves import HalvesFull
from calibrant_server.workers.store.frozen_maps import NoSuchMap, PromotedMap, PromotionConflict
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.partition_state import Troubles
from calibrant_server.workers.store.registry import FIXED, FixedProperty, RevisionConflict
from calibrant_server.workers.store.report_archive import NoSuchReport
from calibrant_server.workers.store.tenant_usage import PartitionUsage
from calibrant_server.workers.store.watermarks import Watermarks


class FakeRegistry:
    """Models in a dict."""

    def __init__(self) -> None:
        self.configs: dict[tuple[str, str], ModelConfig] = {}

    async def get(self, tenant, model):
        return self.configs.get((tenant, model))

    found = get

    async def list(self, tenant):
        return [config for (owner, _), config in sorted(self.configs.items()) if owner == tenant]

    async def count(self, tenant):
        return len(await self.list(tenant))

    async def has_fewer(self, tenant, n_models):
        return await self.count(tenant) < n_models

    async def put(self, config, expected_revision):
        current = self.configs.get((config.tenant, config.model))
        if (current.revision if current else None) != expected_revision:
            raise RevisionConflict(current)
        if current is None:
            new = config.made_now()
        else:
            changed = [name for name in FIXED if getattr(current, name) != getattr(config, name)]
            if changed:
                raise FixedProperty(changed)
            new = replace(
                config,
                generation=current.generation,
                revision=current.revision + 1,
                created_at=current.created_at,
            )
        self.configs[config.tenant, config.model] = new
        return new

    async def confirm(self, config):
        pass

    async def restore(self, config):
        self.configs[config.tenant, config.model] = config
        return config

    async def delete(self, config, with_reports=True):
        del self.configs[config.tenant, config.model]


class FakeAlarms:
    """Episodes, deliveries and summaries in lists."""

    def __init__(self) -> None:
        self.held = []
        self.sent = []
        self.result = {}

    async def episodes(self, tenant):
        return [each for each in self.held if each.tenant == tenant]

    async def episode(self, tenant, alarm_id):
        found = [each for each in self.held if (each.tenant, each.id) == (tenant, alarm_id)]
        return found[0] if found else None

    async def numbers(self):
        return [max((each.number for each in self.held), default=0)]

    async def recent_numbers(self, age_s):
        return await self.numbers()

    async def changed_since(self, tenant, numbers):
        return [
            (0, each) for each in self.held if each.tenant == tenant and each.number > numbers[0]
        ]

    async def reference(self, model, slice_):
        return None

    async def summaries(self):
        return self.result

    async def deliveries(self, model):
        return self.sent


class FakeStatusIndex:
    """Entries in a dict; the state of a model is its revision and no data, or what `states` has."""

    def __init__(self) -> None:
        self.entries = {}
        self.states = {}

    async def read(self, configs):
        return [(self._state(config), self.entries.get(config.key)) for config in configs]

    async def write(self, entries):
        self.entries |= {key: entry for key, (_, entry) in entries.items()}

    def _state(self, config):
        return self.states.get(config.key, f"{config.generation}.{config.revision}|0")


class FakeReports:
    """An archive that stays empty."""

    async def count(self, config):
        return 0

    async def listed(self, config):
        return []

    async def add(self, config, report, max_bytes):
        return 1, True

    async def summary(self, config, number):
        raise NoSuchReport(number)


class FakeSources:
    """Sources without batches."""

    async def watermark(self, config, name):
        return None


class FakeMaps:
    """Frozen maps in dicts."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, int], dict] = {}
        self.summaries: dict[str, list[dict]] = {}
        self.identities: dict[tuple[str, str], int] = {}
        self.currents: dict[str, PromotedMap] = {}
        self.records: dict[str, list[dict]] = {}

    async def current(self, config):
        return self.currents.get(config.key)

    async def current_maps(self, configs):
        return [await self.current(each) for each in configs]

    async def version(self, config, number):
        if (config.key, number) not in self.versions:
            raise NoSuchMap(number)
        return {"version": number, **self.versions[config.key, number]}

    async def listed(self, config):
        summaries = self.summaries.get(config.key, [])
        records = self.records.get(config.key, [])
        return (
            [{"version": i, **each} for i, each in enumerate(summaries, 1)],
            [{"promotion": i, **each} for i, each in enumerate(records, 1)],
        )

    async def add(self, config, identity, body, summary):
        if (config.key, identity) in self.identities:
            return self.identities[config.key, identity], False
        summaries = self.summaries.setdefault(config.key, [])
        summaries.append(orjson.loads(summary))
        self.versions[config.key, len(summaries)] = orjson.loads(body)
        self.identities[config.key, identity] = len(summaries)
        return len(summaries), True

    async def promote(self, config, number, new, record):
        current = self.currents.get(config.key)
        if (current.promotion if current else 0) != new.promotion - 1:
            raise PromotionConflict(config.key)
        self.currents[config.key] = PromotedMap.from_bytes(new.to_bytes())
        self.records.setdefault(config.key, []).append(orjson.loads(record))


class FakeAccessKeys:
    """Keys in a dict."""

    def __init__(self) -> None:
        self.entries: dict[str, dict] = {}
        self.n_changes = 0

    async def changes(self):
        return self.n_changes

    async def all(self):
        return self.n_changes, self.entries

    async def add(self, tenant, key_id, entry):
        self.entries[key_id] = entry
        self.n_changes += 1

    async def revoke(self, tenant, key_id):
        if self.entries.get(key_id, {}).get("tenant") != tenant:
            return False
        del self.entries[key_id]
        self.n_changes += 1
        return True


class FakePageSessions:
    """Sessions in a dict."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}

    async def begin(self, key_digest):
        token = f"session-{len(self.digests)}"
        self.digests[token] = key_digest
        return token

    async def form_secret(self):
        return "secret of forms"

    async def key_digest(self, token):
        return self.digests.get(token)

    async def end(self, token):
        self.digests.pop(token, None)


class FakeRates:
    """Buckets that are always full."""

    async def renew(self, subject, rate, spent):
        return rate


class FakeWebhookTestLimit:
    """One test per model; the next one has to wait 42 s."""

    def __init__(self) -> None:
        self.models: set[str] = set()

    async def wait_s(self, model):
        is_new = model not in self.models
        self.models.add(model)
        return 0 if is_new else 42


class FakeEventHalves:
    """Halves of inferences in a dict."""

    def __init__(self) -> None:
        self.halves: dict[tuple[str, str, bool], bytes] = {}
        self.is_full = False

    async def exchange(self, config, name, is_response, half):
        other = self.halves.get((config.key, name, not is_response))
        if other is None:
            if self.is_full:
                raise HalvesFull(config.key)
            self.halves[config.key, name, is_response] = half
        return other


class FakeUsage:
    """Two partitions."""

    async def by_partition(self, tenant):
        return [PartitionUsage(5, 500, 0), PartitionUsage(7, 300, 9)]


class FakeAudit:
    """Audit logs in lists; `trouble` is raised by the next entry."""

    def __init__(self) -> None:
        self.logs: dict[str, list[dict]] = {}
        self.trouble: Exception | None = None

    async def append(self, tenant, entry):
        if self.trouble:
            raise self.trouble
        log = self.logs.setdefault(tenant, [])
        log.append({"id": f"{1000 + len(log)}-0", **entry})

    async def newest(self, tenant, before, limit):
        found = [
            each
            for each in self.logs.get(tenant, [])
            if before is None or int(each["id"][:-2]) < int(before[:-2])
        ]
        return found[::-1][:limit]

    async def oldest_first(self, tenant):
        for each in self.logs.get(tenant, []):
            yield each


class FakeState:
    """State that is named by a number, whatever the window."""

    marks = Watermarks()

    def __init__(self, version: str, config=None) -> None:
        self.version = version
        self.config = config
        self.panes: dict[bytes, bytes] = {}

    def without_alarm(self):
        return self

    def name(self, window):
        return self.version


class FakeLetters:
    """Entries that were not merged, by `tenant/model`; what was asked for is noted."""

    def __init__(self):
        self.letters = {}
        self.done = []

    async def of_model(self, config):
        return self.letters.get(config.key, [])

    async def _take(self, what, config, name):
        found = self.letters.get(config.key, [])
        left = [each for each in found if each.id != name]
        self.letters[config.key] = left
        self.done.append((what, config.key, name))
        return len(left) < len(found)

    async def replay(self, config, name):
        return await self._take("replay", config, name)

    async def discard(self, config, name):
        return await self._take("discard", config, name)


class FakeInbox:
    """Batches in a dict; `merge` merges them, `trouble` is raised by the next call."""

    def __init__(self, registry: FakeRegistry) -> None:
        self.registry = registry
        self.maps = FakeMaps()
        self.reports = FakeReports()
        self.sources = FakeSources()
        self.access_keys = FakeAccessKeys()
        self.page_sessions = FakePageSessions()
        self.audit = FakeAudit()
        self.rates = FakeRates()
        self.webhook_test_limit = FakeWebhookTestLimit()
        self.event_halves = FakeEventHalves()
        self.usage = FakeUsage()
        self.deliveries: list[IngestBatch] = []
        self.records: dict[tuple[str, str], tuple[bytes, BatchReceipt]] = {}
        self.merges_at_once = False
        self.trouble: Exception | None = None
        self.version = 1
        self.looks = 0
        self.asked: list[tuple] = []
        self.alarms = FakeAlarms()
        self.orders: list[tuple] = []
        self.answers: dict[str, dict] = {
            "cases": {"cases": []},
            "metrics": {"metrics": {}},
        }
        self.held: list[str] = []
        self.failing: dict[str, Exception] = {}
        self.waiting = (0, 0)
        self.tallies_by_model: dict[str, dict[str, int]] = {}
        self.is_full = False
        self.letters = FakeLetters()
        self.statuses = FakeStatusIndex()

    def _stumble(self) -> None:
        if self.trouble:
            raise self.trouble

    async def check_files(self, config):
        """All days are in the store."""

    async def check_writable(self):
        self._stumble()
        return not self.is_full

    async def troubles(self):
        self._stumble()
        return Troubles(*self.waiting)

    async def tallies(self, model):
        self._stumble()
        return {}

    async def tallies_of(self, configs):
        self._stumble()
        keys = [config.key for config in configs]
        return {key: self.tallies_by_model[key] for key in keys if key in self.tallies_by_model}

    async def enqueue(self, delivery):
        self._stumble()
        key = (delivery.model, delivery.batch_id)
        if key in self.records:
            digest, receipt = self.records[key]
            if digest != delivery.digest:
                raise BatchConflictError(delivery.batch_id)
            return replace(receipt, duplicate=True)
        if delivery.create:
            await self.registry.put(delivery.config, None)
        else:
            current = await self.registry.get(delivery.config.tenant, delivery.config.model)
            if current is None or delivery.checked_revision not in (None, current.revision):
                raise ModelMismatchError(current)
        self.deliveries.append(delivery)
        receipt = BatchReceipt(
            delivery.batch_id,
            "merged" if self.merges_at_once else "accepted",
            False,
            delivery.n_accepted,
            len(delivery.violations),
            [vars(each) for each in delivery.violations],
            "everysec",
        )
        self.records[key] = (delivery.digest, receipt)
        return receipt

    async def order(self, model, order):
        self._stumble()
        self.orders.append((model.key, order))
        for at, each in enumerate(self.alarms.held):
            if each.id == order.get("alarm"):
                self.alarms.held[at] = self._ordered(each, order)

    def _ordered(self, alarm, order):
        said = (order["by"], order["note"], 2e9, alarm.number + 1, order["role"])
        return alarm.acknowledged(*said)

    def merge(self) -> None:
        self.version += 1
        for key, (digest, receipt) in self.records.items():
            self.records[key] = (digest, replace(receipt, status="merged"))

    async def record(self, model_key, batch_id):
        self._stumble()
        return self.records.get((model_key, batch_id), (b"", None))[1]

    async def wait_merged(self, model_key, batch_id, seconds, was_there=False):
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            receipt = await self.record(model_key, batch_id)
            if receipt.status != "accepted" or asyncio.get_running_loop().time() > deadline:
                return receipt
            await asyncio.sleep(0.005)

    async def slices(self, model):
        return self.held

    async def n_panes(self, model, slices):
        return [0] * len(slices)

    async def baselines(self, model):
        self._stumble()
        return {}

    async def marks(self, model, slice_):
        self._stumble()
        return Watermarks()

    async def state_version(self, model, slice_, window, needs=None):
        return (await self.state(model, slice_, needs)).name(window)

    async def state(self, model, slice_, needs=None):
        self._stumble()
        return FakeState(f"v{self.version}", model)

    async def unchanged_state(self, model, slice_, needs=None):
        self.looks += 1
        known = self.registry.configs.get((model.tenant, model.model)) == model
        return await self.state(model, slice_, needs) if known else None

    async def ask(
        self,
        query,
        model,
        window,
        deadline_s=None,
        slice_="",
        against=None,
        version=None,
    ):
        self._stumble()
        self.asked.append((query.kind, model.key, query.to_dict(), window, slice_))
        if query.kind in self.failing:
            raise self.failing[query.kind]
        body = {
            "model": model.model,
            "window": window.to_dict(),
            "state_version": f"v{self.version}",
            **self.answers.get(query.kind, {}),
        }
        return QueryResult(orjson.dumps(body), "", window, f"v{self.version}")


def unavailable() -> StoreUnavailableError:
    return StoreUnavailableError("the store cannot be reached", 3)
