"""The merged pane of a window, packed, with its digest: from it the same numbers can be computed later."""

from __future__ import annotations

import base64
from typing import ClassVar

from calibrant.core.documents import Result
from calibrant_server.workers.memory import return_freed
from calibrant_server.workers.queries.kind import Inputs, ResultKind
from calibrant_server.workers.queries.query import Query

MAX_BYTES = 8 * 1024 * 1024


class WindowPaneQuery(Query):
    """A query without parameters."""

    kind: ClassVar[str] = "window_pane"


def compute(query: WindowPaneQuery, inputs: Inputs) -> Result:
    """The pane as `calibrant.Pane.from_bytes` reads it; none if it takes more than `MAX_BYTES`."""
    # Reading complete panes took several times the memory of their merge. The next query may be computed by another thread.
    return_freed()
    pane = inputs.pane
    packed = pane.pack()
    if len(packed) > MAX_BYTES:
        return {"packed": None, "reason": "too_large", "n_bytes": len(packed)}
    return {"packed": base64.b64encode(packed).decode(), "digest": pane.digest()}


KIND = ResultKind(WindowPaneQuery, compute)
