"""A site and a centre without HTTP, for tests of the forwarder: the centre adds each numbered total once, as the service does."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from urllib.parse import unquote

import numpy as np

import calibrant as cal
from calibrant.accumulators.unit_sample import UnitSample
from calibrant.client.errors import ServiceError, ServiceUnreachable
from calibrant.client.federation.contract import Contract
from calibrant.client.federation.forwarder import Forwarder, Ledger
from calibrant.client.federation.shared_panes import REPLICATED
from calibrant.client.results import Receipt

DAY_S = 86_400
NOW = 1_764_028_800  # 2025-11-25
SPEC = cal.PaneSpec("multiclass", 3)
DEFINITION = {
    "task": "multiclass", "n_classes": 3, "classes": 3, "grid": 3600, "listed_classes": None, "pane": "PT1H",
    "retention": None, "label_horizon": None, "composites": None,
}  # fmt: skip


class Rows:
    """Rows of a day, of one unit each unless `units` says otherwise; labels may change."""

    def __init__(self, n, seed, prefix="u", units=None):
        rng = np.random.default_rng(seed)
        self.probabilities = rng.dirichlet(np.ones(3), n)
        self.labels = rng.integers(0, 3, n).tolist()
        self._panes: dict[tuple[int, ...], cal.Pane] = {}
        self.units = units or [f"{prefix}{seed}-{i}" for i in range(n)]

    def pane(self):
        labels = tuple(self.labels)
        if labels not in self._panes:
            self._panes[labels] = self._filled()
        return self._panes[labels]

    def _filled(self):
        return cal.Pane.fill(
            self.probabilities, self.labels, units=self.units, ids=[f"id-{i}-{each}" for i, each in enumerate(self.units)], spec=SPEC
        )  # fmt: skip

    def all_right(self):
        """Make the top class the label of each row: all flips change the sums in one direction."""
        self.labels = self.probabilities.argmax(axis=1).tolist()
        return self

    def flip(self, n):
        """Change the labels of n rows, so that the top class becomes right, or wrong."""
        top = self.probabilities.argmax(axis=1)
        for i in range(n):
            is_right = self.labels[i] == top[i]
            self.labels[i] = int((top[i] + 1) % 3 if is_right else top[i])


class Site:
    """The service of a site: hours of rows by slice, and the lines of its export."""

    def __init__(self, definition=DEFINITION):
        self.definition = definition
        self.sealed_to = 0
        self.hours: dict[tuple[str, int], list[Rows]] = {}
        self._versions: dict[tuple[str, int], str] = {}

    def put(self, day, *rows, slice_="", hour=0):
        """Set the rows of an hour of a day (days before NOW are negative)."""
        self.hours[slice_, NOW + day * DAY_S + hour * 3600] = list(rows)

    def total(self, slice_=""):
        return sum(
            each.pane() for (name, _), rows in self.hours.items() for each in rows if name == slice_
        )

    def run(self, operation):
        return dict(self.definition)

    def lines(self, operation):
        assert operation.path.endswith("/export")
        yield {"type": "model", "configuration": {}}
        yield {"type": "marks", "marks": {"sealed_to": str(self.sealed_to)}}
        for (slice_, start), rows in sorted(self.hours.items()):
            pane = sum((each.pane() for each in rows[1:]), rows[0].pane()) if rows else None
            if pane is None:
                continue
            packed = {name: base64.b64encode(part).decode() for name, part in pane.parts().items()}
            version = pane.digest()
            yield {
                "type": "pane",
                "slice": slice_,
                "start": start,
                "version": version,
                "packed": packed,
            }
        yield {"type": "sample"}
        raise AssertionError("lines after the panes have rows; the forwarder must not read them")


class Centre:
    """The service of the centre: it adds the panes of each number of a source once."""

    def __init__(self, definition=DEFINITION):
        self.definition = definition
        self.marks: dict[str, int] = {}
        self.seen: list[tuple[str, cal.Pane]] = []
        self.bodies: list[bytes] = []
        self.fails: list[str] = []

    def run(self, operation):
        if operation.method == "GET":
            _, is_source, source = operation.path.partition("/sources/")
            return self.marks.get(unquote(source)) if is_source else dict(self.definition)
        trouble = self.fails.pop(0) if self.fails else ""
        if trouble == "before":
            raise ServiceUnreachable("the request was lost")
        found = self._take(json.loads(operation.body))
        self.bodies.append(operation.body)
        if trouble == "after":
            raise ServiceUnreachable("the response was lost")
        return found

    def _take(self, body):
        first, end = body["offsets"]
        mark = self.marks.get(body["source"])
        if mark is not None and end <= mark:
            return Receipt.from_dict(
                {"duplicate": True, "batch_id": "", "status": "", "accepted": 0, "rejected": 0}
            )
        if mark is not None and first != mark:
            raise ServiceError(
                409, {"type": "/p/offset-conflict", "watermark": mark, "detail": "conflict"}
            )
        (update,) = body["histograms"]
        pane = cal.Pane.from_bytes(base64.b64decode(update["packed"]))
        self.seen.append((update["event_time"], pane))
        self.marks[body["source"]] = end
        return Receipt.from_dict(
            {"duplicate": False, "batch_id": "", "status": "", "accepted": 1, "rejected": 0}
        )

    def restore(self, n):
        """Lose all but the first n totals, of one day each."""
        self.seen = self.seen[:n]
        days = [int(each // DAY_S) + 1 for each in self.starts()]
        self.marks = {source: days[-1] for source in self.marks if days}

    def total(self):
        return sum(pane for _, pane in self.seen)

    def starts(self):
        return sorted(datetime.fromisoformat(at).timestamp() for at, _ in self.seen)

    def lines(self, operation):
        raise AssertionError("the forwarder does not export the centre")


def terms(**more):
    return {"model": "triage", "minimum": 20, "after": "PT6H", **more}


def forwarder(site, centre, ledger, *models, site_name="north", now=NOW):
    contract = Contract.read({"site": site_name, "models": list(models) or [terms()]})
    return Forwarder(contract, site, centre, ledger, clock=lambda: now)


def ledger_at(path, site="north"):
    return Ledger(path, site)


def same_sums(found, expected, but=()):
    """Compare every number except those that are not shared."""
    for name in expected.names:
        if name in ("sample", "cases", "unit_sample", *but):
            continue
        for key, block in expected[name].blocks.items():
            counts, sums = dense(block, key in REPLICATED.get(name, ()))
            their_counts, their_sums = dense(
                found[name].blocks[key], key in REPLICATED.get(name, ())
            )
            np.testing.assert_array_equal(their_counts, counts, err_msg=name)
            scale = np.abs(sums).max(initial=1.0)
            np.testing.assert_allclose(their_sums, sums, rtol=0, atol=1e-12 * scale, err_msg=name)


def unit_hashes(pane):
    """Return the hashes of the units that a pane knows."""
    found = pane["unit_sample"]
    assert isinstance(found, UnitSample)
    return found.hashes


def dense(block, is_replicated):
    """Return counts and sums of all cells; of blocks by replicate, added over the replicates."""
    places, *found = block.filled()
    filled = []
    for part in found:
        every = np.zeros((len(part), block.size), part.dtype)
        every[:, places] = part
        filled.append(every.reshape(len(part), 64, -1).sum(axis=1) if is_replicated else every)
    return filled
