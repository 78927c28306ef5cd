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
from calibrant.input.names import combination, fitted

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
        end = self.clock() - duration_seconds(terms.after)
        if model.get("label_horizon"):
            end = int(sealed.get("sealed_to", 0))
        n_sent = 0
        for slice_, some in groupby(lines, lambda line: str(line["slice"])):
            if slice_ in (terms.slices or ("",)):
                n_sent += _SharedSlice(self, terms, model, slice_).send(some, end)
        return n_sent

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


class _SharedSlice:
    """The totals of one slice of a model, or of all its rows: a source of the centre."""

    def __init__(
        self, forwarder: Forwarder, terms: ModelTerms, model: dict[str, Any], slice_: str
    ) -> None:
        self._centre, self._secret = forwarder.centre, forwarder.ledger.secret
        self._model, self._to, self._minimum = terms.model, terms.to, terms.minimum
        self._slice = slice_
        self._spec = spec_of(model)
        self._pane_s = max(DAY_S, duration_seconds(model["pane"]))
        site, key = forwarder.contract.site, forwarder.contract.site_slice
        self._source = fitted(f"{site}@{slice_}" if slice_ else site)
        named = {} if key is None else {key: site}
        named |= dict([slice_.split(":", 1)]) if slice_ else {}
        self._combination = combination(named.items())

    def send(self, lines: Iterator[Line], end: float) -> int:
        """Send the totals of the days before `end` that the centre does not have, and return their number."""
        mark = self._centre.run(watermark(self._to, self._source))
        n_sent, total = 0, total_of(self._spec, ())
        for day, some in groupby(lines, self._day):
            if (mark or 0) * DAY_S > day or day > end - self._pane_s:
                continue
            total.merge(total_of(self._spec, (_parts(line["packed"]) for line in some)))
            if size_of(total) >= self._minimum:
                mark = self._post(mark, day, total)
                n_sent, total = n_sent + 1, total_of(self._spec, ())
        return n_sent

    def _day(self, line: Line) -> int:
        start = int(line["start"])
        return start - start % DAY_S if self._pane_s == DAY_S else start

    def _post(self, mark: int | None, day: int, total: Pane) -> int:
        """Send a total and return the watermark after it. Its arrival shows in the watermark, too, if the response is lost."""
        subject = f"{self._model}|{self._slice}|{day}"
        place = Key(datetime.fromtimestamp(day, UTC), self._combination)
        end = (day + self._pane_s) // DAY_S
        days = (day // DAY_S if mark is None else mark, end)
        packed = packed_to_share(total, self._secret, subject)
        self._centre.run(panes_request(self._to, self._source, days, [(place, packed)]))
        log.info("total_sent model=%s slice=%s days=%d-%d", self._model, self._slice, *days)
        return end


def _parts(packed: Mapping[str, str]) -> dict[str, bytes]:
    """Return the accumulators of a pane; running totals of its sources are in its sums already."""
    return {
        name: base64.b64decode(value)
        for name, value in packed.items()
        if not name.startswith("src:")
    }
