"""Rows of retained records one by one: the second version of `workers/ingest/joined_model`."""

from __future__ import annotations

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.hashing import hash_names
from calibrant_server.workers.join.record_format import RULE_FLAG_BIT
from tests.workers.oracle.retained_prediction import scores_of
from tests.workers.plain_rows import PlainRow


def rows_of_each(records, sign):
    """The rows of retained predictions that count, pairs of id and record."""
    found = []
    for name, record in records:
        one = record.prediction
        unit = one.case if one.unit is None else one.unit
        found.append(
            PlainRow(
                scores_of([one])[0].tobytes(),
                tuple((k, n) for k, n in sorted(record.totals.items()) if n),
                one.is_logits,
                sign,
                0,
                1.0 if one.weight is None else one.weight,
                _source(one),
                UNKNOWN if record.delay is None else record.delay,
                int(hash_names([name])[0]),
                int(hash_names([name if unit is None else unit])[0]),
                one.case,
                tuple(sorted(one.slices)),
                edge_rule=one.flags >> RULE_FLAG_BIT,
            )
        )
    return found


def _source(one):
    if one.unit is not None:
        return "unit"
    return "id" if one.case is None else "case"
