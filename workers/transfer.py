"""A whole model as lines, out of one store and into another.

Every line is a JSON object with a `type`: `model` first, then `marks`, `pane`, `baseline`, with records `record`, `unit` and
`tallies`, last `end`. What the store holds as bytes is base64. The versions of panes are kept, so that the other store's
answers are the same to the last digit: whatever is random in an answer is seeded by them.

The export reads piece by piece while entries go on being merged; `end` says whether everything was of one state.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from typing import Any

from workers.chain import Chain
from workers.entries import EntryError
from workers.facts import Facts
from workers.filling import Ground
from workers.retained import TALLIES, tally
from workers.run import Item
from workers.state.commit import Commit
from workers.state.keys import (
    LAST_CHANGE,
    RECORD_SHARDS,
    SOURCE_FIELD,
    Keys,
    PaneKey,
    PartitionKeys,
)
from workers.state.marks import SEALED_TO
from workers.state.registry import ModelConfig
from workers.unsealed import note
from workers.windows import pane_start

FORMAT = 1
MODEL, MARKS, PANE, BASELINE, RECORD, UNIT, TALLY, END = (
    *("model", "marks", "pane", "baseline", "record", "unit", "tallies", "end"),
)
_A_SCAN = 500
# What a record is now is counted anew; what happened before is carried over.
_CARRIED = ("conflicts", "duplicates", "expired", "expired_unlabelled")


async def export_lines(
    client: Any, keys: Keys, config: ModelConfig, with_records: bool
) -> AsyncIterator[dict[str, Any]]:
    """Every line of a model, the last one `end`."""
    source = _Source(client, keys.of_model(config.key), config)
    before = await source.stamp()
    yield {"type": MODEL, "format": FORMAT, "configuration": json.loads(config.to_json())}
    yield {"type": MARKS, "marks": await source.texts(source.keys.marks(*source.name))}
    n_lines = 2
    parts = [source.panes(), source.baselines()]
    if with_records:
        parts += [source.records(), source.units(), source.tallies()]
    for part in parts:
        async for line in part:
            n_lines += 1
            yield line
    yield {"type": END, "lines": n_lines, "consistent": before == await source.stamp()}


class _Source:
    """One model in a store, for the event loop."""

    def __init__(self, client: Any, keys: PartitionKeys, config: ModelConfig):
        self.client = client
        self.keys = keys
        self.name = (config.key, config.generation)

    async def texts(self, name: str) -> dict[str, str]:
        return {field.decode(): value.decode() for field, value in (await self.client.hgetall(name)).items()}

    async def slices(self) -> list[str]:
        return sorted(member.decode() for member in await self.client.smembers(self.keys.slices(*self.name)))

    async def stamp(self) -> list[Any]:
        """Differs if anything that agrees with something else has changed."""
        slices = await self.slices()
        async with self.client.pipeline(transaction=True) as pipe:
            pipe.hgetall(self.keys.marks(*self.name))
            pipe.hgetall(self.keys.tallies(*self.name))
            pipe.hgetall(self.keys.baselines(*self.name))
            for slice_ in slices:
                pipe.hget(self.keys.versions(*self.name, slice_), LAST_CHANGE)
            return [slices, *await pipe.execute()]

    async def panes(self) -> AsyncIterator[dict[str, Any]]:
        for slice_ in await self.slices():
            versions = await self.texts(self.keys.versions(*self.name, slice_))
            for start in sorted(int(each) for each in versions if each != LAST_CHANGE):
                fields = await self.client.hgetall(self.keys.pane(PaneKey(*self.name, slice_, start)))
                packed = {name.decode(): b64encode(value).decode() for name, value in fields.items()}
                yield {
                    "type": PANE, "slice": slice_, "start": start, "version": versions[str(start)], "packed": packed,
                }  # fmt: skip

    async def baselines(self) -> AsyncIterator[dict[str, Any]]:
        for name, text in sorted((await self.texts(self.keys.baselines(*self.name))).items()):
            yield {"type": BASELINE, "name": name, "holds": json.loads(text)}

    async def records(self) -> AsyncIterator[dict[str, Any]]:
        for shard in range(RECORD_SHARDS):
            async for name, packed in self._scanned(self.keys.facts(*self.name, shard)):
                yield {"type": RECORD, "id": name, "packed": b64encode(packed).decode()}

    async def units(self) -> AsyncIterator[dict[str, Any]]:
        async for name, text in self._scanned(self.keys.members(*self.name)):
            yield {"type": UNIT, "unit": name, "ids": text.decode()}

    async def tallies(self) -> AsyncIterator[dict[str, Any]]:
        held = await self.texts(self.keys.tallies(*self.name))
        yield {"type": TALLY, "tallies": {name: int(held.get(name, 0)) for name in _CARRIED}}

    async def _scanned(self, name: str) -> AsyncIterator[tuple[str, bytes]]:
        """Each field once, although a scan may bring some twice while the table grows."""
        seen: set[bytes] = set()
        cursor = 0
        while True:
            cursor, fields = await self.client.hscan(name, cursor, count=_A_SCAN)
            for field in fields.keys() - seen:
                yield field.decode(), fields[field]
            seen |= fields.keys()
            if cursor == 0:
                return


class Restoring:
    """Writes the lines of an export into a model that holds nothing yet."""

    def __init__(self, node: Any, keys: PartitionKeys, chain: Chain, ground: Ground):
        self._node = node
        self._keys = keys
        self._chain = chain
        self._ground = ground

    def apply(self, item: Item, commit: Commit, token: bytes) -> None:
        """Put an entry's lines into a commit; an item that would overwrite anything is refused."""
        assert item.entry is not None and item.config is not None
        self._config = item.config
        self._name = (item.config.key, item.config.generation)
        tallies = dict.fromkeys(TALLIES, 0)
        try:
            lines = [json.loads(line) for line in item.entry.payload.split(b"\n")]
            if not self._finds_room(lines):
                item.refuse("not_empty", "something else has been merged into the model meanwhile")
                return
            marks = next((line["marks"] for line in lines if line["type"] == MARKS), None)
            held = self._node.hget(self._keys.marks(*self._name), SEALED_TO) if marks is None else marks.get(SEALED_TO)
            self._sealed_to = int(held or 0)
            for line in lines:
                self._line(line, commit, token, tallies)
        except (KeyError, TypeError, AttributeError) as error:
            raise EntryError(f"a line of an export cannot be read: {error!r}") from error
        commit.add_numbers(self._keys.tallies(*self._name), tallies)
        commit.add_numbers(self._keys.retained, {name: tallies[name] for name in ("records", "bytes")})
        item.n = len(lines)

    def _finds_room(self, lines: list[dict[str, Any]]) -> bool:
        with self._node.pipeline(transaction=False) as pipe:
            for line in lines:
                if line["type"] == PANE:
                    pipe.exists(self._keys.pane(PaneKey(*self._name, line["slice"], int(line["start"]))))
                elif line["type"] == RECORD:
                    pipe.hexists(self._keys.facts_of(*self._name, line["id"]), line["id"])
            return not any(pipe.execute())

    def _line(self, line: Mapping[str, Any], commit: Commit, token: bytes, tallies: dict[str, int]) -> None:
        kind = line["type"]
        if kind == PANE:
            self._pane(line, commit, token)
        elif kind == MARKS and line["marks"]:
            marks = {str(name): str(int(value)) for name, value in line["marks"].items()}
            commit.set_fields(self._keys.marks(*self._name), marks)
        elif kind == BASELINE:
            holds = json.dumps(line["holds"]).encode()
            commit.set_fields(self._keys.baselines(*self._name), {line["name"]: holds})
        elif kind == RECORD:
            packed = b64decode(line["packed"], validate=True)
            facts = Facts.unpack(packed)
            tally(tallies, line["id"], facts, len(packed), 1)
            if facts.prediction is not None and self._config.label_horizon_s is not None:
                start = pane_start(facts.prediction.event_us, self._config.pane_s)
                if start >= self._sealed_to:
                    note(commit, self._keys, self._config, {start: [line["id"]]})
            commit.set_fields(self._keys.facts_of(*self._name, line["id"]), {line["id"]: packed})
        elif kind == UNIT:
            commit.set_fields(self._keys.members(*self._name), {line["unit"]: line["ids"].encode()})
        elif kind == TALLY:
            for name in _CARRIED:
                tallies[name] += int(line["tallies"].get(name, 0))

    def _pane(self, line: Mapping[str, Any], commit: Commit, token: bytes) -> None:
        slice_, start = str(line["slice"]), int(line["start"])
        fields = {name: b64decode(value, validate=True) for name, value in line["packed"].items()}
        parts = {name: value for name, value in fields.items() if not name.startswith(SOURCE_FIELD)}
        # Read here, so that nothing gets into the store that no answer could read.
        self._ground.pane.from_parts(self._ground.spec(self._config), parts)
        if fields:
            commit.set_fields(self._keys.pane(PaneKey(*self._name, slice_, start)), fields)
        versions = self._keys.versions(*self._name, slice_)
        commit.set_fields(versions, {str(start): str(line["version"]), LAST_CHANGE: token})
        commit.add_member(self._keys.slices(*self._name), slice_)


__all__ = ["END", "FORMAT", "MODEL", "Restoring", "export_lines"]
