"""Rows of retained records one by one: the second version of `workers/ingest/record_rows`."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.batch import Ratings
from calibrant.core.hashing import hash_names
from calibrant_server.workers.ingest.tail_rows import SOURCES, TailRows
from calibrant_server.workers.join.record_format import RULE_FLAG_BIT
from tests.workers.oracle.retained_prediction import scores_of


def tail_rows(records, task, sign, part=0):
    """The rows of retained predictions that count, pairs of id and record."""
    n = len(records)
    sent = [each.prediction for _, each in records]
    totals = [
        (i, class_index, count)
        for i, (_, each) in enumerate(records)
        for class_index, count in sorted(each.totals.items())
        if count
    ]
    ids = hash_names([name for name, _ in records])
    units = [one.case if one.unit is None else one.unit for one in sent]
    slices = {key: np.full(n, None, dtype=object) for one in sent for key, _ in one.slices}
    for i, one in enumerate(sent):
        for key, value in one.slices:
            slices[key][i] = value
    return TailRows(
        task,
        scores_of(sent),
        Ratings(*np.array(totals, np.int64).reshape(-1, 3).T.copy()),
        np.array([one.is_logits for one in sent]),
        np.full(n, sign),
        np.full(n, part),
        np.array([1.0 if one.weight is None else one.weight for one in sent]),
        np.array([_source(one) for one in sent]),
        np.ones(n, np.bool_),
        np.array([UNKNOWN if each.delay is None else each.delay for _, each in records]),
        np.array([one.flags >> RULE_FLAG_BIT for one in sent], np.uint8),
        ids,
        np.array(
            [
                hash_ if unit is None else hash_names([unit])[0]
                for hash_, unit in zip(ids, units, strict=True)
            ]
        ),
        np.array([*(one.case for one in sent), None], dtype=object)[:-1],
        slices,
    )


def _source(one):
    if one.unit is not None:
        return SOURCES.index("unit")
    return SOURCES.index("id" if one.case is None else "case")
