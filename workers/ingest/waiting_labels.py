"""Labels that come before their prediction, joined by columns: the records of ids that have none yet.

The records are those of `RetainedRecord.with_unnamed`, to the bit. No row of a pane changes.
"""

from __future__ import annotations

import numpy as np

from calibrant_server.workers.ingest.first_labels import are_storable
from calibrant_server.workers.ingest.joined_records import (
    HEAD,
    JoinedRecords,
    as_bytes,
    counts_as_bytes,
    rows_as_bytes,
    table_of,
)
from calibrant_server.workers.ingest.payloads import PlainLabels
from calibrant_server.workers.ingest.retained_record import FORMATS


def waiting_labels(labels: PlainLabels, received_ms: int) -> tuple[JoinedRecords, list[int]]:
    """Return the records of labels of ids without a record, and the places of those that no record can have.

    Parameters
    ----------
    labels : of different ids
    """
    good = are_storable(labels)
    own = labels if good.all() else labels.take(np.flatnonzero(good))
    n = len(own.ids)
    heads = np.zeros(n, HEAD)
    heads["format"], heads["since_s"], heads["n_unnamed"] = FORMATS[0], received_ms // 1000, 1
    counts = counts_as_bytes(own.class_index, own.n_ratings)
    records = rows_as_bytes(table_of(as_bytes(heads), counts))
    joined = JoinedRecords(own.ids, [None] * n, records, np.ones(n, np.bool_))
    return joined, np.flatnonzero(~good).tolist()
