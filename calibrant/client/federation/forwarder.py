"""Rounds in which a site sends the totals of its days to a centre: each day once, when its labels are complete.

A total of some days is the messages `[first day, day after the last)` of its source, days counted from 1970. So the centre's watermark says
which days it has, whatever was killed, lost or restored, and counts each once. Days with too few units are added to later days, and the total
has the time of the last of them. Nothing that was counted is replaced, so that the centre has no two totals of the same rows to subtract.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from calibrant.client.federation.contract import Contract, ModelTerms
from calibrant.client.federation.shared_panes import packed_to_share, size_of, total_of
from calibrant.client.numbered_panes import panes_request
from calibrant.client.operations import Operation, model_path, settings, watermark
from calibrant.client.reduction import spec_of
from calibrant.client.transport import Transport
from calibrant.core.pane import Pane
from calibrant.core.panes_by_key import Key, duration_seconds
from calibrant.input.names import fitted

DAY_S = 86_400
Line = Mapping[str, Any]
log = logging.getLogger("calibrant.federation")


class FederationError(Exception):
    """Ledger, site, centre and contract do not fit together; the message says what to do."""


class Ledger:
    """What a site must remember: its secret key, and the terms under which it has begun to share each model; the centre knows the days.

    A JSON file of one site, made if it does not exist.

    Attributes
    ----------
    secret : key of the hashes that leave the site
    """

    def __init__(self, path: Path, site: str) -> None:
        self._path = path
        self._known = json.loads(path.read_text("utf-8")) if path.exists() else {}
        self.secret = bytes.fromhex(self.agreed("secret", secrets.token_hex(32)))
        owner = self.agreed("site", site)
        if owner != site:
            raise FederationError(f"{path} is the ledger of site {owner!r}; expected {site!r}.")

    def agreed(self, name: str, value: str) -> str:
        """Return the value that was given first for a name."""
        if name not in self._known:
            self._known[name] = value
            self._write()
        return str(self._known[name])

    def _write(self) -> None:
        """Replace the file in one step; only its owner may read it."""
        draft = self._path.with_name(f"{self._path.name}.draft")
        opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            json.dump(self._known, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)


@dataclass
class Forwarder:
    """Forwarder of one site.

    Attributes
    ----------
    contract : what is shared
    site, centre : connections; the site's key needs the scope `admin`, the centre's `ingest` and `read`
    ledger : secret key and terms of the site
    clock : returns seconds since 1970
    """

    contract: Contract
    site: Transport
    centre: Transport
    ledger: Ledger
    clock: Callable[[], float] = time.time

    def round(self) -> int:
        """Send what is due, and return the number of totals.

        Raises
        ------
        FederationError
            Ledger, site, centre and contract do not fit together.
        ClientError
            A service cannot be reached, or rejects a request. The next round continues.
        """
        return sum(self._share(terms) for terms in self.contract.models)

    def _share(self, terms: ModelTerms) -> int:
        """Send what is due of a model, and return the number of totals."""
        model: dict[str, Any] = self.site.run(settings(terms.model))
        self._check(terms, model)
        lines = self._exported(terms.model)
        sealed = next(line for line in lines if line["type"] == "marks")["marks"]
        until = self.clock() - duration_seconds(terms.after)
        if model.get("label_horizon"):
            until = int(sealed.get("sealed_to", 0))
        shared = terms.slices or ("",)
        return sum(
            self._send(terms, slice_, _Days(model, some, until))
            for slice_, some in groupby(lines, lambda line: str(line["slice"]))
            if slice_ in shared
        )

    def _check(self, terms: ModelTerms, model: dict[str, Any]) -> None:
        """Reject a model of another form at the centre, and terms under which rows would count twice."""
        spec = spec_of(model)
        centre: dict[str, Any] = self.centre.run(settings(terms.to))
        if spec_of(centre) != spec:
            raise FederationError(
                f"The centre's model {terms.to!r} differs from the site's {terms.model!r}; expected {spec.to_dict()}."
            )
        known = self.ledger.agreed(f"model {terms.model}", terms.form)
        if known != terms.form:
            raise FederationError(
                f"The site's model {terms.model!r} was shared as {known}, and now is {terms.form}: its rows would count twice. Share it to "
                "another model of the centre, with another contract and ledger."
            )

    def _exported(self, model: str) -> Iterator[Line]:
        """Yield the lines of the site's export until its panes end: those that follow have rows."""
        headers = {"Accept": "application/x-ndjson"}
        operation: Operation[Any] = Operation(
            "GET", model_path(model, "/export"), dict, headers=headers
        )
        for line in self.site.lines(operation):
            if line["type"] not in ("model", "marks", "pane"):
                return
            yield line

    def _send(self, terms: ModelTerms, slice_: str, days: _Days) -> int:
        """Send the totals of one slice, or of all rows: a source of the centre, whose watermark is the day after its last one.

        The arrival of a total shows in the watermark, too, if the response is lost.
        """
        source = fitted("@".join(filter(None, (self.contract.site, slice_))))
        mark, n_sent = self.centre.run(watermark(terms.to, source)), 0
        for day, total in days.totals((mark or 0) * DAY_S, terms.minimum):
            subject = f"{terms.model}|{slice_}|{day}"
            place = Key(datetime.fromtimestamp(day, UTC), self.contract.combination(slice_))
            some = day // DAY_S if mark is None else mark, (day + days.length_s) // DAY_S
            packed = packed_to_share(total, self.ledger.secret, subject)
            self.centre.run(panes_request(terms.to, source, some, [(place, packed)]))
            log.info("total_sent model=%s slice=%s days=%d-%d", terms.model, slice_, *some)
            mark, n_sent = some[1], n_sent + 1
        return n_sent


class _Days:
    """Days of one slice of a model that end by some time, from the lines of its export; a pane of several days is one day."""

    def __init__(self, model: dict[str, Any], lines: Iterator[Line], until: float) -> None:
        self._spec, self._lines, self._until = spec_of(model), lines, until
        self.length_s = max(DAY_S, duration_seconds(model["pane"]))

    def totals(self, since: float, minimum: int) -> Iterator[tuple[int, Pane]]:
        """Yield the total of each day, or of several that have so many units together, with the last of them."""
        total = total_of(self._spec, ())
        for day, some in groupby(self._lines, self._day):
            if not since <= day <= self._until - self.length_s:
                continue
            total.merge(total_of(self._spec, (_parts(line["packed"]) for line in some)))
            if size_of(total) >= minimum:
                yield day, total
                since, total = day + self.length_s, total_of(self._spec, ())

    def _day(self, line: Line) -> int:
        start = int(line["start"])
        return start - start % DAY_S if self.length_s == DAY_S else start


def _parts(packed: Mapping[str, str]) -> dict[str, bytes]:
    """Return the accumulators of a pane; running totals of its sources are in its sums already."""
    sums = (name for name in packed if not name.startswith("src:"))
    return {name: base64.b64decode(packed[name]) for name in sums}
