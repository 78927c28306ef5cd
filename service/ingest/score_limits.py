"""Bound of the work of `POST /v1/score`: rows, metrics and raters are compared with the bytes sent before anything is computed.

A row costs about as much as 60 metrics of a row, because it is filled and fitted too. One unit is about 0.1 µs, so that a body of
less than 1 MB takes less than a second.
"""

from __future__ import annotations

from collections.abc import Collection

from calibrant.metrics import requested
from calibrant_server.service.http.errors import BodyTooLarge

SMALL_BYTES = 1_000_000
MAX_WORK = 9_000_000
WORK_PER_BYTE = 90
_ROW, _ROW_OF_RATERS, _RATING, _RATER = 60, 120, 18, 6_000
# Metrics that compare rows with each other: for any number of rows, and for each row in addition.
PAIRWISE = {"skce", "canonical_ce"}
_PAIRS, _ROW_OF_PAIRS = 3_500_000, 75
# Stability of every case alone.
_CASE, _ROW_OF_CASE = 35_000, 70


def reject_costly_score(
    n_rows: int,
    metrics: Collection[str],
    sent_bytes: int,
    *,
    n_ratings: int = 0,
    n_raters: int = 0,
    n_cases: int = 0,
) -> None:
    """Reject a batch whose scores cost more than its bytes allow.

    Parameters
    ----------
    metrics : requests by their keys
    sent_bytes : size of the body as sent
    n_ratings : of named raters; 0 if no rater is named
    n_raters : number of their names
    n_cases : number of cases whose stability is requested

    Raises
    ------
    BodyTooLarge
        The detail has the number of rows that these metrics allow.
    """
    n_pairwise = sum(each.metric.slug in PAIRWISE for each in requested(list(metrics)))
    row = _ROW + len(metrics) + _ROW_OF_PAIRS * n_pairwise
    if n_ratings:
        row += _ROW_OF_RATERS + _RATING * len(metrics) * n_ratings // n_rows
    if n_cases:
        row += _ROW_OF_CASE
    fixed = _PAIRS * n_pairwise + _RATER * n_raters * len(metrics) + _CASE * n_cases
    allowed = MAX_WORK + WORK_PER_BYTE * max(0, sent_bytes - SMALL_BYTES)
    limit = max(0, (allowed - fixed) // row)
    if n_rows > limit:
        named = f", {n_ratings} ratings of {n_raters} raters" if n_raters else ""
        named += f", stability of {n_cases} cases" if n_cases else ""
        raise BodyTooLarge(
            f"Received {n_rows} rows{named} and {len(metrics)} metrics in {sent_bytes} bytes; expected at most {limit} rows. "
            "Send fewer rows, or request fewer metrics; `calibrant.evaluate` of the library has no such limit."
        )
