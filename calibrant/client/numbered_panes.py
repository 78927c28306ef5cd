"""Panes of a table in numbered groups, each one request: a job that is repeated counts each of them once.

The number of a pane is its offset in its source. A group that the service has accepted is a duplicate when it is sent again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from calibrant.client.errors import ServiceError
from calibrant.client.operations import Operation, batch, time_text
from calibrant.client.results import Receipt
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.panes_by_key import Key
from calibrant.input.names import slices_of

# The service's limits for one request: panes, counting those of slices, and bytes of the body. Base64 takes a third more.
MAX_PANES = 64
MAX_BYTES = 8 << 20
KeyedPanes = Mapping[Key, Pane] | Iterable[tuple[Key, Pane | bytes]]


@dataclass(frozen=True)
class PaneGroup:
    """Panes of one request: the number of the first, and each with its key as bytes."""

    first: int
    panes: tuple[tuple[Key, bytes], ...]

    @property
    def end(self) -> int:
        """The number after the last pane."""
        return self.first + len(self.panes)

    def request(self, model: str, source: str, wait: float) -> Operation[Receipt]:
        """Return the request that sends the group."""
        return panes_request(model, source, (self.first, self.end), self.panes, wait)

    def rest(self, error: ServiceError) -> PaneGroup:
        """Return the panes that an earlier run, with other groups, has not sent; raise the error if it is another one."""
        rules = {each.rule for each in error.violations}
        if error.watermark is None or rules != {"offset_overlap"}:
            raise error
        return PaneGroup(error.watermark, self.panes[error.watermark - self.first :])


def groups(panes: KeyedPanes) -> Iterator[PaneGroup]:
    """Yield panes in groups that one request can hold; panes of a mapping in the order of their keys."""
    pairs = sorted(panes.items()) if isinstance(panes, Mapping) else panes
    group: list[tuple[Key, bytes]] = []
    first = n_bytes = n_panes = 0
    for key, pane in pairs:
        packed = pane.to_bytes() if isinstance(pane, Pane) else bytes(pane)
        touched = 1 + len(slices_of(key.slice))
        if group and (n_bytes + len(packed) > MAX_BYTES or n_panes + touched > MAX_PANES):
            yield PaneGroup(first, tuple(group))
            first, n_bytes, n_panes, group = first + len(group), 0, 0, []
        group.append((key, packed))
        n_bytes, n_panes = n_bytes + len(packed), n_panes + touched
    if group:
        yield PaneGroup(first, tuple(group))


def panes_request(
    model: str,
    source: str,
    offsets: tuple[int, int],
    panes: Iterable[tuple[Key, bytes]],
    wait: float = 0,
) -> Operation[Receipt]:
    """Return the request that sends panes of the messages `[from, to)` of a source."""
    updates = [
        {"kind": "pane", "packed": base64.b64encode(packed).decode(), **_place(key)}
        for key, packed in panes
    ]
    body = {"source": source, "offsets": list(offsets), "histograms": updates}
    return batch(model, "histograms", json.dumps(body).encode(), False, wait)


def _place(key: Key) -> dict[str, object]:
    """Return time and slice values of a pane as the service reads them."""
    if key.start is None:
        detail = "Received a pane without a start; expected one. Name the column of event times: fill_by(..., time=...)."
        raise CalibrationInputError.at("/start", "required", detail)
    place: dict[str, object] = {"event_time": time_text(key.start)}
    return place | {"slice": slices_of(key.slice)} if key.slice else place
