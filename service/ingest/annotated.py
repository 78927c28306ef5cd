"""A long table of annotations in a body of `POST /v1/score`, joined with its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from calibrant.core.errors import CalibrationInputError
from calibrant.input.annotations import COLUMNS, Annotations
from calibrant.input.labels import MAX_RATERS
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, indexed, reject_unknown

_OTHERS = ("labels", "label_counts", "raters")


def with_annotations(posted: ParsedBatch) -> ParsedBatch:
    """Return a batch with the labels and raters of its annotations; raters of a larger crowd are not named.

    Raises
    ------
    CalibrationInputError
        Annotations of another form, next to other labels, or of rows without ids.
    """
    if posted.annotations is None:
        return posted
    given = _checked(posted.annotations)
    for name in _OTHERS:
        if posted.columns.get(name) is not None:
            detail = f"Received both annotations and {name}; expected one of them."
            raise CalibrationInputError.at("/annotations", "one_label_column", detail)
    ids = posted.columns.get("ids")
    if ids is None:
        detail = "Received annotations without ids; expected the id of each prediction."
        raise CalibrationInputError.at("/ids", "missing", detail)
    long = Annotations(given["ids"], given["labels"], given.get("raters"))
    labels, raters = long.by_row([str(each) for each in indexed(ids)])
    columns: dict[str, Any] = {"labels": [each or None for each in labels]}
    if long.is_named and len(set(long.raters)) <= MAX_RATERS:
        columns["raters"] = [each or None for each in raters]
    return replace(
        posted, columns=posted.columns | columns, has_named_raters=long.is_named, is_joined=True
    )


def _checked(given: Any) -> dict[str, Any]:
    """Return the columns of the table."""
    if not isinstance(given, dict):
        detail = 'Received another type; expected {"ids": [...], "raters": [...], "labels": [...]}.'
        raise CalibrationInputError.at("/annotations", "object", detail)
    reject_unknown(given, COLUMNS, "/annotations")
    for name in ("ids", "labels"):
        if not isinstance(given.get(name), list):
            detail = f"Received no list of {name}; expected one entry per rating."
            raise CalibrationInputError.at(f"/annotations/{name}", "list", detail)
    return given
