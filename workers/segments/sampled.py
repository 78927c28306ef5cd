"""Rows of a stored sample: labelled rows below a threshold of their hashes, each with its pane's start and how often it occurs.

A row is stored as it was filled. The number of its occurrences is signed: a delayed label, a correction and a deletion add the
old row with -1. Rows and threshold of a day serve every window, slice and cohort, which filter them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from calibrant.accumulators.delays import UNKNOWN
from calibrant.accumulators.sample import Sample
from calibrant.core.edge_rules import FLOAT32
from calibrant.core.hashing import U64
from calibrant.core.sampled_rows import RATING_BYTES, ROW_BYTES, SampledRows, below
from calibrant.core.spec import PaneSpec
from calibrant_server.workers.segments.ragged import Ints
from calibrant_server.workers.segments.row_columns import fixed_of, ratings_table
from calibrant_server.workers.segments.rows import Rows, content_of
from calibrant_server.workers.segments.scores import Scores


def sampled(rows: Rows, start_s: int, halvings: int = 0) -> Rows:
    """Return the labelled rows of a time slice whose hashes are below a threshold, with their signs.

    Parameters
    ----------
    start_s : of the pane
    """
    rows = rows.where((rows.fixed["n_ratings"] > 0) & below(rows.fixed["hash"], halvings))
    # A sample has neither batches nor delays nor edges: rows that differ in these alone are equal.
    rows = rows.with_columns(
        part=0, delay=UNKNOWN, case=-1, source=0, edge_rule=FLOAT32, start_s=start_s
    )
    # Minus zero hashes as zero, so zero is stored.
    return replace(
        rows.with_columns(weight=rows.fixed["weight"] + 0.0),
        scores=rows.scores.without_minus_zero(),
    )


def of_sample(sample: Sample, start_s: int, slices: Mapping[str, str]) -> Rows:
    """Return the rows of a posted pane, all of one pane and its slices."""
    given = sample.rows
    keys, names = tuple(sorted(slices)), tuple(dict.fromkeys(slices.values()))
    fixed, ratings = fixed_of(len(given)), given.ratings
    fixed["hash"], fixed["unit_hash"], fixed["weight"] = given.ids, given.units, given.weights
    fixed["is_logits"], fixed["count"], fixed["start_s"] = given.logits, given.counts, start_s
    fixed["n_ratings"] = np.bincount(ratings.row, minlength=len(given))
    codes = np.array([names.index(slices[key]) for key in keys], np.int32)
    return Rows(
        sample.spec.task,
        fixed,
        Scores(given.logits == 1, given.scores),
        ratings_table(ratings.class_index, ratings.count),
        keys,
        np.tile(codes, (len(given), 1)).reshape(len(given), len(keys)),
        names,
    )


def counted(rows: Rows) -> Rows:
    """Return equal rows as one, in the order of their hashes, without those that occur as often with either sign."""
    hashes = rows.fixed["hash"]
    order = np.argsort(hashes, kind="stable")
    same = np.append(False, hashes[order][1:] == hashes[order][:-1])[: len(order)]
    same[:-1] |= same[1:].copy()
    content = np.zeros(len(rows), np.uint64)
    if same.any():
        several = order[same]
        content[several] = content_of(rows.take(several))
        order = np.lexsort((content, hashes))
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(hashes[order]) != 0) | (np.diff(content[order]) != 0)
    starts = np.flatnonzero(first)
    total = np.add.reduceat(rows.fixed["count"][order], starts) if len(starts) else starts
    return rows.take(order[starts][total != 0]).with_columns(count=total[total != 0])


def occurring(rows: Rows) -> Rows:
    """Return the rows that occur; a row without its addition does not."""
    return rows.where(rows.fixed["count"] > 0)


def below_threshold(rows: Rows, halvings: int) -> Rows:
    """Return the rows whose hashes are below a threshold."""
    return rows.where(below(rows.fixed["hash"], halvings))


def without(rows: Rows, hashes: U64) -> Rows:
    """Return the rows of other predictions."""
    return rows.where(~np.isin(rows.fixed["hash"], hashes))


def row_bytes(rows: Rows) -> Ints:
    """Return the bytes for which each row counts: four for a score that came as float32, else eight."""
    width = np.where(rows.scores.stored.is_narrow, 4, 8)
    n_ratings = rows.fixed["n_ratings"].astype(np.int64)
    return rows.scores.n_classes * width + ROW_BYTES + RATING_BYTES * n_ratings


def sample_of(rows: Rows, spec: PaneSpec, halvings: int, max_bytes: int) -> Sample:
    """Return counted rows as the sample of a pane."""
    return Sample.of_rows(spec, sampled_rows(occurring(rows)), halvings, max_bytes)


def sampled_rows(rows: Rows) -> SampledRows:
    """Return rows in the form of the library's sample."""
    fixed = rows.fixed
    return SampledRows(
        ids=rows.hashes,
        units=np.ascontiguousarray(fixed["unit_hash"]),
        logits=fixed["is_logits"].astype(np.uint8),
        weights=np.ascontiguousarray(fixed["weight"]),
        scores=rows.scores.values,
        counts=np.ascontiguousarray(fixed["count"]),
        ratings=rows.counted_ratings,
    ).knowing(rows.scores.stored.narrowed)
