"""Rounds in which a site sends the totals of its days to a centre: each day once, when its labels are complete.

Days with too few units are added to later days, and the total has the time of the last of them. Nothing that was sent is replaced, so
that the centre has no two totals of the same rows to subtract.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, islice
from typing import Any

from calibrant.client.errors import ServiceError
from calibrant.client.federation.contract import Contract, ModelTerms
from calibrant.client.federation.ledger import Ledger, LedgerError
from calibrant.client.federation.shared_panes import packed_to_share, size_of, total_of
from calibrant.client.numbered_panes import panes_request
from calibrant.client.operations import Operation, batch, model_path, settings, watermark
from calibrant.client.reduction import spec_of
from calibrant.client.transport import Transport
from calibrant.core.pane import Pane
from calibrant.core.panes_by_key import Key, duration_seconds
from calibrant.input.names import combination

DAY_S = 86_400
# Totals in memory at once.
TOTALS_TOGETHER = 16
Line = Mapping[str, Any]
Days = Iterator[tuple[int, Pane]]


@dataclass
class Forwarder:
    """Forwarder of one site.

    Attributes
    ----------
    contract : what is shared
    site, centre : connections; the site's key needs the scope `admin`, the centre's `ingest` and `read`
    ledger : what was sent
    clock : returns seconds since 1970
    note : called with an event and its values, for the log
    """

    contract: Contract
    site: Transport
    centre: Transport
    ledger: Ledger
    clock: Callable[[], float] = time.time
    note: Callable[..., None] = lambda event, **values: None

    def round(self) -> int:
        """Send what is due, and return the number of totals.

        Raises
        ------
        LedgerError
            Ledger, site, centre and contract do not fit together.
        ClientError
            A service cannot be reached, or rejects a request. The next round continues.
        """
        return sum(_ModelRound(self, terms).run() for terms in self.contract.models)


class _ModelRound:
    """A round of one model."""

    def __init__(self, forwarder: Forwarder, terms: ModelTerms) -> None:
        self._site, self._centre = forwarder.site, forwarder.centre
        self._contract, self._terms = forwarder.contract, terms
        self._ledger, self._note = forwarder.ledger, forwarder.note
        self._model: dict[str, Any] = self._site.run(settings(terms.model))
        self._spec = spec_of(self._model)
        self._day_s = max(DAY_S, duration_seconds(self._model["pane"]))
        self._end = forwarder.clock() - duration_seconds(terms.after)

    def run(self) -> int:
        """Send what is due of the model, and return the number of totals."""
        centre: dict[str, Any] = self._centre.run(settings(self._terms.to))
        if spec_of(centre) != self._spec:
            raise LedgerError(
                f"The centre's model {self._terms.to!r} differs from the site's {self._terms.model!r}; expected {self._spec.to_dict()}."
            )
        n_sent = self._settle()
        while due := list(islice(self._due(), TOTALS_TOGETHER)):
            for slice_, day, total in due:
                body = self._body(slice_, day, total)
                self._ledger.begin(self._terms.model, slice_, day + self._day_s, body)
                self._post(body)
            n_sent += len(due)
        return n_sent

    def _settle(self) -> int:
        """Send what was begun, and find out whether the centre has what the ledger records."""
        model = self._terms.model
        mark = self._centre.run(watermark(self._terms.to, self._contract.site)) or 0
        n_sent, body = self._ledger.n_sent(model), self._ledger.outstanding(model)
        if body is not None and mark in (n_sent, n_sent + 1):
            self._post(body)
            return 1
        if mark > n_sent:
            raise LedgerError(
                f"The centre has {mark} totals of {model!r} from this site, and the ledger {n_sent}. The ledger is an old copy, was lost, or "
                "another forwarder uses the name of the site. Restore a newer copy of the ledger. A new ledger with another name of the site would "
                "count its days twice (docs/federation.md, The ledger)."
            )
        if mark < n_sent:
            self._note("centre_is_behind", model=model, watermark=mark, sent=n_sent)
            self._ledger.forget(model, mark)
        return 0

    # What is due

    def _due(self) -> Iterator[tuple[str, int, Pane]]:
        """Yield slice, last day and sum of each total that is complete and was not sent."""
        lines = self._exported()
        self._check_terms(next(lines)["configuration"]["generation"])
        sealed = int(next(lines)["marks"].get("sealed_to", 0))
        end = sealed if self._model.get("label_horizon") else self._end
        for slice_, some in groupby(lines, lambda line: str(line["slice"])):
            if slice_ in (self._terms.slices or ("",)):
                for day, total in self._totals(self._days(slice_, some, end)):
                    yield slice_, day, total

    def _exported(self) -> Iterator[Line]:
        """Yield the lines of the site's export until its panes end: those that follow have rows."""
        path, headers = model_path(self._terms.model, "/export"), {"Accept": "application/x-ndjson"}
        operation: Operation[Any] = Operation("GET", path, dict, headers=headers)
        for line in self._site.lines(operation):
            if line["type"] not in ("model", "marks", "pane"):
                return
            yield line

    def _days(self, slice_: str, lines: Iterator[Line], end: float) -> Days:
        """Yield the complete days of a slice that were not sent, each with its sum."""
        until = self._ledger.until(self._terms.model, slice_)
        for day, some in groupby(lines, lambda line: self._day(int(line["start"]))):
            if until <= day <= end - self._day_s:
                yield day, total_of(self._spec, (_parts(line["packed"]) for line in some))

    def _day(self, start: int) -> int:
        return start - start % DAY_S if self._day_s == DAY_S else start

    def _totals(self, days: Days) -> Days:
        """Add days until they have enough units; those that are left wait."""
        total = total_of(self._spec, ())
        for day, pane in days:
            total.merge(pane)
            if size_of(total) >= self._terms.minimum:
                yield day, total
                total = total_of(self._spec, ())

    def _check_terms(self, generation: str) -> None:
        """Reject a model that was made again, and other terms: rows would count twice."""
        model, now = self._terms.model, f"generation {generation}, {self._terms.form}"
        known = self._ledger.agreed(f"model {model}", now.encode()).decode()
        if known != now:
            raise LedgerError(
                f"The site's model {model!r} was shared as {known}, and now is {now}: its rows would count twice. Share it to another "
                "model of the centre, with another contract and ledger."
            )

    # Requests

    def _body(self, slice_: str, day: int, total: Pane) -> bytes:
        """Return the request of a total, under the next number."""
        site, key = self._contract.site, self._contract.site_slice
        named = {} if key is None else {key: site}
        named |= dict([slice_.split(":", 1)]) if slice_ else {}
        packed = packed_to_share(total, self._ledger.secret, f"{self._terms.model}|{slice_}|{day}")
        place = Key(datetime.fromtimestamp(day, UTC), combination(named.items()))
        number = self._ledger.n_sent(self._terms.model)
        request = panes_request(self._terms.to, site, (number, number + 1), [(place, packed)])
        assert request.body is not None
        return request.body

    def _post(self, body: bytes) -> None:
        """Send a total. If it arrives although the response does not, the centre knows it when it is sent again."""
        model = self._terms.model
        try:
            self._centre.run(batch(self._terms.to, "histograms", body))
        except ServiceError as error:
            if error.watermark is not None:
                raise LedgerError(
                    f"Another forwarder sends as site {self._contract.site!r}: {error}"
                ) from error
            if error.status in (413, 422):
                self._ledger.forget(model, self._ledger.n_sent(model))
            raise
        self._ledger.finish(model)
        self._note("total_sent", model=model, number=self._ledger.n_sent(model))


def _parts(packed: Mapping[str, str]) -> dict[str, bytes]:
    """Return the accumulators of a pane; running totals of its sources are in its sums already."""
    return {
        name: base64.b64decode(value)
        for name, value in packed.items()
        if not name.startswith("src:")
    }
