"""The memory of an alarm goes with its model."""

from dataclasses import replace

import numpy as np
import pytest

from calibrant_server.workers.alarm.alarm_transfer import UNITS, AlarmLines, alarm_lines
from calibrant_server.workers.alarm.cohorts import read_units, units_key
from calibrant_server.workers.lifecycle.export_shapes import shaped
from tests.workers.driving import MODEL


def test_the_units_of_earlier_cohorts_are_exported_and_imported(bench):
    """A unit that an earlier cohort counted is no evidence in the other store either."""
    one, other = (replace(MODEL, model=name) for name in ("one", "other"))
    first, second = np.arange(3, dtype="<u8"), np.arange(7, 9, dtype="<u8")
    keys = bench.store.keys.of(one)
    bench.client.hset(
        units_key(keys, one.key, one.generation),
        mapping={86_400: second.tobytes(), 0: first.tobytes()},
    )

    async def lines():
        return [each async for each in alarm_lines(bench.inbox.client, keys, one)]

    [line] = bench.run(lines())
    commit = Recorded()
    AlarmLines(bench.client, bench.store.keys.of(other), other).put(shaped(line), commit)
    [(name, fields)] = commit.fields
    bench.client.hset(name, mapping=fields)
    found = read_units(bench.client, bench.store.keys.of(other), other).by_cohort
    assert {start: units.tolist() for start, units in found.items()} == {0: [0, 1, 2], 86_400: [7, 8]}  # fmt: skip
    damaged = {"type": UNITS, "by_cohort": {"0": "AAAA"}}
    with pytest.raises(ValueError, match="8 bytes"):
        AlarmLines(bench.client, keys, one).put(damaged, commit)


class Recorded:
    """Fields that would be written."""

    def __init__(self):
        self.fields = []

    def set_fields(self, key, values):
        self.fields.append((key, values))
