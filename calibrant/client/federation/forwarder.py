"""Rounds in which a site sends new days, and corrections of days that it has sent, to a centre.

A day is sent as a running total, which replaces its predecessor at the centre: the centre adds the new one and subtracts the old one in one
step. Days with too few units are added to later days, and the total has the time of the last of them.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Protocol

from calibrant.client.errors import ServiceError
from calibrant.client.federation.change_size import Profile, differs_enough, size_of
from calibrant.client.federation.contract import Contract, ModelTerms
from calibrant.client.federation.exported_panes import ExportedPanes, SiteState
from calibrant.client.federation.ledger import Ledger, LedgerError, Outstanding, Total
from calibrant.client.federation.shared_panes import packed_to_share, total_of
from calibrant.client.operations import Operation, batch, settings, time_text, watermark
from calibrant.client.reduction import spec_of
from calibrant.core.pane import Pane
from calibrant.core.panes_by_key import duration_seconds

# Totals in memory at once.
TOTALS_TOGETHER = 16


class Connection(Protocol):
    """What is needed of a transport."""

    def run(self, operation: Operation[Any]) -> Any:
        """Send a request, and again while that may help."""

    def lines(self, operation: Operation[Any]) -> Iterator[Any]:
        """Stream the lines of a response."""


@dataclass
class Round:
    """Outcome of a round.

    Attributes
    ----------
    sent, corrected : totals of new days, and totals that replaced an earlier one
    waiting_days, waiting_corrections : days and corrections with too few units
    rejected : totals that the centre has rejected
    """

    sent: int = 0
    corrected: int = 0
    waiting_days: int = 0
    waiting_corrections: int = 0
    rejected: int = 0

    def __str__(self) -> str:
        return " ".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))


class Forwarder:
    """Forwarder of one site.

    Parameters
    ----------
    contract : what is shared
    site, centre : connections; the site's key needs the scope `admin`, the centre's `ingest` and `read`
    ledger : what was sent
    clock : returns seconds since 1970
    note : called with an event and its values, for the log
    """

    def __init__(
        self,
        contract: Contract,
        site: Connection,
        centre: Connection,
        ledger: Ledger,
        *,
        clock: Callable[[], float] = time.time,
        note: Callable[..., None] = lambda event, **values: None,
    ) -> None:
        self._contract, self._site, self._centre, self._ledger = contract, site, centre, ledger
        self._clock, self._note = clock, note

    def round(self) -> Round:
        """Send what is due.

        Raises
        ------
        LedgerError
            Ledger, site, centre and contract do not fit together.
        ClientError
            A service cannot be reached, or rejects a request. The next round continues.
        """
        found = Round()
        for terms in self._contract.models:
            _ModelRound(self, terms, found).run()
        return found


class _ModelRound:
    """A round of one model."""

    def __init__(self, forwarder: Forwarder, terms: ModelTerms, found: Round) -> None:
        self._contract, self._ledger = forwarder._contract, forwarder._ledger
        self._site, self._centre = forwarder._site, forwarder._centre
        self._note, self._now = forwarder._note, forwarder._clock()
        self._terms, self._round = terms, found
        self._model: Mapping[str, Any] = self._site.run(settings(terms.model))
        self._spec = spec_of(self._model)

    def run(self) -> None:
        self._compare_models()
        pane_s = duration_seconds(self._model["pane"])
        slices = self._terms.slices or ("",)
        exports = [
            ExportedPanes(self._site.lines, self._terms.model, each, pane_s) for each in slices
        ]
        states = [each.state() for each in exports]
        for state in states:
            self._ledger.check_model(self._terms.model, state.generation, self._terms.form)
        self._settle()
        for slice_, exported, state in zip(slices, exports, states, strict=True):
            self._correct(exported, state, slice_)
            self._send_new(exported, state, slice_)

    def _compare_models(self) -> None:
        centre, bins = self._centre.run(settings(self._terms.to)), self._terms.bins
        if bins is None:
            same = spec_of(centre) == self._spec
            expected = str(self._spec.to_dict())
        else:
            histogram_of(
                total_of(self._spec, ()), bins
            )  # rejects bins that the site's grid does not give
            same = (self._spec.task, self._spec.n_classes) == (centre["task"], centre["n_classes"])
            same = same and bins % centre["grid"] == 0
            expected = (
                f"{self._spec.task}, {self._spec.n_classes} classes, a grid that divides {bins}"
            )
        if not same:
            raise LedgerError(
                f"The centre's model {self._terms.to!r} differs from the site's {self._terms.model!r}; expected {expected}."
            )

    def _settle(self) -> None:
        """Finish what was begun, and find out whether the centre has what the ledger records."""
        model = self._terms.model
        mark = self._centre.run(watermark(self._terms.to, self._contract.site))
        number, open_ = self._ledger.next_number(model), self._ledger.outstanding(model)
        if open_ is not None and mark in ({None, 0} if number == 0 else {number}) | {number + 1}:
            self._post(open_)
        elif mark is None or mark < number:
            if number:
                self._note("centre_is_behind", model=model, watermark=mark, sent=number)
                self._ledger.send_again(model, number if mark is None else mark)
        elif mark > number:
            raise LedgerError(
                f"The centre has {mark} totals of {model!r} from this site, and the ledger {number}. The ledger is an old copy, was lost, or "
                "another forwarder uses the name of the site. Restore a newer copy of the ledger. A new ledger with another name of the site would "
                "count its days twice (docs/federation.md, The ledger)."
            )

    # Corrections of totals that the centre has

    def _correct(self, exported: ExportedPanes, state: SiteState, slice_: str) -> None:
        totals = self._ledger.totals(self._terms.model, slice_)
        for each in totals:
            if each.is_due:
                self._begin(each, Profile.of(Pane.from_bytes(each.packed)), is_new=False)
        changed = [
            each
            for each in totals
            if _versions(each.days, state) != each.versions
            and not self._is_expiring(each, exported)
        ]
        for some in _parts(changed, TOTALS_TOGETHER):
            of_day = {day: each.at for each in some for day in each.days}
            found = self._totals(exported, of_day)
            for each in some:
                self._correct_one(each, found[each.at], state)

    def _correct_one(self, old: Total, pane: Pane, state: SiteState) -> None:
        packed = self._packed(pane, old.slice, old.at)
        new = Pane.from_bytes(packed)
        versions = _versions(old.days, state)
        if new.isclose(Pane.from_bytes(old.packed)):
            self._ledger.note_versions(self._terms.model, old, versions)
            return
        profile, digest = Profile.of(new), _digest(packed)
        earlier = self._ledger.profiles(self._terms.model, old)
        minimum = self._terms.minimum
        is_enough = all(
            known == digest or differs_enough(profile, Profile.unpack(packed_profile), minimum)
            for known, packed_profile in earlier
        )
        if not is_enough or (_n_predictions(new) > 0 and size_of(new) < minimum):
            self._round.waiting_corrections += 1
            return
        self._begin(replace(old, versions=versions, packed=packed), profile, is_new=False)

    def _is_expiring(self, total: Total, exported: ExportedPanes) -> bool:
        """Return whether retention has dropped, or soon drops, panes of a total: the centre keeps it as it is."""
        if not self._model.get("retention"):
            return False
        oldest = self._now - duration_seconds(self._model["retention"])
        return min(total.days) < oldest + exported.day_s

    # Days that the centre does not have

    def _send_new(self, exported: ExportedPanes, state: SiteState, slice_: str) -> None:
        totals = self._ledger.totals(self._terms.model, slice_)
        known = {day for each in totals for day in each.days}
        end = self._shared_until(state)
        waiting = [
            day for day in sorted(state.versions.keys() - known) if day + exported.day_s <= end
        ]
        pool, days = total_of(self._spec, ()), list[int]()
        for some in _parts(waiting, TOTALS_TOGETHER):
            found = self._totals(exported, {day: day for day in some})
            for day in some:
                pool, days = total_of(self._spec, (pool, found[day])), [*days, day]
                if size_of(pool) < self._terms.minimum:
                    continue
                packed = self._packed(pool, slice_, day)
                total = Total(slice_, day, tuple(days), _versions(days, state), packed)
                self._begin(total, Profile.of(Pane.from_bytes(packed)), is_new=True)
                pool, days = total_of(self._spec, ()), []
        self._round.waiting_days += len(days)

    def _shared_until(self, state: SiteState) -> float:
        """Return the time until which days are complete."""
        if self._model.get("label_horizon"):
            return state.sealed_to
        return self._now - self._terms.after_s

    def _totals(self, exported: ExportedPanes, of_day: Mapping[int, int]) -> dict[int, Pane]:
        """Return totals by their number in `of_day`."""
        found = {each: total_of(self._spec, ()) for each in of_day.values()}
        for day, pane in exported.panes(of_day, self._spec):
            found[of_day[day]].merge(pane)
        return found

    def _packed(self, pane: Pane, slice_: str, at: int) -> bytes:
        subject = f"{self._terms.model}|{slice_}|{at}"
        return packed_to_share(pane, self._ledger.secret, subject)

    # Requests

    def _begin(self, total: Total, profile: Profile, is_new: bool) -> None:
        self._post(self._ledger.begin(self._terms.model, total, profile.pack()), is_new)

    def _post(self, sent: Outstanding, is_new: bool = True) -> None:
        """Send a total. If it arrives although the response does not, the centre knows it when it is sent again."""
        total = sent.total
        about = {
            "model": self._terms.model,
            "slice": total.slice,
            "at": _at(total),
            "number": sent.number,
        }
        try:
            self._centre.run(batch(self._terms.to, "histograms", self._body(sent)))
        except ServiceError as error:
            if error.watermark is not None:
                raise LedgerError(
                    f"Another forwarder sends as site {self._contract.site!r}: {error}"
                ) from error
            if error.status not in (413, 422):
                raise
            self._ledger.abandon(self._terms.model)
            self._round.rejected += 1
            self._note("total_rejected", **about, error=error.detail)
            return
        self._ledger.finish(self._terms.model, sent, _digest(total.packed))
        self._round.sent += is_new
        self._round.corrected += not is_new
        self._note("total_sent", **about, days=len(total.days))

    def _body(self, sent: Outstanding) -> bytes:
        """Return the request; the same bytes each time."""
        site, key = self._contract.site, self._contract.site_slice
        named = {} if key is None else {key: site}
        if sent.total.slice:
            named |= dict([sent.total.slice.split(":", 1)])
        update = {
            "mode": "cumulative", "source": site, "epoch": 0, "sequence": sent.number + 1, "event_time": _at(sent.total),
            **({"slice": named} if named else {}), **self._content(sent.total),
        }  # fmt: skip
        offsets = [sent.number, sent.number + 1]
        return json.dumps({"source": site, "offsets": offsets, "histograms": [update]}).encode()

    def _content(self, total: Total) -> dict[str, Any]:
        if self._terms.bins is None:
            return {"kind": "pane", "packed": base64.b64encode(total.packed).decode()}
        return histogram_of(Pane.from_bytes(total.packed), self._terms.bins)


def histogram_of(total: Pane, bins: int) -> dict[str, Any]:
    """Return the reliability histogram of the score, as the service reads it."""
    rows = total.reliability(bins=bins).table
    return {
        "kind": "positive" if total.spec.task == "binary" else "top_label",
        "raters": "pooled", "bins": bins, "edges": "right",
        "count": [row["weight"] for row in rows], "sum_confidence": [row["sum_confidence"] for row in rows],
        "sum_correct": [row["sum_correct"] for row in rows], "n_predictions": [row["n_predictions"] for row in rows],
        "n_units": total.counts["n_units"],
    }  # fmt: skip


def _versions(days: Sequence[int], state: SiteState) -> str:
    return "|".join(f"{day}:{state.versions.get(day, '')}" for day in days)


def _n_predictions(total: Pane) -> int:
    return total.counts["n_predictions"]


def _at(total: Total) -> str:
    return time_text(datetime.fromtimestamp(total.at, UTC))


def _digest(packed: bytes) -> bytes:
    return sha256(packed).digest()


def _parts(several: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(several), size):
        yield several[start : start + size]
